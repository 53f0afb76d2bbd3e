"""Runs the functions for a day of a job on the emulator's stores: ``python -m tests.scale.soak [MINUTES] [WARM]``.

The handlers run in this process, as they are deployed, on moto, which is the emulator's DynamoDB, S3 and queues. Their
clock is moved on by a minute as soon as a minute's work is done. rc 1 when items, memory or log bytes an object grow
after the warm-up.
"""

import json
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, s3_backends

from demo.synthesis import minute_of_node
from demo.uploads import RecordedObject
from tests.functional.deployment import BUCKET, JOB, PREFIX, Deployment, event, object_message, ringing
from tests.functional.offline import offline_clients
from tests.functional.tables import JOBS, NODE_STATE, RULE_STATE
from tests.support.held_memory import held_bytes, loaded
from tests.support.printing import Printed, printed
from trainguard.aws.lambda_invocations import payload_of
from trainguard.core.layout import ProfileRoot
from trainguard.formats.profile.keys import system_key

DAY, WARM = 1_440, 360
MINUTE_S, HOUR = 60, 60
UPLOADED_AFTER_S = 5
# Minutes whose objects stay in the bucket: older ones no function asks for, and moto keeps them in memory.
KEPT_MINUTES = 90

NODE = "algo-1"
FUNCTIONS = ("evaluate_objects", "scheduler", "reconcile_job")
MOST_MORE = 1.05
MOST_HELD_BYTES = 64 * 1_024


@dataclass(frozen=True, slots=True)
class Hour:
    """What an hour left: items and bytes of the tables, bytes that the code holds, and what it printed in the hour.

    ``log_bytes`` and ``invocations`` are by function; ``rss_mib`` is the memory of the process, moto's included.
    """

    items: int
    item_bytes: int
    held_bytes: int
    rss_mib: float
    log_bytes: Counter[str]
    invocations: Counter[str]


@dataclass(slots=True)
class _Printed:
    """What functions printed since the last hour."""

    log_bytes: Counter[str] = field(default_factory=Counter)
    invocations: Counter[str] = field(default_factory=Counter)


class Soak:
    """One running job of one node, minute by minute."""

    def __init__(self, deployment: Deployment, output: Printed, *, hour: int = HOUR) -> None:
        self._deployment = deployment
        self._output = output
        self._hour = hour
        self._functions = {name: deployment.function(name) for name in FUNCTIONS}
        self._root = ProfileRoot(PREFIX, JOB)
        self._begun = int(time.time()) // MINUTE_S * MINUTE_S
        self._now = float(self._begun)
        self._minute = 0
        self._printed = _Printed()
        self.hours: list[Hour] = []
        deployment.create_training_job()

    def run(self, minutes: int) -> list[Hour]:
        """Let so many minutes pass, and return all hours so far."""
        with patch("time.time", lambda: self._now):
            for _ in range(minutes):
                self._pass_minute()
                if self._minute % self._hour == 0:
                    self.hours.append(self._noted())
        return self.hours

    def _pass_minute(self) -> None:
        start = self._begun + self._minute * MINUTE_S
        self._minute += 1
        self._now = float(start + MINUTE_S + UPLOADED_AFTER_S)
        key = system_key(self._root, NODE, start)
        body = minute_of_node(cores=2, gpus=1, interval_ms=10_000, minute=start, seed=self._minute, node=NODE)
        self._deployment.put([RecordedObject(key, body, self._now)])
        _forget(system_key(self._root, NODE, start - KEPT_MINUTES * MINUTE_S))
        self._call("evaluate_objects", ringing([object_message(key, at=self._now)]))
        self._now += 5.0
        self._call("scheduler", event("scheduler"))
        for look in self._deployment.world.asked():
            self._call("reconcile_job", json.loads(payload_of(look)))
        tasks = self._deployment.tasks()
        if tasks["Records"]:
            self._call("evaluate_objects", tasks)

    def _call(self, name: str, given: object) -> None:
        before = self._output.taken
        answer = self._functions[name](given).value
        if answer.get("batchItemFailures") or answer.get("failed"):
            raise RuntimeError(f"{name} fails in minute {self._minute}: {answer}")
        self._printed.log_bytes[name] += self._output.taken - before
        self._printed.invocations[name] += 1

    def _noted(self) -> Hour:
        scan = self._deployment.clients.dynamodb.scan
        items = [item for table in (JOBS, NODE_STATE, RULE_STATE) for item in scan(TableName=table)["Items"]]
        said, self._printed = self._printed, _Printed()
        return Hour(
            items=len(items),
            item_bytes=sum(len(repr(item)) for item in items),
            held_bytes=held_bytes([*loaded(), *(function.module for function in self._functions.values())]),
            rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024,
            log_bytes=said.log_bytes,
            invocations=said.invocations,
        )


