"""The report of a job as one typed document: what ``report.json`` holds and ``report.html`` shows.

Times are ISO 8601 in UTC unless a field says otherwise. Its JSON schema is published; a change that a reader must know
of raises SCHEMA_VERSION.
"""

from typing import Any, Literal

import msgspec

from trainguard.timeline.shown import Timelines

SCHEMA_VERSION: Literal["2"] = "2"

Scope = Literal["state", "full"]
Parameter = float | int | str | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Three sentences, read first: is the job healthy, what is the one thing to change, what does leaving it cost."""

    health: str
    change: str
    cost: str


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding has cost, and of how much; ``sentence`` says it for people."""

    lost: float
    spent: float
    currency: str
    sentence: str


class FindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that has fired, as it stands among the others.

    ``affected_share`` and ``wasted_share`` are from 0 to 1: of the judged time, of the paid time. ``explained_by``
    names the rule whose finding is the cause of this one.
    """

    rule: str
    severity: str
    score: float
    ongoing: bool
    affected_share: float | None
    wasted_share: float | None
    worst: str | None
    nodes_affected: int
    nodes: int
    reason: str
    advice: str | None
    cost: Money | None
    explained_by: str | None


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What the job has cost so far, or in ``note`` why that is not known."""

    spent: float | None
    currency: str | None
    note: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the job's time: ``duration_s`` seconds, ``share`` (0 to 1) of the job's."""

    start: str
    end: str
    duration_s: float
    share: float | None


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The job as a whole; what is not known is None.

    Attributes
    ----------
    gpus : int
        How many GPUs wrote metrics, all nodes together.
    evaluated_through : str or None
        How far the rules have judged.
    initialization, training_loop, finalization : Span or None
        From the job's start to its first step, from there to the end of its last step, and on to the job's end; None
        for a job without steps.
    steps : int or None
        How many steps its training processes took, all together.
    """

    name: str
    arn: str
    status: str
    instance_type: str | None
    instance_count: int | None
    gpus: int
    started_at: str | None
    ended_at: str | None
    duration_s: float | None
    evaluated_through: str | None
    initialization: Span | None
    training_loop: Span | None
    finalization: Span | None
    steps: int | None


class NodeCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected of one node's stream, and what was missing or not used, by the name of its fault.

    ``share`` is that of the stream's minutes that was applied, 0 to 1; None of a stream without a minute grid.
    """

    node: str
    stream: str
    first_at: str | None
    evaluated_through: str | None
    closed: bool
    share: float | None
    counters: dict[str, int]
    last_fault: str | None


class NotCollected(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the job did not write: what is not known without it, and how to collect it next time."""

    what: str
    unknown: str
    how: str


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's verdict with all that it was made of.

    ``parameters`` are those in force; ``changed`` names those that are not the default. ``recommendation`` is one
    sentence for this case: the advice of a rule that has fired, or what to know of one that has not. ``details`` are
    the rule's own numbers, by node where it judges nodes; the rule's page says what they mean.
    """

    rule: str
    status: str
    severity: str | None
    reason: str
    recommendation: str | None
    measured: float | None
    threshold: float | None
    unit: str | None
    worst: str | None
    times_fired: int
    violations: int
    data_points: int
    fired_at: str | None
    parameters: dict[str, Parameter]
    changed: list[str]
    details: dict[str, Any]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report.

    Attributes
    ----------
    scope : {"state", "full"}
        Made from the rules' state alone, within seconds of a fire; or with the profile read again, with time lines.
    final : bool
        Whether the job has ended and all of it was judged.
    summary : str
        The findings in one sentence, and how many rules judged.
    rules : list of RuleEntry
        Fired ones first, the gravest on top.
    timelines : Timelines or None
        None in scope ``state``.
    """

    schema_version: Literal["2"] = SCHEMA_VERSION
    generated_at: str
    scope: Scope
    final: bool
    healthy: bool
    verdict: Verdict
    summary: str
    fired: list[str]
    findings: list[FindingEntry]
    cost: Spending
    job: JobSummary
    coverage: list[NodeCoverage]
    not_collected: list[NotCollected]
    rules: list[RuleEntry]
    timelines: Timelines | None = None
