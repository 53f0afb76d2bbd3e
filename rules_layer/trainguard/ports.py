"""What the core asks of the world; adapters/ holds an AWS adapter and an in-memory twin of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from trainguard.records import (
    OUTSIDE_ARN,
    JobRecord,
    JobStatus,
    NodeRecord,
    RuleRow,
    StreamKey,
    TunedJob,
    TuningJobRecord,
)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing shows it; ``last_modified`` in epoch seconds on S3's clock, ``size`` in bytes."""

    key: str
    last_modified: float
    size: int


@dataclass(frozen=True, slots=True)
class RuleConfiguration:
    """An entry of ``ProfilerRuleConfigurations`` or ``DebugRuleConfigurations``; ``place`` is where its report goes."""

    name: str
    image: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    place: str | None = None


@dataclass(frozen=True, slots=True)
class TrainingJobDescription:
    """What DescribeTrainingJob and ListTags say that TrainGuard uses; times in epoch seconds.

    ``profile_uri`` is ``ProfilerConfig.S3OutputPath``, or what a tag says in its place: the profile lies in
    ``<profile_uri>/<job>/profiler-output/``. ``profiler_rules`` are its ``ProfilerRuleConfigurations``,
    ``debugger_rules`` its ``DebugRuleConfigurations``. ``tuning_job`` is the name in ``TuningJobArn``: the tuning job
    that the job is one of. ``file_fault`` is why the file of a job that SageMaker does not know cannot be
    used; it says nothing else then.
    """

    job: str
    arn: str
    status: JobStatus
    secondary_status: str | None
    instance_type: str | None
    instance_count: int | None
    created_at: float | None
    started_at: float | None
    ended_at: float | None
    profiling_interval_ms: int | None
    framework_profiling: bool
    tags: Mapping[str, str]
    profile_uri: str | None = None
    profiler_rules: tuple[RuleConfiguration, ...] = ()
    debugger_rules: tuple[RuleConfiguration, ...] = ()
    tuning_job: str | None = None
    file_fault: str | None = None

    @property
    def is_outside(self) -> bool:
        """Whether SageMaker does not know the job: this is what its own file says."""
        return self.arn.startswith(OUTSIDE_ARN)


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The newest decision on a stop: what it was and why, when (epoch seconds), by which fire.

    ``made`` says whether SageMaker took the call; None while that is not known.
    """

    decision: str
    why: str
    at: float | None = None
    fire_id: str | None = None
    made: bool | None = None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of RuleState whole: what was published, and what the fire path has done since.

    ``action`` is the sentence on what became of the fire, ``action_at`` when, in epoch seconds. ``alert_id`` is None
    while no alert was delivered, ``report_uri`` while no fire's report was written, ``stop`` while none was decided on.
    """

    row: RuleRow
    fire_id: str | None = None
    action: str | None = None
    action_at: float | None = None
    alert_id: str | None = None
    report_uri: str | None = None
    stop: StopRecord | None = None


class NodeStates(Protocol):
    """Store of NodeState items."""

    def load(self, key: StreamKey) -> NodeRecord | None:
        """Return the item as last written (strongly consistent), or None."""
        ...

    def save(self, record: NodeRecord) -> NodeRecord:
        """Write the item if its stored Version is still ``record.version``.

        Returns the record with the new version. Raises StateConflictError when another writer was first (also when
        ``version`` is 0 and the item exists), PortUnavailableError when the store did not answer.
        """
        ...

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        """Mark outbox entries as sent, without moving Version; entries that are gone are ignored."""
        ...

    def of_job(self, job: str) -> list[NodeRecord]:
        """Return all items of a job, ordered by sort key (strongly consistent)."""
        ...


