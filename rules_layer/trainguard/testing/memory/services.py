"""The other ports in memory, buckets with a clock that the kit sets among them, and all twins together."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

from trainguard.aws.dynamodb.stored_form import frozen_record
from trainguard.core.errors import ObjectMissingError, PortUnavailableError
from trainguard.core.ports import (
    ByteStream,
    ListedObject,
    NodeTask,
    Services,
    TrainingJobDescription,
    check_range,
)
from trainguard.core.records import execution_input
from trainguard.testing.memory.node_states import MemoryJobs, MemoryNodeStates, MemoryRuleStates


class MemoryProfileObjects:
    """Twin of S3ProfileObjects; ``now`` is the clock of ``last_modified``, epoch seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        return self._body(bucket, key)[: max_bytes + 1]

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self._body(bucket, key)[start : start + length]

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        return BytesIO(self._body(bucket, key))

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        held = self._buckets.get(bucket, {})
        # The order of code points, which Python compares, is the order of their UTF-8 bytes.
        names = sorted(key for key in held if key.startswith(prefix) and key > start_after)
        return iter([held[name][0] for name in names])

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        del content_type
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        entry = ListedObject(key, self.now, len(body), etag)
        self._buckets.setdefault(bucket, {})[key] = (entry, bytes(body))

    def _body(self, bucket: str, key: str) -> bytes:
        held = self._buckets.get(bucket, {}).get(key)
        if held is None:
            raise ObjectMissingError(bucket, key)
        return held[1]


_EXECUTION_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


class MemoryExecutions:
    """Twin of StepFunctionsExecutions; remembers every execution by its name."""

    def __init__(self) -> None:
        self._inputs: dict[str, str] = {}

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        document = execution_input(payload)
        if not _EXECUTION_NAME.fullmatch(name):
            raise PortUnavailableError("StepFunctions", "StartExecution", f"InvalidName: {name!r}")
        if name in self._inputs:
            return False
        self._inputs[name] = document
        return True

    @property
    def started(self) -> dict[str, dict[str, object]]:
        """Payload of each execution by name, in the order of their starts."""
        return {name: json.loads(document) for name, document in self._inputs.items()}


class MemoryTrainingJobs:
    """Twin of SageMakerTrainingJobs; knows the jobs that a test describes."""

    def __init__(self) -> None:
        self._descriptions: dict[str, TrainingJobDescription] = {}

    def describe(self, job: str) -> TrainingJobDescription | None:
        return self._descriptions.get(job)

    def set(self, description: TrainingJobDescription) -> None:
        """Let the job be known as described from now on."""
        self._descriptions[description.job] = frozen_record(description)


class MemoryTaskQueue:
    """Twin of SqsTaskQueue; the kit drains it."""

    def __init__(self) -> None:
        self._tasks: list[NodeTask] = []

    def send(self, tasks: Sequence[NodeTask]) -> None:
        self._tasks += tasks

    def drain(self) -> list[NodeTask]:
        """Take all tasks out of the queue, oldest first."""
        taken, self._tasks = self._tasks, []
        return taken


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One call of ``count``."""

    what: str
    amount: int
    where: "Mapping[str, object]"


class MemoryJournal:
    """Twin of PowertoolsJournal."""

    def __init__(self) -> None:
        self._entries: list[JournalEntry] = []

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        """Take no note of times."""

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything that was counted, in order."""
        return tuple(self._entries)


DEFAULT_SETTINGS = "/TrainGuard/default-settings"
SETTINGS_PATH = "/TrainGuard/settings/"
DEPLOYED_DEFAULT = '{"evaluate": "all"}'
"""A stack with a bucket of its own begins with this."""


class MemorySettingDocuments:
    """Twin of SsmSettingDocuments."""

    default = DEFAULT_SETTINGS
    path = SETTINGS_PATH

    def __init__(self) -> None:
        self._documents = {DEFAULT_SETTINGS: DEPLOYED_DEFAULT}

    def read(self, name: str) -> str | None:
        return self._documents.get(name)


class MemoryWorld:
    """A deployment's stores and services in memory.

    Examples
    --------
    >>> world = MemoryWorld()
    >>> world.objects.now = 1_700_000_000.0
    >>> world.objects.put("profiles", "a.json", b"{}", "application/json")
    >>> world.services.objects.get("profiles", "a.json", max_bytes=10)
    b'{}'
    """

    def __init__(self) -> None:
        self.jobs = MemoryJobs()
        self.nodes = MemoryNodeStates()
        self.rows = MemoryRuleStates()
        self.objects = MemoryProfileObjects()
        self.executions = MemoryExecutions()
        self.reports = MemoryExecutions()
        self.captures = MemoryExecutions()
        self.training_jobs = MemoryTrainingJobs()
        self.tasks = MemoryTaskQueue()
        self.journal = MemoryJournal()
        self.settings = MemorySettingDocuments()

    @property
    def services(self) -> Services:
        return Services(
            jobs=self.jobs,
            nodes=self.nodes,
            rows=self.rows,
            objects=self.objects,
            executions=self.executions,
            reports=self.reports,
            captures=self.captures,
            training_jobs=self.training_jobs,
            tasks=self.tasks,
            journal=self.journal,
            settings=self.settings,
        )
