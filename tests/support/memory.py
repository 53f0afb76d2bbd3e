"""The deployment in memory as the project's own tests need it: faults on demand, and the ports of other functions."""

import heapq
import inspect
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Protocol

from tests.support.faults import Faults
from trainguard.aws.dynamodb.stored_form import stored_row
from trainguard.core import ports, stores
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ExecutionRecord, ListedObject, ReconcileRequest, StreamTask, check_range
from trainguard.core.records import RuleRow, StreamKey, StreamRecord
from trainguard.stack.actions.marks import AlertMark, Channel, Claim
from trainguard.stack.actions.stop_rate_limit import Stop, take
from trainguard.stack.organisation.stop_limit import Admission, StopRequest, admission
from trainguard.testing import memory

DELETE_BATCH_SIZE = 1_000
TASK_BATCH_SIZE = 10


class Faulty:
    """A twin whose calls go wrong as its ``faults`` say; thread-safe, its conditional writes are atomic."""

    def __init_subclass__(cls, port: type | None = None, apart: Collection[str] = ()) -> None:
        """Surround the calls of a port, without those that are several requests or none."""
        if port is None:
            return
        for owner in port.__mro__[: port.__mro__.index(Protocol)]:
            for name, declared in vars(owner).items():
                if callable(declared) and not name.startswith("_") and name not in (*vars(cls), *apart):
                    setattr(cls, name, _surrounded(f"{owner.__name__}.{name}", getattr(cls, name)))

    def __init__(self, *, faults: Faults, **more: Any) -> None:
        super().__init__(**more)
        self._faults = faults
        self._lock = threading.RLock()

    @contextmanager
    def _call(self, operation: str, *, item: str = "", version: int = 0) -> Iterator[None]:
        with self._faults.call(operation, item=item, version=version), self._lock:
            yield


def _surrounded(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generate(self: Faulty, *args: Any, **given: Any) -> Iterator[Any]:
            with self._call(operation):
                found = list(method(self, *args, **given))
            yield from found

        return generate

    @wraps(method)
    def call(self: Faulty, *args: Any, **given: Any) -> Any:
        with self._call(operation):
            return method(self, *args, **given)

    return call


class MemoryNodeStates(Faulty, memory.MemoryNodeStates, port=stores.NodeStates):
    """Twin of DynamoNodeStates."""

    def save(self, record: StreamRecord) -> StreamRecord:
        item = f"NodeState/{record.key.job}/{record.key.node_kind}"
        with self._call("NodeStates.save", item=item, version=record.version):
            return super().save(record)

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        for alert_id in alert_ids:
            with self._call("NodeStates.mark_sent"):
                super().mark_sent(key, [alert_id])

    def remove(self, key: StreamKey) -> None:
        """Delete an item, as an operator may."""
        self._records.pop(key, None)


class MemoryRuleStates(Faulty, memory.MemoryRuleStates, port=stores.RuleStates):
    """Twin of DynamoRuleStates."""

    def publish(self, rows: Sequence[RuleRow]) -> None:
        for row in rows:
            with self._call("RuleStates.publish"):
                super().publish([row])

    def record(self, row: RuleRow) -> None:
        """Write a row with the fire path's fields, as the state machine does after a fire."""
        self._rows[row.job, row.target] = stored_row(row)


class MemoryJobs(Faulty, memory.MemoryJobs, port=stores.Jobs):
    """Twin of DynamoJobs."""


class MemoryBookkeeping(Faulty, memory.MemoryBookkeeping, port=stores.Bookkeeping):
    """Twin of DynamoBookkeeping."""


class MemorySentAlerts(Faulty):
    """Twin of DynamoSentAlerts, without the lapse of claims."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self.marks: dict[str, AlertMark] = {}
        self._claimed: set[tuple[str, Channel]] = set()

    def claim(self, alert_id: str, channel: Channel, *, now: float) -> Claim:
        del now
        with self._call("SentAlerts.claim"):
            if channel in self.mark(alert_id).sent:
                return "sent"
            if (alert_id, channel) in self._claimed:
                return "busy"
            self._claimed.add((alert_id, channel))
            return "taken"

    def settle(self, alert_id: str, channel: Channel, *, sent_at: float | None) -> None:
        with self._call("SentAlerts.settle"):
            self._claimed.discard((alert_id, channel))
            if sent_at is not None:
                mark = self.mark(alert_id)
                self.marks[alert_id] = replace(mark, sent=mark.sent | {channel})

    def silence(self, alert_id: str, *, why: str, execution: str, now: float) -> None:
        with self._call("SentAlerts.silence"):
            mark = replace(self.mark(alert_id), silenced=why, silenced_at=now, execution=execution)
            self.marks[alert_id] = mark

    def mark(self, alert_id: str) -> AlertMark:
        return self.marks.get(alert_id, AlertMark(alert_id))

    def silenced(self) -> Iterator[AlertMark]:
        return iter([mark for mark in self.marks.values() if mark.silenced is not None])


class MemoryTrainingJobs(Faulty, memory.MemoryTrainingJobs, port=ports.TrainingJobs):
    """Twin of SageMakerTrainingJobs."""

    def forget(self, job: str) -> None:
        """Let the job be unknown from now on."""
        self._descriptions.pop(job, None)


class MemorySettingDocuments(Faulty, memory.MemorySettingDocuments, port=ports.SettingDocuments):
    """Twin of SsmSettingDocuments; a test puts documents and removes them."""

    def put(self, name: str, document: str) -> None:
        self._documents[name] = document

    def remove(self, name: str) -> None:
        self._documents.pop(name, None)


class MemoryTaskQueue(Faulty, memory.MemoryTaskQueue):
    """Twin of SqsTaskQueue."""

    def send(self, tasks: Sequence[StreamTask]) -> None:
        for start in range(0, len(tasks), TASK_BATCH_SIZE):
            with self._call("TaskQueue.send"):
                super().send(tasks[start : start + TASK_BATCH_SIZE])


class MemoryByteStream:
    """Twin of S3ByteStream: the object as it was when it was opened."""

    def __init__(self, body: bytes, faults: Faults) -> None:
        self._rest = memoryview(body)
        self._faults = faults

    def read(self, size: int, /) -> bytes:
        with self._faults.call("ByteStream.read"):
            taken, self._rest = self._rest[:size], self._rest[size:]
            return bytes(taken)

    def __enter__(self) -> "MemoryByteStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._rest = memoryview(b"")


class MemoryProfileObjects(Faulty, memory.MemoryProfileObjects, port=ports.ProfileObjects, apart=("get_range",)):
    """Twin of S3ProfileObjects for all functions, with what a test does to a bucket; ``page_size`` in keys."""

    def __init__(self, *, faults: Faults, page_size: int = 1000) -> None:
        super().__init__(faults=faults)
        self._page_size = page_size
        self._content_types: dict[tuple[str, str], str] = {}

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._call("ReadableObjects.get_range"):
            return super().get_range(bucket, key, start, length)

    def open_stream(self, bucket: str, key: str) -> MemoryByteStream:
        with self._call("ReadableObjects.open_stream"):
            return MemoryByteStream(self._body(bucket, key), self._faults)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate in UTF-8 order, page by page; as with S3, a page shows the bucket at its request."""
        while True:
            with self._call("ReadableObjects.list"):
                names = (key for key in self._buckets.get(bucket, {}) if key.startswith(prefix) and key > start_after)
                found = heapq.nsmallest(self._page_size + 1, names)
                page = [self._buckets[bucket][name][0] for name in found[: self._page_size]]
            yield from page
            if len(found) <= self._page_size:
                return
            start_after = page[-1].key

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        with self._call("ProfileObjects.put"):
            super().put(bucket, key, body, content_type)
            self._content_types[bucket, key] = content_type

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        with self._call("ProfileObjects.folders"):
            below = (key.removeprefix(prefix) for key in self._buckets.get(bucket, {}) if key.startswith(prefix))
            found = sorted({name.partition("/")[0] for name in below if "/" in name})
        yield from found

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_BATCH_SIZE):
            with self._call("ProfileObjects.delete"):
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


