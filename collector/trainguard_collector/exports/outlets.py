"""What the environment wants of the newest samples; a fault of it is one line, and never the sampler's."""

import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from trainguard_collector import __version__
from trainguard_collector.exports.points import About, Newest
from trainguard_collector.metrics import Sample
from trainguard_collector.names import Identity

if TYPE_CHECKING:
    from trainguard_collector.exports.otlp import Pusher
    from trainguard_collector.exports.prometheus import Server

_KEPT_S = 30.0
_LAST_PUSH_S = 2.0


class Outlets:
    """Nothing is imported, held or started for what the environment does not ask for."""

    def __init__(self, environment: "Mapping[str, str]", identity: Identity, interval_s: float) -> None:
        self._environment, self._identity = environment, identity
        self._newest = Newest(max(_KEPT_S, 3.0 * interval_s))
        self._faults: dict[str, str] = {}
        self.server: Optional[Server] = None
        self._pusher: Optional[Pusher] = None
        for name, start in (("PROMETHEUS", self._serve), ("OTLP", self._push)):
            if environment.get(f"TRAINGUARD_{name}", "").strip():
                self._try(name.lower(), start)

    def take(self, samples: Iterable[Sample], at: float, steady: float, about: "Callable[[], About]") -> None:
        if self.server is not None or self._pusher is not None:
            self._newest.take(samples, at, steady, about())

    @property
    def faults(self) -> "dict[str, str]":
        pusher = self._pusher
        if pusher is None or pusher.fault is None:
            return self._faults
        return {**self._faults, "otlp": f"{pusher.failures} pushes failed, the newest: {pusher.fault}"}

    def close(self) -> None:
        """Push once more, in its thread; `join` waits for that."""
        if self._pusher is not None:
            self._pusher.close()

    def join(self) -> None:
        if self._pusher is not None:
            self._pusher.join(_LAST_PUSH_S)

    def _try(self, name: str, start: Callable[[], None]) -> None:
        try:
            start()
        except Exception as fault:
            self._faults[name] = f"{type(fault).__name__}: {fault}"[:200]
            _say(f"no {name}, the samples go on: {fault}")

    def _serve(self) -> None:
        from trainguard_collector.exports.prometheus import Server, address_of, text

        address = address_of(self._environment["TRAINGUARD_PROMETHEUS"])
        resource, labels = self._resource(), {"job": self._identity.job, "node": self._identity.node}
        try:
            self.server = Server(address, lambda: text(self._newest.points(), labels, resource))
        except OSError as fault:
            raise OSError(f"TRAINGUARD_PROMETHEUS is {address[0]}:{address[1]}: {fault.strerror or fault}") from fault
        self.server.start()

    def _push(self) -> None:
        from trainguard_collector.exports.otlp import Pusher, request, target_of

        resource = self._resource()
        target = target_of(self._environment)
        self._pusher = Pusher(target, lambda: request(self._newest.points(), resource, __version__), _say)
        self._pusher.start()

    def _resource(self) -> "dict[str, str]":
        from trainguard_collector.exports.otlp import resource_of

        job, node = self._identity.job, self._identity.node
        own = {
            "service.name": "trainguard-collector",
            "service.instance.id": f"{job}/{node}",
            "host.name": socket.gethostname(),
            "trainguard.job": job,
            "trainguard.node": node,
        }
        return resource_of(self._environment, own)


def _say(text: str) -> None:
    with suppress(Exception):
        sys.stderr.write(f"trainguard-collector: {text}\n")
        sys.stderr.flush()
