"""What the three tables hold: one frozen dataclass for each kind of item."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.core.evaluation_interval import EVALUATION_EVERY_S
from trainguard.core.finding import WHOLE_JOB, Finding, Patience, Severity, finding_in, flat, severity_rank
from trainguard.core.finding import AlertKind as AlertKind
from trainguard.core.finding import JobStatus as JobStatus
from trainguard.core.finding import Status as Status
from trainguard.core.job_policy import MOST_NODES_EACH_MINUTE, JobPolicy, reached_limits
from trainguard.core.layout import ProfileRoot
from trainguard.core.timestamps import epoch_of, iso_time

JOB_NODE = WHOLE_JOB
JOB_STREAM = "job"

# The family whose streams and rules are stored by their bare names.
FIRST_FAMILY = "profiler"

_BARE_STREAMS = ("system", "framework")
_STREAM = re.compile(r"[a-z][a-z0-9-]{0,39}(?:/[a-z][a-z0-9-]{0,39})?")
# Begins the stand-in for the ARN of a job that SageMaker does not know.
OUTSIDE_ARN = "unknown:"


_UNIT_TITLES = {"all-workers": "all workers", "scalar-files": "scalar files", "all-ranks": "all ranks"}


def unit_title(unit: str) -> str:
    return _UNIT_TITLES.get(unit, unit)


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Names one item of NodeState: one unit's stream of one family, or the job's own item (``*#job``).

    ``node`` is a node, a worker or a rank. ``stream`` is ``system`` or ``framework`` for the family ``profiler``, and
    the family's name for others, with ``/<part>`` behind it where a unit has several streams.
    """

    job: str
    node: str
    stream: str

    @property
    def node_kind(self) -> str:
        """Sort key of the item, for example ``algo-3#system`` or ``rank-7#kernels``."""
        return f"{self.node}#{self.stream}"

    @property
    def family(self) -> str:
        return FIRST_FAMILY if self.stream in _BARE_STREAMS else self.stream.partition("/")[0]

    @property
    def is_own(self) -> bool:
        return self.stream == JOB_STREAM

    @classmethod
    def own(cls, job: str) -> "StreamKey":
        return cls(job, JOB_NODE, JOB_STREAM)

    @classmethod
    def parse(cls, job: str, node_kind: str) -> "StreamKey":
        """Read a sort key back; raises ValueError for a foreign one."""
        node, _, stream = node_kind.rpartition("#")
        if not node or not _STREAM.fullmatch(stream):
            raise ValueError(f"NodeKind {node_kind!r} does not end in # and a stream, for example #system")
        return cls(job, node, stream)


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A fire, or its follow-up, that must start exactly one execution.

    ``fire_id`` names the fire that an entry of any ``kind`` is about. ``enqueued_at`` is the watermark at which the
    rule fired, epoch seconds; ``finding`` is as it was then. ``lasted_s`` is event time.
    """

    fire_id: str
    episode: int
    enqueued_at: float
    finding: Finding
    sent: bool = False
    kind: AlertKind = AlertKind.FIRE
    previous_severity: str | None = None
    lasted_s: float | None = None

    @property
    def alert_id(self) -> str:
        """Names the alert and the outbox entry: the fire's name, with a follow-up's kind."""
        if self.kind is AlertKind.ESCALATION:
            return f"{self.fire_id}-{self.finding.severity}"
        if self.kind is AlertKind.CAUSE:
            return f"{self.fire_id}-cause"
        if self.kind is AlertKind.CLEARED:
            return f"{self.fire_id}-cleared"
        return self.fire_id


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One item of NodeState; ``version`` is 0 until it is stored, ``state`` is encoded with ``codec``.

    ``cursors`` maps a lane (``minute`` for system metrics, one a process and file kind for framework events) to the
    last applied position, ``pending`` an object key to its position. ``watermark_s`` is the event time in epoch seconds
    up to which the rules have judged. ``generation`` is that of the job's registration.
    """

    key: StreamKey
    version: int = 0
    cursors: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    state: bytes = b""
    codec: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    outbox: Mapping[str, OutboxEntry] = field(default_factory=dict)
    watermark_s: float | None = None
    closed: bool = False
    expires_at: int | None = None
    generation: int = 0

    @property
    def unsent(self) -> tuple[OutboxEntry, ...]:
        """Outbox entries whose execution is not known to have started, oldest first."""
        entries = (entry for entry in self.outbox.values() if not entry.sent)
        return tuple(sorted(entries, key=lambda entry: (entry.enqueued_at, entry.fire_id)))


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The newest decision on a stop, epoch seconds; ``made`` None: unknown whether SageMaker took the call."""

    decision: str
    why: str
    at: float | None = None
    fire_id: str | None = None
    made: bool | None = None


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One item of RuleState: what a person reads about a rule on a job, or on one node of it.

    ``finding`` has a severity, an advice and a cost while the rule has fired, and keeps its episodes afterwards;
    ``earlier_episodes`` counts those before them. ``quantity`` and ``unit`` are of ``measured`` and ``threshold``; None
    where nothing was measured or a number has no dimension. ``affected_percent`` (of the judged time, or of the
    evaluations) is there while the rule has fired; ``wasted_percent``, of the nodes' paid time, stays. The fire path
    alone writes the fields of `FIRE_PATH`: ``action_at`` in epoch seconds, the others None until there is one.
    """

    job: str
    finding: Finding
    status: Status
    quantity: str | None = None
    unit: str | None = None
    worst: str | None = None
    data_points: int = 0
    progress: Patience | None = None
    affected_percent: float | None = None
    wasted_percent: float | None = None
    violations: int = 0
    times_fired: int = 0
    evaluated_through: float | None = None
    fired_at: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, float | int | str | None] = field(default_factory=dict)
    expires_at: int | None = None
    generation: int = 0
    earlier_episodes: int = 0
    fire_id: str | None = None
    action: str | None = None
    action_at: float | None = None
    alert_id: str | None = None
    report_uri: str | None = None
    stop: StopRecord | None = None

    @property
    def patience(self) -> str | None:
        return None if self.progress is None else self.progress.words

    @property
    def rule(self) -> str:
        return self.finding.rule

    @property
    def node(self) -> str | None:
        return self.finding.node

    @property
    def target(self) -> str:
        return self.rule if self.node is None else f"{self.rule}#{self.node}"

    @property
    def debugger_status(self) -> str:
        """The status in the managed service's words: a rule that ever fired has found an issue."""
        if self.status is Status.FIRED or self.times_fired > 0:
            return "IssuesFound"
        if self.status is Status.ERROR:
            return "Error"
        if self.status in {Status.DISABLED, Status.NOT_APPLICABLE} or self.expires_at is not None:
            return "NoIssuesFound"
        return "InProgress"


