"""The core's ports beside its `stores`; aws/ holds an adapter of each, testing/memory.py a twin of those that judge."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

import msgspec

from trainguard.core.brakes import NO_BRAKES, BrakeList
from trainguard.core.records import OUTSIDE_ARN, JobStatus
from trainguard.core.stores import Bookkeeping, Jobs, NodeStates, RuleStates


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A listed object; ``last_modified`` on S3's clock, epoch seconds, ``size`` in bytes; ``etag`` may be empty."""

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

    ``profile_uri`` is ``ProfilerConfig.S3OutputPath``, a tag's value, or ``DebugHookConfig.S3OutputPath``; the profile
    lies in ``<profile_uri>/<job>/profiler-output/``. ``file_fault`` is why the file of a job outside SageMaker cannot
    be used; nothing else is known then. ``resources`` are ``<kind>/<id>``. ``platform`` is what runs the job:
    ``sagemaker``, ``slurm``, …; ``queue`` is where it waited there. ``time_limit_s``, in seconds, is that of
    ``StoppingCondition``, ``total_steps`` what a hyperparameter says.
    """

    job: str
    arn: str
    status: JobStatus
    secondary_status: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    profiling_interval_ms: int | None = None
    framework_profiling: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    profile_uri: str | None = None
    profiler_rules: tuple[RuleConfiguration, ...] = ()
    debugger_rules: tuple[RuleConfiguration, ...] = ()
    tuning_job: str | None = None
    file_fault: str | None = None
    run_links: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    platform: str | None = None
    queue: str | None = None
    metric_definitions: tuple[tuple[str, str], ...] = ()
    time_limit_s: float | None = None
    total_steps: int | None = None

    @property
    def is_outside(self) -> bool:
        """Whether SageMaker does not know the job: its own file describes it."""
        return self.arn.startswith(OUTSIDE_ARN)


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What a job outside SageMaker runs on; ``kind`` is ``batch-job``, ``instance``, ``workload`` or ``node``.

    ``status`` is the service's word, ``started_at`` in epoch seconds. ``objection`` is what else stands against a stop,
    as the rest of a sentence about it. On a cluster ``action`` is what its owner allows, to the resource ``target``.
    """

    kind: str
    identity: str
    tags: Mapping[str, str]
    status: str
    runs: bool
    started_at: float | None
    objection: str | None = None
    action: str = ""
    target: str | None = None


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 1:
        raise ValueError(f"range of {length} bytes from {start}, expected at least 1 byte from 0 on")


class ByteStream(AbstractContextManager["ByteStream"], Protocol):
    """An object's bytes, read from the front; a context manager that gives its connection back."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; empty at the end. Raises PortUnavailableError as `get` does."""


