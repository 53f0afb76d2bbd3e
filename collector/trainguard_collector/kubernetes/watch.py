"""Starts a sampler for each job's pod of the node, and ends it when the pod ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.kubernetes.devices import Allocated
from trainguard_collector.kubernetes.pods import (
    SETTINGS,
    TAGS,
    annotations_of,
    began_at,
    ended_by,
    group_paths,
    identity_of,
    needs_gpus_named,
    place_of,
    uid_of,
)
from trainguard_collector.process import LEFT
from trainguard_collector.settings import Settings, read_settings
from trainguard_collector.spawn import end, spawn

POLL_S = 10.0
_MOST_STARTS = 4
_FINISH_MORE_S = 5.0
_HYPERPOD = "hyperpod-i-"

Spawn = Callable[[Settings], "subprocess.Popen[bytes]"]
Pods = Callable[[], "list[Mapping[str, Any]]"]


def platform_of(node: str) -> str:
    """Return the kind of cluster that a node's name shows."""
    return "hyperpod-eks" if node.startswith(_HYPERPOD) else "kubernetes"


class _Observed:
    """A pod with a sampler; ``until`` is when a sampler that knows of the end is killed."""

    def __init__(self, settings: Settings, sampler: "subprocess.Popen[bytes]") -> None:
        self.settings, self.sampler, self.starts = settings, sampler, 1
        self.until: Optional[float] = None

    def tell(self, word: str) -> None:
        if self.until is None:
            self.until = time.monotonic() + self.settings.finish_s + _FINISH_MORE_S
            with suppress(OSError):
                if self.sampler.stdin is not None:
                    self.sampler.stdin.write(f"{word}\n".encode())
                    self.sampler.stdin.close()

    def is_gone(self) -> bool:
        """Whether the sampler has ended; it is killed when its time is over."""
        if self.until is not None and time.monotonic() > self.until:
            end(self.sampler)
        return self.sampler.poll() is not None


class NodeSampler:
    """Follows the pods of one node; ``allocated`` says which GPUs are whose."""

    def __init__(
        self, pods: Pods, allocated: Callable[[], Allocated], environment: Mapping[str, str], spawn: Spawn = spawn
    ) -> None:
        self._pods, self._allocated, self._environment, self._spawn = pods, allocated, environment, spawn
        node = environment.get("NODE_NAME", "")
        self._platform = environment.get("TRAINGUARD_PLATFORM") or platform_of(node)
        self.observed: dict[str, _Observed] = {}
        # Pods that are not sampled any more, whatever the API answers.
        self._over: set[str] = set()
        self._said: dict[str, str] = {}

    def run(self, stopping: threading.Event, alive: Path) -> None:
        """Look at the pods each ten seconds; at the end the samplers leave their jobs open for the next one."""
        while not stopping.is_set():
            self.look()
            with suppress(OSError):
                alive.touch()
            stopping.wait(POLL_S)
        for each in self.observed.values():
            each.tell(LEFT)
        while not all(each.is_gone() for each in self.observed.values()):
            time.sleep(0.1)

    def look(self) -> None:
        """Ask once, start and end samplers; without an answer nothing changes."""
        try:
            pods = {uid_of(pod): pod for pod in self._pods()}
        except Exception as fault:
            self._say("api", f"{fault}")
            return
        self._said.pop("api", None)
        self._over &= pods.keys()
        allocated: Optional[Allocated] = None
        for uid, pod in pods.items():
            word = ended_by(pod)
            if word is not None and uid in self.observed:
                self.observed[uid].tell(word)
            if word is not None or uid in self.observed or uid in self._over or began_at(pod) is None:
                continue
            if allocated is None:
                allocated = self._gpus()
            self._begin(uid, pod, allocated)
        for uid in self.observed.keys() - pods.keys():
            self.observed[uid].tell("stopped")  # deleted
        self._reap()

    def _gpus(self) -> Allocated:
        try:
            found = self._allocated()
        except Exception as fault:
            self._say("gpus", f"the kubelet does not say whose GPUs are whose: {type(fault).__name__}: {fault}"[:300])
            return {}
        self._said.pop("gpus", None)
        return found

    def _begin(self, uid: str, pod: Mapping[str, Any], allocated: Allocated) -> None:
        try:
            settings = self._settings(pod, allocated)
            if settings is not None:
                self.observed[uid] = _Observed(settings, self._spawn(settings))
        except OSError as fault:
            self._say(uid, f"pod {'/'.join(place_of(pod))} is not sampled yet: {fault}")
        except (ValueError, RecursionError) as fault:  # what its owner wrote spoils no other pod
            self._over.add(uid)
            self._say(uid, f"pod {'/'.join(place_of(pod))} is not sampled: {fault}")

    def _settings(self, pod: Mapping[str, Any], allocated: Allocated) -> Optional[Settings]:
        """Return what a sampler of the pod needs; None where it is not sampled, or not yet."""
        identity = identity_of(pod, self._platform)
        if identity is None:
            return None
        gpus = allocated.get(place_of(pod), [])
        if not gpus and needs_gpus_named(pod):
            return None
        annotations = annotations_of(pod)
        named = {"TRAINGUARD_SETTINGS": annotations.get(SETTINGS), "TRAINGUARD_TAGS": annotations.get(TAGS)}
        given = {name: value for name, value in named.items() if value}
        settings = read_settings({**self._environment, **given}, identity)
        if settings is None:
            return None
        paths = group_paths(pod)
        return replace(
            settings,
            gpus=gpus,
            cgroup_paths=paths,
            network_of=first_process(Path(settings.cgroup), paths),
            began_at=began_at(pod),
            is_told=True,
            with_hangs=False,
        )

    def _reap(self) -> None:
        """Forget samplers that have ended; one that ended before its pod is started again, some times."""
        for uid, each in list(self.observed.items()):
            if not each.is_gone():
                continue
            if each.until is None and each.starts < _MOST_STARTS:
                each.starts += 1
                with suppress(OSError):
                    each.sampler = self._spawn(each.settings)
            else:
                del self.observed[uid]
                self._over.add(uid)

    def _say(self, about: str, text: str) -> None:
        """Write a line on standard error, once until it changes."""
        if self._said.get(about) != text:
            self._said[about] = text
            sys.stderr.write(f"trainguard-collector: {text}\n")


def first_process(root: Path, paths: Sequence[str]) -> Optional[int]:
    """Return a process of the control group, as this process sees it; None where there is none."""
    base = root if (root / "cgroup.controllers").exists() else root / "memory"
    for path in paths:
        for listed in sorted((base / path).rglob("cgroup.procs")):
            with suppress(OSError, ValueError):
                numbers = [int(each) for each in listed.read_text("ascii").split()]
                if found := [each for each in numbers if each > 0]:
                    return found[0]
    return None


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def namespaces_of(environment: Mapping[str, str]) -> "list[str]":
    return [each.strip() for each in environment.get("TRAINGUARD_NAMESPACES", "").split(",") if each.strip()]


ALIVE = Path(os.environ.get("TRAINGUARD_ALIVE", "/tmp/trainguard-alive"))  # noqa: S108 - in a container of its own