class RuleStates(Protocol):
    """Store of RuleState rows."""

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further (``EvaluatedThrough``).

        A row of a finished job (``expires_at`` is set) is not replaced by one evaluated as far that is not: the tick
        that wrote it was overtaken. A row of an earlier ``generation`` is replaced whole, and never replaces one.

        Attributes that the fire path owns (FireId, Action, ActionAt, AlertId, ReportUri) are left as they are.
        """
        ...

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key."""
        ...

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return those rows of a job that are of no node, ordered by sort key, without reading the others."""
        ...

    def read(self, job: str) -> list[StoredRow]:
        """Return all rows of a job with what the fire path wrote into them, ordered by sort key."""
        ...

    def load(self, job: str, target: str) -> StoredRow | None:
        """Return one row with what the fire path wrote into it (strongly consistent), or None."""
        ...


class Jobs(Protocol):
    """Store of Jobs items."""

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""
        ...

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""
        ...

    def recognise(self, record: JobRecord) -> JobRecord:
        """Put ``record`` in place of the item of a job that SageMaker did not know; return the stored one either way.

        An item with an ARN of SageMaker's stays as it is: another writer was first.
        """
        ...

    def update_status(self, record: JobRecord) -> None:
        """Write status, secondary status, size, times, active, closing, its asks, file_fault and expires_at.

        A status that is final is never replaced by one that is not, and nothing is written to the item of another ARN:
        SageMaker has come to know the job since ``record`` was read.
        """
        ...

    def ask(self, job: str, at: float, every_s: float) -> bool:
        """Take note that SageMaker is asked about the job at ``at``, epoch seconds.

        False, and nothing is written, when it was asked less than ``every_s`` seconds before, or there is no item.
        """
        ...

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""
        ...

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        """Set the rule's episode to ``seen + 1`` if it is still ``seen``; a lost race is not an error.

        Nor is it that the job was registered anew since: the item must be of ``generation``.
        """
        ...

    def active(self) -> list[str]:
        """Names of the jobs that are not closed, in order."""
        ...

    def all(self) -> Iterator[JobRecord]:
        """Iterate over every job, page by page and in no order; what changes meanwhile may show or not.

        Items of tuning jobs are none of them.
        """
        ...

    def upsert_tuned_job(self, name: str, job: str, told: TunedJob, expires_at: int) -> None:
        """Write what is known of one job of a tuning job into the tuning job's item, and let that live as long.

        Other jobs' entries stay as they are. An entry that is finished is never replaced by one that is not. Of a
        tuning job that has ``MOST_TUNED_JOBS`` entries, a further job is not named: its item says that there are more.
        """
        ...

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item (strongly consistent), or None while no job of it was judged."""
        ...


def check_range(start: int, length: int) -> None:
    """Refuse a range of bytes that is none; raises ValueError."""
    if start < 0 or length < 1:
        raise ValueError(f"range of {length} bytes from {start}, expected at least 1 byte from 0 on")


class ByteStream(Protocol):
    """An object's bytes, read from the front; a context manager that gives its connection back."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most ``size``; empty at the end. Raises PortUnavailableError as `get` does."""
        ...

    def __enter__(self) -> "ByteStream":
        """Return the stream."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Give the connection back."""
        ...


class ProfileObjects(Protocol):
    """The objects of a bucket."""

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the object's bytes, at most ``max_bytes + 1`` of them: one more than allowed says "too large".

        Raises ObjectMissingError when it does not exist, PortUnavailableError when S3 did not answer.
        """
        ...

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on; empty when the object ends before ``start``.

        Raises ValueError for a negative ``start`` or a ``length`` below 1, and otherwise as `get` does.
        """
        ...

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        """Open an object of any size to be read from the front; raises as `get` does."""
        ...

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the keys under ``prefix`` greater than ``start_after``, in UTF-8 order, page by page."""
        ...

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole."""
        ...


