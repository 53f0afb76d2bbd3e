"""The other ports in memory: buckets with a clock that tests set, executions, training jobs, queues, the journal."""

import hashlib
import heapq
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType

from trainguard.aws.dynamodb.stored_form import frozen_record
from trainguard.core.errors import ObjectMissingError, PortUnavailableError
from trainguard.core.ports import (
    ListedObject,
    NodeTask,
    TrainingJobDescription,
    check_range,
)
from trainguard.core.records import execution_input
from trainguard.testing.memory.twin import Calls, Twin


class MemoryByteStream:
    """Twin of S3ByteStream: the object as it was when it was opened."""

    def __init__(self, body: bytes, faults: Calls) -> None:
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

    def __init__(self, *, faults: Calls, page_size: int = 1000) -> None:
        super().__init__(faults=faults)
        self.now = 0.0
        self._page_size = page_size
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}

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
        del content_type
        with self._call("ProfileObjects.put"):
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            entry = ListedObject(key, self.now, len(body), etag)
            self._buckets.setdefault(bucket, {})[key] = (entry, bytes(body))

    def _body(self, bucket: str, key: str) -> bytes:
        with self._lock:
            held = self._buckets.get(bucket, {}).get(key)
        if held is None:
            raise ObjectMissingError(bucket, key)
        return held[1]


TASK_BATCH_SIZE = 10
_EXECUTION_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


class MemoryExecutions(Twin):
    """Twin of StepFunctionsExecutions; remembers every execution by its name."""

    def __init__(self, *, faults: Calls) -> None:
        super().__init__(faults=faults)
        self._inputs: dict[str, str] = {}

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        document = execution_input(payload)
        with self._call("Executions.start"):
            if not _EXECUTION_NAME.fullmatch(name):
                raise PortUnavailableError("StepFunctions", "StartExecution", f"InvalidName: {name!r}")
            if name in self._inputs:
                return False
            self._inputs[name] = document
            return True

    @property
    def started(self) -> dict[str, dict[str, object]]:
        """Payload of each execution by name, in the order of their starts."""
        with self._lock:
            return {name: json.loads(document) for name, document in self._inputs.items()}


class MemoryTrainingJobs(Twin):
    """Twin of SageMakerTrainingJobs; knows the jobs that a test describes."""

    def __init__(self, *, faults: Calls) -> None:
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

    def __init__(self, *, faults: Calls) -> None:
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

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        with self._lock:
            self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        """Take no note of times."""

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything that was counted, in order."""
        with self._lock:
            return tuple(self._entries)


DEFAULT_SETTINGS = "/TrainGuard/default-settings"
SETTINGS_PATH = "/TrainGuard/settings/"
DEPLOYED_DEFAULT = '{"evaluate": "all"}'
"""A stack with a bucket of its own begins with this."""


class MemorySettingDocuments(Twin):
    """Twin of SsmSettingDocuments; a test puts documents and removes them."""

    default = DEFAULT_SETTINGS
    path = SETTINGS_PATH

    def __init__(self, *, faults: Calls) -> None:
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