FIRE_PATH = ("fire_id", "action", "action_at", "alert_id", "report_uri", "stop")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One item of Jobs: the job as SageMaker describes it and its configuration; times are epoch seconds.

    ``job`` is SageMaker's name, or that of its place where SageMaker does not know it. ``rule_settings`` holds
    ``<Rule>_<parameter>`` as given. ``stop_allowed`` is for readers: the decision to stop asks SageMaker. ``episodes``
    counts, for each rule, the episodes that have ended. ``last_object_at`` follows the furthest watermark of the nodes,
    to the minute. ``rules_elsewhere`` maps configured rules that TrainGuard does not evaluate to the reason.
    ``close_asks`` and ``close_asked_at`` are about requests to close the streams of an ended job. ``left_at`` is when
    silence was taken for the end of a job that never reported one; later data open it again. ``generation`` counts
    registrations: state of an earlier one is not the job's. ``asked_at`` is when objects last made SageMaker be asked
    about an unknown job. ``training_rules`` are those that the owner named, also ``all``; None leaves the choice to
    parameters and defaults. ``resources`` are ``<kind>/<id>``. ``other_streams`` counts streams
    of units that SageMaker does not name. ``braked`` says since when and why an operator's brake holds the evaluation
    back; None where none does. ``platform`` is what runs the job, ``queue`` where it waited there. ``outlook`` says
    when the job will end, as it was forecast last: it is ended ``time_limit_s`` seconds after its start, and takes
    ``total_steps``; None where that is unknown. ``canary`` marks the stack's own job of SageMaker's.
    """

    job: str
    arn: str
    bucket: str
    prefix: str
    status: JobStatus = JobStatus.UNKNOWN
    secondary_status: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    profiling_interval_ms: int | None = None
    framework_expected: bool = False
    rule_settings: Mapping[str, str] = field(default_factory=dict)
    stop_allowed: bool = False
    episodes: Mapping[str, int] = field(default_factory=dict)
    active: bool = True
    closing: bool = False
    last_object_at: float | None = None
    expires_at: int | None = None
    policy: JobPolicy = field(default_factory=JobPolicy)
    setting_sources: Mapping[str, str] = field(default_factory=dict)
    setting_faults: tuple[str, ...] = ()
    rules_elsewhere: Mapping[str, str] = field(default_factory=dict)
    rule_places: Mapping[str, str] = field(default_factory=dict)
    tuning_job: str | None = None
    file_fault: str | None = None
    close_asks: int = 0
    close_asked_at: float | None = None
    left_at: float | None = None
    generation: int = 0
    asked_at: float | None = None
    training_rules: tuple[str, ...] | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    run_links: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    platform: str | None = None
    queue: str | None = None
    other_streams: int = 0
    streams_left_out: bool = False
    polled_fast: bool = True
    braked: str | None = None
    outlook: str | None = None
    time_limit_s: float | None = None
    total_steps: int | None = None
    canary: bool = False

    @property
    def root(self) -> ProfileRoot:
        return ProfileRoot.of_job(self.prefix, self.job)

    def goes_on(self, written_at: float | None) -> bool:
        """Whether a job that was left has written since, at ``written_at`` (epoch seconds on S3's clock)."""
        return self.left_at is not None and not self.active and written_at is not None and written_at > self.left_at

    @property
    def is_evaluated_in_turn(self) -> bool:
        """Whether the job is so large that each node waits for its turn, whatever its rules say."""
        return (self.instance_count or 0) > MOST_NODES_EACH_MINUTE

    @property
    def evaluation_every_s(self) -> float:
        """How often a node's system metrics are evaluated, seconds; of a large job at least EVALUATION_EVERY_S."""
        chosen = self.policy.evaluation_every_s
        return max(chosen, EVALUATION_EVERY_S) if self.is_evaluated_in_turn else chosen

    @property
    def is_outside(self) -> bool:
        return self.arn.startswith(OUTSIDE_ARN)

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of limits, the job's own file and its settings, a sentence each."""
        limits = reached_limits(streams_left_out=self.streams_left_out, episodes=self.episodes)
        return (*limits, *(() if self.file_fault is None else (self.file_fault,)), *self.setting_faults)


# What SageMaker allows, but for a random search with a raised quota.
MOST_TUNED_JOBS = 750


@dataclass(frozen=True, slots=True)
class TunedJob:
    """One job in a tuning job's item; ``findings`` counts the rules that have fired, ``rule`` is the most severe."""

    status: JobStatus
    finished: bool = False
    findings: int = 0
    rule: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class TuningJobRecord:
    """A hyperparameter tuning job in Jobs; ``more`` says that there are jobs beyond the first ``MOST_TUNED_JOBS``."""

    name: str
    jobs: Mapping[str, TunedJob] = field(default_factory=dict)
    more: bool = False
    expires_at: int | None = None

    @property
    def finished(self) -> int:
        return sum(job.finished for job in self.jobs.values())

    @property
    def with_findings(self) -> int:
        return sum(job.findings > 0 for job in self.jobs.values())

    @property
    def worst_first(self) -> tuple[tuple[str, TunedJob], ...]:
        """The jobs by highest severity, then by number of findings, then by name."""

        def order(named: tuple[str, TunedJob]) -> tuple[int, int, str]:
            name, job = named
            return -severity_rank(job.severity), -job.findings, name

        return tuple(sorted(self.jobs.items(), key=order))


_FIELDS = {
    "kind": "kind",
    "fireId": "fire_id",
    "episode": "episode",
    "previousSeverity": "previous_severity",
    "lastedS": "lasted_s",
}

_AT = "firedAt"


def entry_fields(entry: OutboxEntry) -> dict[str, object]:
    columns = {name: getattr(entry, field) for name, field in _FIELDS.items()}
    own = {"kind": entry.kind.value, "alertId": entry.alert_id, _AT: iso_time(entry.enqueued_at)}
    return columns | own | flat(entry.finding)


def entry_in(document: Mapping[str, Any]) -> OutboxEntry:
    """Return the entry in an execution's input; raises msgspec.ValidationError where a field is missing or wrong."""
    columns = {field: document[name] for name, field in _FIELDS.items() if name in document}
    if _AT in document:
        try:
            columns["enqueued_at"] = epoch_of(document[_AT])
        except (TypeError, ValueError) as fault:
            raise msgspec.ValidationError(f"{_AT}: {fault}") from fault
    return msgspec.convert({**columns, "finding": finding_in(document)}, OutboxEntry)


def execution_input(payload: Mapping[str, object]) -> str:
    """Return the input document of an execution; raises ValueError or TypeError for what JSON cannot hold."""
    return json.dumps(dict(payload), ensure_ascii=False, allow_nan=False)