class Files(Protocol):
    """The files of one place; a name is relative to it, with slashes."""

    def get(self, name: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes + 1`` bytes: one more says "too large". Raises ObjectMissingError."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes, empty beyond the end; raises ValueError for a bad range, and as `get` does."""

    def open_stream(self, name: str) -> ByteStream:
        """Open a file of any size to be read from the front; raises as `get` does."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        """Iterate over the names that begin with ``prefix`` and are greater than ``start_after``, in UTF-8 order."""


class ReadableObjects(Protocol):
    """The objects of all buckets, to read."""

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes + 1`` bytes; raises ObjectMissingError, PortUnavailableError."""

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes, empty beyond the end; raises ValueError for a bad range, and as `get` does."""

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        """Open an object of any size to be read from the front; raises as `get` does."""

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the keys under ``prefix`` greater than ``start_after``, in UTF-8 order, page by page."""


class ProfileObjects(ReadableObjects, Protocol):
    """The objects of all buckets, to read, write and delete."""

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole."""

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        """Iterate over the names of the folders directly under ``prefix``, which ends in a slash, in UTF-8 order."""

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete objects, missing ones too; raises PortUnavailableError when any was kept."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The objects of a bucket below a key prefix, which ends in a slash or is empty, as `Files`."""

    objects: ReadableObjects
    bucket: str
    prefix: str

    def get(self, name: str, max_bytes: int) -> bytes:
        return self.objects.get(self.bucket, self.prefix + name, max_bytes)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.objects.get_range(self.bucket, self.prefix + name, start, length)

    def open_stream(self, name: str) -> ByteStream:
        return self.objects.open_stream(self.bucket, self.prefix + name)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        after = self.prefix + start_after if start_after else ""
        for each in self.objects.list(self.bucket, self.prefix + prefix, after):
            yield replace(each, key=each.key.removeprefix(self.prefix))


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """An execution; ``status`` is Step Functions' word, ``ended_at`` epoch seconds, None while it runs."""

    name: str
    status: str
    payload: Mapping[str, object]
    ended_at: float | None = None
    error: str | None = None
    cause: str | None = None


class ExecutionRecords(Protocol):
    """A state machine's executions; Step Functions keeps them for 90 days after their end."""

    def find(self, name: str) -> ExecutionRecord | None:
        """Return an execution by its name, or None."""

    def unsuccessful(self, since: float) -> Iterator[ExecutionRecord]:
        """Iterate over executions that failed, timed out or were aborted at ``since`` (epoch seconds) or later."""


class Executions(Protocol):
    """Starts executions of a state machine."""

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        """Start an execution; False when one of that name exists already, which is success too."""


class TrainingJobs(Protocol):
    """What SageMaker knows of training jobs."""

    def describe(self, job: str) -> TrainingJobDescription | None:
        """Return the job with its tags, or None when SageMaker does not know it."""


class SettingDocuments(Protocol):
    """The deployment's documents of settings."""

    @property
    def default(self) -> str:
        """Name of the document that holds for every job."""

    @property
    def path(self) -> str:
        """Beginning of the names of the documents that a job may name, slash included."""

    def read(self, name: str) -> str | None:
        """Return a document, or None when there is none; raises PortUnavailableError when it cannot be read now."""


@dataclass(frozen=True, slots=True)
class StreamTask:
    """A request to flush a silent node or close it; one of another ``generation`` than the job's asks nothing."""

    job: str
    node: str
    stream: str
    action: str
    flush_before: float | None = None
    generation: int = 0


class TaskQueue(Protocol):
    """The queue in front of the evaluators."""

    def send(self, tasks: Sequence[StreamTask]) -> None:
        """Enqueue tasks; raises PortUnavailableError when any of them was not taken."""


class ReconcileRequest(msgspec.Struct, frozen=True):
    """A request to reconcile a job at ``at``, epoch seconds; SageMaker is asked in one of ``stale_every``."""

    job: Annotated[str, msgspec.Meta(min_length=1)]
    at: float
    stale_every: Annotated[int, msgspec.Meta(ge=1)]


class ReconcileRequests(Protocol):
    """Starts the evaluation of jobs, each in its own invocation."""

    def send(self, requests: Sequence[ReconcileRequest]) -> Mapping[str, str]:
        """Send every request; return, by job, why one was not taken."""


class SourcePolls(Protocol):
    """Starts polls of the sources that jobs name, each in its own invocation."""

    def ask(self, job: str, at: float) -> None:
        """Ask for a poll at ``at``, epoch seconds; raises PortUnavailableError when it was not taken."""


class Journal(Protocol):
    """Metrics and log lines of a function."""

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        """Count ``what``, and log one line with ``where``: job, node, key, field, reason."""

    def measure(self, what: str, seconds: float) -> None:
        """Record a duration or an age."""


@dataclass(frozen=True, kw_only=True)
class JobServices:
    """The ports by which a job is registered, and its streams are asked to close."""

    jobs: Jobs
    nodes: NodeStates
    executions: Executions
    training_jobs: TrainingJobs
    tasks: TaskQueue
    journal: Journal
    settings: SettingDocuments


@dataclass(frozen=True, kw_only=True)
class Services(JobServices):
    """The ports of one function; ``polls`` is None where the deployment reads no sources of jobs.

    ``brakes`` returns the operators' brakes, as far as they are known.
    """

    rows: RuleStates
    bookkeeping: Bookkeeping
    objects: ReadableObjects
    reports: Executions
    captures: Executions
    polls: SourcePolls | None = None
    brakes: Callable[[], BrakeList] = lambda: NO_BRAKES


@dataclass(frozen=True, slots=True)
class Timing:
    """Time: ``now`` in epoch seconds, ``pause(attempt)`` with jitter; ``has_time`` False leaves the rest to later."""

    now: Callable[[], float]
    pause: Callable[[int], None]
    has_time: Callable[[], bool]