class MemoryExecutions(Faulty, memory.MemoryExecutions, port=ports.Executions):
    """Twin of StepFunctionsExecutions that says how executions ended, too."""

    def __init__(self, *, faults: Faults) -> None:
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


class MemoryReconcileRequests(Faulty):
    """Twin of LambdaInvocations; a test drains it, and reconciles the jobs or does not."""

    def __init__(self, *, faults: Faults) -> None:
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


class MemoryStopBudget(Faulty):
    """Twin of DynamoStopBudget."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self._stops: dict[str, Stop] = {}

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        with self._call("StopBudget.take"):
            granted = take(self._stops, fire_id, job, now=now, limit=limit)
            if granted is not None:
                self._stops = granted
            return granted is not None


class MemoryStopLimit(Faulty):
    """Twin of LambdaStopLimit, and of the central function behind it."""

    def __init__(self, *, faults: Faults, limit: int, now: float = 0.0) -> None:
        super().__init__(faults=faults)
        self.limit, self.now = limit, now
        self._budget = MemoryStopBudget(faults=Faults())

    def ask(self, request: StopRequest) -> Admission:
        with self._call("StopLimit.ask"):
            return admission(request, self._budget, limit=self.limit, now=self.now)


class MemoryJournal(memory.MemoryJournal):
    """Twin of PowertoolsJournal that adds up what it has."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
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
    def totals(self) -> defaultdict[str, Any]:
        """Sum of the amounts of each thing that was counted."""
        totals: defaultdict[str, Any] = defaultdict(int)
        for entry in self.entries:
            totals[entry.what] += entry.amount
        return totals


class MemoryWorld(memory.MemoryWorld):
    """A deployment's stores and services in memory, whose calls fail as ``faults`` say."""

    jobs: MemoryJobs
    nodes: MemoryNodeStates
    rows: MemoryRuleStates
    bookkeeping: MemoryBookkeeping
    objects: MemoryProfileObjects
    executions: MemoryExecutions
    reports: MemoryExecutions
    captures: MemoryExecutions
    training_jobs: MemoryTrainingJobs
    tasks: MemoryTaskQueue
    journal: MemoryJournal
    settings: MemorySettingDocuments

    def __init__(self) -> None:
        super().__init__()
        self.faults = faults = Faults()
        self.jobs = MemoryJobs(faults=faults)
        self.nodes = MemoryNodeStates(faults=faults)
        self.rows = MemoryRuleStates(faults=faults)
        self.bookkeeping = MemoryBookkeeping(faults=faults)
        self.objects = MemoryProfileObjects(faults=faults)
        self.executions = MemoryExecutions(faults=faults)
        self.reports = MemoryExecutions(faults=faults)
        self.captures = MemoryExecutions(faults=faults)
        self.training_jobs = MemoryTrainingJobs(faults=faults)
        self.tasks = MemoryTaskQueue(faults=faults)
        self.reconcile_requests = MemoryReconcileRequests(faults=faults)
        self.journal = MemoryJournal()
        self.settings = MemorySettingDocuments(faults=faults)
        self.alerts = MemorySentAlerts(faults=faults)
