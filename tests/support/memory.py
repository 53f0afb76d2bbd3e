"""The deployment in memory as the project's own tests need it: faults on demand, and the ports of other functions."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.support.faults import Faults
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ExecutionRecord, ReconcileRequest
from trainguard.stack.actions.stop_rate_limit import Stop, admit
from trainguard.testing.memory import services, world
from trainguard.testing.memory.twin import Calls, Twin

DELETE_BATCH_SIZE = 1_000


class MemoryProfileObjects(services.MemoryProfileObjects):
    """Twin of S3ProfileObjects for the report functions, with what a test does to a bucket."""

    def __init__(self, *, faults: Calls, page_size: int = 1000) -> None:
        super().__init__(faults=faults, page_size=page_size)
        self._content_types: dict[tuple[str, str], str] = {}

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        self._content_types[bucket, key] = content_type
        super().put(bucket, key, body, content_type)

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        with self._call("ReportObjects.folders"):
            below = (key.removeprefix(prefix) for key in self._buckets.get(bucket, {}) if key.startswith(prefix))
            found = sorted({name.partition("/")[0] for name in below if "/" in name})
        yield from found

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_BATCH_SIZE):
            with self._call("ReportObjects.delete"):
                for key in keys[start : start + DELETE_BATCH_SIZE]:
                    self._buckets.get(bucket, {}).pop(key, None)
                    self._content_types.pop((bucket, key), None)

    def remove(self, bucket: str, key: str) -> None:
        """Delete an object, as a lifecycle rule would."""
        with self._lock:
            self._buckets.get(bucket, {}).pop(key, None)

    def content_type(self, bucket: str, key: str) -> str:
        """Return the content type that an object was written with."""
        with self._lock:
            return self._content_types[bucket, key]


class MemoryExecutions(services.MemoryExecutions):
    """Twin of StepFunctionsExecutions that says how executions ended, too."""

    def __init__(self, *, faults: Calls) -> None:
        super().__init__(faults=faults)
        self._ended: dict[str, ExecutionRecord] = {}

    def find(self, name: str) -> ExecutionRecord | None:
        with self._call("ExecutionRecords.find"):
            if name not in self._inputs:
                return None
            ended = self._ended.get(name, ExecutionRecord(name, "RUNNING", {}))
            return replace(ended, payload=json.loads(self._inputs[name]))

    def unsuccessful(self, since: float) -> Iterator[ExecutionRecord]:
        with self._call("ExecutionRecords.unsuccessful"):
            ended = [each for each in self._ended.values() if each.status != "SUCCEEDED"]
        for each in ended:
            if (each.ended_at or 0.0) >= since and (record := self.find(each.name)) is not None:
                yield record

    def end(
        self, name: str, status: str = "SUCCEEDED", *, at: float, error: str | None = None, cause: str | None = None
    ) -> None:
        """Let an execution end at ``at``, epoch seconds."""
        with self._lock:
            self._ended[name] = ExecutionRecord(name, status, {}, at, error, cause)


class MemoryReconcileRequests(Twin):
    """Twin of LambdaReconcileRequests; a test drains it, and reconciles the jobs or does not."""

    def __init__(self, *, faults: Calls) -> None:
        super().__init__(faults=faults)
        self._requests: list[ReconcileRequest] = []
        self._refused: set[str] = set()

    def send(self, requests: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        reasons = {}
        for request in requests:
            try:
                with self._call("ReconcileRequests.send"):
                    if request.job in self._refused:
                        raise PortUnavailableError("Lambda", "Invoke", "TooManyRequestsException: ordered")
                    self._requests.append(request)
            except PortUnavailableError as error:
                reasons[request.job] = str(error)
        return reasons

    def refuse(self, job: str) -> None:
        """Take no request of this job from now on."""
        with self._lock:
            self._refused.add(job)

    def drain(self) -> list[ReconcileRequest]:
        """Take all requests that were sent, oldest first."""
        with self._lock:
            taken, self._requests = self._requests, []
            return taken


class MemoryStopBudget(Twin):
    """Twin of DynamoStopBudget."""

    def __init__(self, *, faults: Calls) -> None:
        super().__init__(faults=faults)
        self._stops: dict[str, Stop] = {}

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        with self._call("StopBudget.take"):
            granted = admit(self._stops, fire_id, job, now=now, limit=limit)
            if granted is not None:
                self._stops = granted
            return granted is not None


class MemoryJournal(services.MemoryJournal):
    """Twin of PowertoolsJournal that adds up what it has."""

    def __init__(self) -> None:
        super().__init__()
        self._times: list[tuple[str, float]] = []

    def measure(self, what: str, seconds: float) -> None:
        with self._lock:
            self._times.append((what, seconds))

    @property
    def times(self) -> tuple[tuple[str, float], ...]:
        """Every measured time in seconds, in order."""
        with self._lock:
            return tuple(self._times)

    @property
    def totals(self) -> Counter[str]:
        """Sum of the amounts of each thing that was counted."""
        totals: Counter[str] = Counter()
        for entry in self.entries:
            totals[entry.what] += entry.amount
        return totals


class MemoryWorld(world.MemoryWorld):
    """A deployment's stores and services in memory, whose calls fail as ``faults`` say."""

    faults: Faults
    objects: MemoryProfileObjects
    executions: MemoryExecutions
    reports: MemoryExecutions
    captures: MemoryExecutions
    journal: MemoryJournal

    def __init__(self) -> None:
        super().__init__(Faults())
        self.objects = MemoryProfileObjects(faults=self.faults)
        self.executions = MemoryExecutions(faults=self.faults)
        self.reports = MemoryExecutions(faults=self.faults)
        self.captures = MemoryExecutions(faults=self.faults)
        self.journal = MemoryJournal()
        self.reconcile_requests = MemoryReconcileRequests(faults=self.faults)
