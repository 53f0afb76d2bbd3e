"""What the core asks of the world beside its `stores`; adapters/ holds an AWS adapter and an in-memory twin of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from trainguard.records import OUTSIDE_ARN, JobStatus
from trainguard.stores import Jobs, NodeStates, RuleStates


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing shows it; ``last_modified`` in epoch seconds on S3's clock, ``size`` in bytes.

    ``etag`` changes with what the object holds; empty where nobody says it.
    """

    key: str
    last_modified: float
    size: int
    etag: str = ""


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

    ``profile_uri`` is ``ProfilerConfig.S3OutputPath``, or what a tag says in its place, or else
    ``DebugHookConfig.S3OutputPath``: the profile lies in
    ``<profile_uri>/<job>/profiler-output/``. ``profiler_rules`` are its ``ProfilerRuleConfigurations``,
    ``debugger_rules`` its ``DebugRuleConfigurations``. ``tuning_job`` is the name in ``TuningJobArn``: the tuning job
    that the job is one of. ``metric_definitions`` are names and regular expressions of metrics in its log.
    ``file_fault`` is why the file of a job that SageMaker does not know cannot be used; it says nothing else then.
    ``run_links`` are the pages of its run by tool (`trainguard.run_links`).
    ``resources`` are what a job outside SageMaker says that it runs on: ``batch-job/<id>`` or ``instance/<id>``.
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
    run_links: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    metric_definitions: tuple[tuple[str, str], ...] = ()

    @property
    def is_outside(self) -> bool:
        """Whether SageMaker does not know the job: this is what its own file says."""
        return self.arn.startswith(OUTSIDE_ARN)


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What a job outside SageMaker runs on, as its service describes it now.

    Attributes
    ----------
    kind : str
        ``batch-job`` or ``instance``.
    identity : str
    tags : mapping of str to str
    status : str
        In the service's word; ``runs`` says whether that is running.
    started_at : float or None
        Since when it runs, epoch seconds.
    objection : str or None
        What else stands against a stop, as the rest of a sentence about it.
    """

    kind: str
    identity: str
    tags: Mapping[str, str]
    status: str
    runs: bool
    started_at: float | None
    objection: str | None = None


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
    """A request to an evaluator without an S3 object: flush a silent node, or close it at the job's end.

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
    """Starts the evaluation of jobs, each in its own invocation."""

    def send(self, looks: Sequence[JobLook]) -> Mapping[str, str]:
        """Ask for every look, whatever becomes of the others; return, by job, why one was not taken."""
        ...


class SourcePolls(Protocol):
    """Starts polls of the sources that jobs name, each in its own invocation."""

    def ask(self, job: str, at: float) -> None:
        """Ask for a poll at ``at``, epoch seconds; raises PortUnavailableError when it was not taken."""
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
    """The world, as one function or command sees it.

    ``executions`` handle fires, ``reports`` make full reports, ``captures`` judge captures of kernel traces.
    ``polls`` is None where the deployment reads no sources of jobs.
    """

    jobs: Jobs
    nodes: NodeStates
    rows: RuleStates
    objects: ProfileObjects
    executions: Executions
    reports: Executions
    captures: Executions
    training_jobs: TrainingJobs
    tasks: TaskQueue
    journal: Journal
    settings: SettingDocuments
    polls: SourcePolls | None = None


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
