"""Step Functions, SageMaker, SQS, settings and metrics in memory, as far as TrainGuard uses them."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainguard.aws.stored_form import frozen_record
from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ExecutionRecord, NodeTask, ReconcileRequest, TrainingJobDescription
from trainguard.core.records import execution_input
from trainguard.testing.memory.faults import Faults

TASK_BATCH_SIZE = 10
_EXECUTION_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


class MemoryExecutions:
    """Twin of StepFunctionsExecutions and StepFunctionsRecords; remembers every execution by its name."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._inputs: dict[str, str] = {}
        self._ended: dict[str, ExecutionRecord] = {}

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        """Start an execution; False when one of that name exists already."""
        document = execution_input(payload)
        with self._faults.call("Executions.start"), self._lock:
            if not _EXECUTION_NAME.fullmatch(name):
                raise PortUnavailableError("StepFunctions", "StartExecution", f"InvalidName: {name!r}")
            if name in self._inputs:
                return False
            self._inputs[name] = document
            return True

    def find(self, name: str) -> ExecutionRecord | None:
        """Return an execution by its name, or None."""
        with self._faults.call("ExecutionRecords.find"), self._lock:
            if name not in self._inputs:
                return None
            ended = self._ended.get(name, ExecutionRecord(name, "RUNNING", {}))
            return replace(ended, payload=json.loads(self._inputs[name]))

    def unsuccessful(self, since: float) -> Iterator[ExecutionRecord]:
        """Iterate over executions that failed, timed out or were aborted at ``since`` (epoch seconds) or later."""
        with self._faults.call("ExecutionRecords.unsuccessful"), self._lock:
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


class MemoryTrainingJobs:
    """Twin of SageMakerTrainingJobs; knows the jobs that a test describes."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._descriptions: dict[str, TrainingJobDescription] = {}

    def describe(self, job: str) -> TrainingJobDescription | None:
        """Return the job with its tags, or None when it is not known."""
        with self._faults.call("TrainingJobs.describe"), self._lock:
            return self._descriptions.get(job)

    def set(self, description: TrainingJobDescription) -> None:
        """Let the job be known as described from now on."""
        with self._lock:
            self._descriptions[description.job] = frozen_record(description)

    def forget(self, job: str) -> None:
        """Let the job be unknown from now on."""
        with self._lock:
            self._descriptions.pop(job, None)


class MemoryTaskQueue:
    """Twin of SqsTaskQueue; a test drains it."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._tasks: list[NodeTask] = []

    def send(self, tasks: Sequence[NodeTask]) -> None:
        """Enqueue tasks, ten at a time."""
        for start in range(0, len(tasks), TASK_BATCH_SIZE):
            with self._faults.call("TaskQueue.send"), self._lock:
                self._tasks += tasks[start : start + TASK_BATCH_SIZE]

    def drain(self) -> list[NodeTask]:
        """Take all tasks out of the queue, oldest first."""
        with self._lock:
            taken, self._tasks = self._tasks, []
            return taken


class MemoryReconcileRequests:
    """Twin of LambdaReconcileRequests; a test drains it, and makes the looks or does not."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._looks: list[ReconcileRequest] = []
        self._refused: set[str] = set()

    def send(self, looks: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        """Accept every look that no fault refuses; return, by job, why one was not accepted."""
        reasons = {}
        for look in looks:
            try:
                with self._faults.call("ReconcileRequests.send"), self._lock:
                    if look.job in self._refused:
                        raise PortUnavailableError("Lambda", "Invoke", "TooManyRequestsException: ordered")
                    self._looks.append(look)
            except PortUnavailableError as error:
                reasons[look.job] = str(error)
        return reasons

    def refuse(self, job: str) -> None:
        """Take no look at this job from now on."""
        with self._lock:
            self._refused.add(job)

    def drain(self) -> list[ReconcileRequest]:
        """Take all looks that were asked for, oldest first."""
        with self._lock:
            taken, self._looks = self._looks, []
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
        """Remember what happened."""
        with self._lock:
            self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        """Remember a time."""
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


class MemorySettingDocuments:
    """Twin of SsmSettingDocuments; a test puts documents and removes them."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._documents = {DEFAULT_SETTINGS: DEPLOYED_DEFAULT}

    @property
    def default(self) -> str:
        """Name of the document that holds for every job."""
        return DEFAULT_SETTINGS

    @property
    def path(self) -> str:
        """Beginning of the names of the documents that a job may name, slash included."""
        return SETTINGS_PATH

    def read(self, name: str) -> str | None:
        """Return a document, or None when there is none."""
        with self._faults.call("SettingDocuments.read"), self._lock:
            return self._documents.get(name)

    def put(self, name: str, document: str) -> None:
        """Store the document."""
        with self._lock:
            self._documents[name] = document

    def remove(self, name: str) -> None:
        """Remove the document."""
        with self._lock:
            self._documents.pop(name, None)
