"""The other ports in memory: buckets with a clock that tests set, executions, training jobs, queues, the journal."""

import hashlib
import heapq
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType

from trainguard.aws.dynamodb.stored_form import frozen_record
from trainguard.core.errors import ObjectMissingError, PortUnavailableError
from trainguard.core.ports import (
    ExecutionRecord,
    ListedObject,
    NodeTask,
    ReconcileRequest,
    TrainingJobDescription,
    check_range,
)
from trainguard.core.records import execution_input
from trainguard.testing.memory.faults import Faults, Twin

DELETE_BATCH_SIZE = 1_000


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


class MemoryProfileObjects(Twin):
    """Twin of S3ProfileObjects; ``page_size`` in keys, ``now`` is the clock of ``last_modified``, epoch seconds."""

    def __init__(self, *, faults: Faults, page_size: int = 1000) -> None:
        super().__init__(faults=faults)
        self.now = 0.0
        self._page_size = page_size
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}
        self._content_types: dict[tuple[str, str], str] = {}

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        with self._faults.call("ProfileObjects.get"):
            return self._body(bucket, key)[: max_bytes + 1]

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._faults.call("ProfileObjects.get_range"):
            return self._body(bucket, key)[start : start + length]

    def open_stream(self, bucket: str, key: str) -> "MemoryByteStream":
        with self._faults.call("ProfileObjects.open_stream"):
            return MemoryByteStream(self._body(bucket, key), self._faults)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate in UTF-8 order, page by page; as with S3, a page shows the bucket at its request."""
        while True:
            with self._call("ProfileObjects.list"):
                # The order of code points, which Python compares, is the order of their UTF-8 bytes.
                names = (key for key in self._buckets.get(bucket, {}) if key.startswith(prefix) and key > start_after)
                found = heapq.nsmallest(self._page_size + 1, names)
                page = [self._buckets[bucket][name][0] for name in found[: self._page_size]]
            yield from page
            if len(found) <= self._page_size:
                return
            start_after = page[-1].key

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        with self._call("ProfileObjects.put"):
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            entry = ListedObject(key, self.now, len(body), etag)
            self._buckets.setdefault(bucket, {})[key] = (entry, bytes(body))
            self._content_types[bucket, key] = content_type

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

    def _body(self, bucket: str, key: str) -> bytes:
        with self._lock:
            held = self._buckets.get(bucket, {}).get(key)
        if held is None:
            raise ObjectMissingError(bucket, key)
        return held[1]

    def remove(self, bucket: str, key: str) -> None:
        """Delete an object, as a lifecycle rule would."""
        with self._lock:
            self._buckets.get(bucket, {}).pop(key, None)

    def content_type(self, bucket: str, key: str) -> str:
        """Return the content type that an object was written with."""
        with self._lock:
            return self._content_types[bucket, key]


TASK_BATCH_SIZE = 10
_EXECUTION_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


class MemoryExecutions(Twin):
    """Twin of StepFunctionsExecutions; remembers every execution by its name."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self._inputs: dict[str, str] = {}
        self._ended: dict[str, ExecutionRecord] = {}

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        document = execution_input(payload)
        with self._call("Executions.start"):
            if not _EXECUTION_NAME.fullmatch(name):
                raise PortUnavailableError("StepFunctions", "StartExecution", f"InvalidName: {name!r}")
            if name in self._inputs:
                return False
            self._inputs[name] = document
            return True

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

    @property
    def started(self) -> dict[str, dict[str, object]]:
        """Payload of each execution by name, in the order of their starts."""
        with self._lock:
            return {name: json.loads(document) for name, document in self._inputs.items()}


class MemoryTrainingJobs(Twin):
    """Twin of SageMakerTrainingJobs; knows the jobs that a test describes."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self._descriptions: dict[str, TrainingJobDescription] = {}

    def describe(self, job: str) -> TrainingJobDescription | None:
        with self._call("TrainingJobs.describe"):
            return self._descriptions.get(job)

    def set(self, description: TrainingJobDescription) -> None:
        """Let the job be known as described from now on."""
        with self._lock:
            self._descriptions[description.job] = frozen_record(description)

    def forget(self, job: str) -> None:
        """Let the job be unknown from now on."""
        with self._lock:
            self._descriptions.pop(job, None)


class MemoryTaskQueue(Twin):
    """Twin of SqsTaskQueue; a test drains it."""

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self._tasks: list[NodeTask] = []

    def send(self, tasks: Sequence[NodeTask]) -> None:
        for start in range(0, len(tasks), TASK_BATCH_SIZE):
            with self._call("TaskQueue.send"):
                self._tasks += tasks[start : start + TASK_BATCH_SIZE]

    def drain(self) -> list[NodeTask]:
        """Take all tasks out of the queue, oldest first."""
        with self._lock:
            taken, self._tasks = self._tasks, []
            return taken


class MemoryReconcileRequests(Twin):
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


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One call of ``count``."""

    what: str
    amount: int
    where: "Mapping[str, object]"


class MemoryJournal:
    """Twin of PowertoolsJournal, without faults: it calls no service."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: list[JournalEntry] = []
        self._times: list[tuple[str, float]] = []

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        with self._lock:
            self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        with self._lock:
            self._times.append((what, seconds))

    @property
    def times(self) -> tuple[tuple[str, float], ...]:
        """Every measured time in seconds, in order."""
        with self._lock:
            return tuple(self._times)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything that was counted, in order."""
        with self._lock:
            return tuple(self._entries)

    @property
    def totals(self) -> Counter[str]:
        """Sum of the amounts of each thing that was counted."""
        totals: Counter[str] = Counter()
        for entry in self.entries:
            totals[entry.what] += entry.amount
        return totals


DEFAULT_SETTINGS = "/TrainGuard/default-settings"
SETTINGS_PATH = "/TrainGuard/settings/"
DEPLOYED_DEFAULT = '{"evaluate": "all"}'
"""A stack with a bucket of its own begins with this."""


class MemorySettingDocuments(Twin):
    """Twin of SsmSettingDocuments; a test puts documents and removes them."""

    default = DEFAULT_SETTINGS
    path = SETTINGS_PATH

    def __init__(self, *, faults: Faults) -> None:
        super().__init__(faults=faults)
        self._documents = {DEFAULT_SETTINGS: DEPLOYED_DEFAULT}

    def read(self, name: str) -> str | None:
        with self._call("SettingDocuments.read"):
            return self._documents.get(name)

    def put(self, name: str, document: str) -> None:
        with self._lock:
            self._documents[name] = document

    def remove(self, name: str) -> None:
        with self._lock:
            self._documents.pop(name, None)