def _forget(key: str) -> None:
    """Delete an object, which moto otherwise keeps in a list of all that it ever stored."""
    store = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    if (stored := store.get_object(BUCKET, key)) is not None:
        store.delete_object(BUCKET, key)
        FakeKey.instances_tracked.remove(stored)  # type: ignore[attr-defined]  # its metaclass makes the list
        stored.dispose()


@contextmanager
def soaking(*, hour: int = HOUR) -> Iterator[Soak]:
    """Deploy the functions, and a job that runs."""
    with ExitStack() as stack:
        output = stack.enter_context(printed())
        stack.enter_context(mock_aws())
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        yield Soak(Deployment(offline_clients(), patched, output), output, hour=hour)


def two_short_hours() -> tuple[list[Hour], int]:
    """Return what two hours of four minutes left, and of how many minutes the bucket keeps the object."""
    with patch(f"{__name__}.KEPT_MINUTES", 3), soaking(hour=4) as soak:
        hours = soak.run(8)
        kept = FakeKey.instances_tracked  # type: ignore[attr-defined]  # its metaclass makes the list
        return hours, len([key for key in kept if "/system/" in key.name])


def grown(hours: list[Hour], warm: int) -> list[str]:
    """Return what is larger at the end than after the first ``warm`` hours."""
    before, last, objects = hours[warm - 1], hours[-1], len(hours) - warm
    early = max(sum(each.log_bytes.values()) for each in hours[:warm])
    late = sum(sum(each.log_bytes.values()) for each in hours[warm:]) / max(1, objects)
    found = []
    if last.items > before.items:
        found.append(f"items: {before.items} after the warm-up, {last.items} at the end")
    if last.item_bytes > MOST_MORE * before.item_bytes:
        found.append(f"bytes of items: {before.item_bytes:,} after the warm-up, {last.item_bytes:,} at the end")
    if last.held_bytes > before.held_bytes + MOST_HELD_BYTES:
        found.append(f"memory: {before.held_bytes:,} bytes after the warm-up, {last.held_bytes:,} at the end")
    if late > MOST_MORE * early:
        found.append(f"log bytes an hour: {early:,} in the warm-up, {late:,.0f} after it")
    return found


def _shown(number: int, hour: Hour) -> str:
    by_function = ", ".join(f"{name} {count / HOUR:,.0f}" for name, count in hour.log_bytes.items())
    called = ", ".join(f"{name} {count}" for name, count in hour.invocations.items())
    return (
        f"hour {number}: {hour.items} items, {hour.item_bytes:,} bytes; the code holds {hour.held_bytes:,} bytes, the "
        f"process {hour.rss_mib:.0f} MiB; {hour.log_bytes.total() / HOUR:,.0f} log bytes an object ({by_function}); "
        f"invocations: {called}"
    )


def main(minutes: int = DAY, warm: int = WARM) -> int:
    """Run, print what each hour left, and return 1 when something has grown."""
    screen = sys.stdout
    with soaking() as soak:
        for number in range(1, minutes // HOUR + 1):
            hours = soak.run(HOUR)
            print(_shown(number, hours[-1]), file=screen, flush=True)
    found = grown(hours, warm // HOUR)
    print("\n".join(found) or "nothing grows")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