class ReportObjects(ProfileObjects, Protocol):
    """The objects of a bucket, as who makes a full report needs them."""

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        """Iterate over the names of the folders directly under ``prefix``, which ends in a slash, in UTF-8 order."""
        ...

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete objects; one that does not exist is no fault. Raises PortUnavailableError when any was kept."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """An execution of a state machine that was started.

    ``status`` is Step Functions' word for how it stands: RUNNING, SUCCEEDED, FAILED, TIMED_OUT or ABORTED. ``payload``
    is its input. ``error`` and ``cause`` say why it failed. ``ended_at`` is in epoch seconds; None while it runs.
    """

    name: str
    status: str
    payload: Mapping[str, object]
    ended_at: float | None = None
    error: str | None = None
    cause: str | None = None


class ExecutionRecords(Protocol):
    """What Step Functions keeps of a state machine's executions, for 90 days after their end."""

    def find(self, name: str) -> ExecutionRecord | None:
        """Return an execution by its name, or None."""
        ...

    def unsuccessful(self, since: float) -> Iterator[ExecutionRecord]:
        """Iterate over executions that failed, timed out or were aborted at ``since`` (epoch seconds) or later."""
        ...


class Executions(Protocol):
    """Starts executions of a state machine: the one that handles fires, or the one that makes full reports."""

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        """Start an execution; False when one of that name exists already, which is success too."""
        ...


class TrainingJobs(Protocol):
    """What SageMaker knows of training jobs."""

    def describe(self, job: str) -> TrainingJobDescription | None:
        """Return the job with its tags, or None when SageMaker does not know it."""
        ...


class SettingDocuments(Protocol):
    """The deployment's documents of settings."""

    @property
    def default(self) -> str:
        """Name of the document that holds for every job."""
        ...

    @property
    def path(self) -> str:
        """Beginning of the names of the documents that a job may name, slash included."""
        ...

    def read(self, name: str) -> str | None:
        """Return a document, or None when there is none; raises PortUnavailableError when it cannot be read now."""
        ...


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A request to an evaluator that no S3 object rings for: flush a silent node, or close it at the job's end.

    ``generation`` is that of the job's registration for which it was made: for a later one it asks nothing.
    """

    job: str
    node: str
    stream: str
    action: str
    flush_before: float | None = None
    generation: int = 0


class TaskQueue(Protocol):
    """The queue in front of the evaluators."""

    def send(self, tasks: Sequence[NodeTask]) -> None:
        """Enqueue tasks; raises PortUnavailableError when any of them was not taken."""
        ...


@dataclass(frozen=True, slots=True)
class JobLook:
    """A request to look after one job.

    ``at`` is the time of the tick that asks, epoch seconds, at which the look stands. In one of ``doubted_every`` ticks
    SageMaker is asked about a job that has long been silent, or that was met without it.
    """

    job: str
    at: float
    doubted_every: int


class JobLooks(Protocol):
    """Who looks after jobs, each in an invocation of its own."""

    def send(self, looks: Sequence[JobLook]) -> Mapping[str, str]:
        """Ask for every look, whatever becomes of the others; return, by job, why one was not taken."""
        ...


class StopBudget(Protocol):
    """How many training jobs the deployment may stop within an hour."""

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        """Take one of ``limit`` stops within the hour before ``now`` (epoch seconds); False when none is left.

        ``job`` names one job of all that were ever created. A job, or a fire, that has taken one within that hour has
        taken it: a repeat takes no other. Raises StateConflictError when other fires were first each time.
        """
        ...


class Journal(Protocol):
    """Where what happened is counted and named: metrics and log lines of a function."""

    def count(self, what: str, amount: int = 1, **where: object) -> None:
        """Count ``what`` happened, and log one line that names where: job, node, key, field, reason."""
        ...

    def measure(self, what: str, seconds: float) -> None:
        """Take note of how long something took, or how old it is."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The world, as one function or command sees it; ``executions`` handle fires, ``reports`` make full reports."""

    jobs: Jobs
    nodes: NodeStates
    rows: RuleStates
    objects: ProfileObjects
    executions: Executions
    reports: Executions
    training_jobs: TrainingJobs
    tasks: TaskQueue
    journal: Journal
    settings: SettingDocuments


@dataclass(frozen=True, slots=True)
class Timing:
    """Time, as it comes in from outside.

    Attributes
    ----------
    now : callable
        Epoch seconds.
    pause : callable
        Called with the attempt's number after a conflict; waits with jitter.
    has_time : callable
        Asked between two writes; False leaves the rest to a later delivery.
    """

    now: Callable[[], float]
    pause: Callable[[int], None]
    has_time: Callable[[], bool]
