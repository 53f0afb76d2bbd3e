"""All jobs of a deployment as one typed document: what ``fleet.json`` holds and ``fleet.html`` shows.

Times are ISO 8601 in UTC, shares from 0 to 1, money in the currency of ``totals``. Its JSON schema is published; a
change that a reader must know of raises SCHEMA_VERSION.
"""

import sys
from typing import Any, Literal

import msgspec

from trainguard.report.job.schema import encode_schema, report_schema

SCHEMA_VERSION: Literal["1"] = "1"


class FleetTotals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All jobs together.

    ``judged`` are jobs of which at least one rule could say something, ``with_findings`` those on which one has fired.
    ``instance_hours`` is what was paid for, as far as a job's times are known; ``wasted_share`` is the part of it that
    the jobs' largest losses make up. ``unpriced`` jobs have no part in ``spent`` and ``lost``.
    """

    jobs: int
    active: int
    judged: int
    with_findings: int
    fires: int
    stops: int
    instance_hours: float
    wasted_share: float | None
    spent: float | None
    lost: float | None
    currency: str
    unpriced: int


class FleetJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job.

    Findings overlap, so ``wasted_share`` (of the job's paid time) is that of the finding that wasted most, and ``lost``
    its price; None where no finding could say, and where there is none and no rule has judged the use of
    the GPUs; 0 where it has and nothing was found. ``place`` is where a job of this machine lies,
    below the page's folder; ``link`` is where the tool that recorded it shows it.
    """

    job: str
    status: str
    active: bool
    instance_type: str | None
    instance_count: int | None
    started_at: str | None
    instance_hours: float | None
    wasted_share: float | None
    lost: float | None
    spent: float | None
    severity: str | None
    fired: list[str]
    summary: str
    report: str | None
    console: str | None
    place: str | None = None
    link: str | None = None


class FleetRest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that are not listed one by one."""

    jobs: int
    with_findings: int
    lost: float | None


class FleetRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule over all jobs; ``lost`` is what its findings have cost, ``worst`` the job on which they wasted most."""

    rule: str
    jobs_judged: int
    jobs_fired: int
    jobs_in_error: int
    times_fired: int
    lost: float | None
    worst: str | None


class HeatRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job's line in the table of jobs and rules: a word for each of ``rules``, in their order.

    The word is the finding's severity, ``over`` for one that is over, else the rule's status; empty without a row.
    """

    job: str
    cells: list[str]


class Heat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rules fired where: the jobs with findings, the most wasteful first."""

    rules: list[str]
    rows: list[HeatRow]
    left_out: int


class FleetWeek(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that began in one week; ``monday`` is its first day."""

    monday: str
    jobs: int
    with_findings: int
    share: float
    wasted_share: float | None
    spent: float | None
    lost: float | None


class FleetInstanceType(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs of one instance type; ``instance_type`` None stands for those of which it is not known."""

    instance_type: str | None
    jobs: int
    with_findings: int
    instance_hours: float
    wasted_share: float | None
    spent: float | None
    lost: float | None


class OwnerWeek(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner's jobs that began in one week; ``monday`` is its first day."""

    monday: str
    jobs: int
    with_findings: int
    spent: float | None
    lost: float | None


class FleetOwner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs of one user, team or project, by the jobs' tags.

    ``kind`` is ``user``, ``team`` or ``project``; ``name`` None stands for the jobs that name no owner of the kind.
    ``weeks`` are the newest in which jobs of the owner began, in order of time.
    """

    kind: str
    name: str | None
    jobs: int
    with_findings: int
    instance_hours: float
    wasted_share: float | None
    spent: float | None
    lost: float | None
    weeks: list[OwnerWeek]


class Unjudged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of which no rule could say anything, and why."""

    job: str
    status: str
    why: str


class StopMade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training job that was stopped by a rule's fire."""

    job: str
    rule: str
    at: str | None
    action: str


class FleetKernels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel profiles of a job of the stack, or a profile below a folder.

    ``status`` is the job's, or that of the profile: ``judged``, ``judged in part``, ``not judged``, ``unreadable``.
    ``why`` says what keeps it from being ``judged``. ``findings`` are rules without ``kernels/``; ``gain_share`` is the
    most that one of them can win of the time. ``framework``, ``traces`` and ``gain_share`` of a job of the stack are
    those of its newest capture; None of one that an earlier version judged. ``place`` and ``page`` are below the
    folder; of a job of the stack ``page`` is the console's page of ``kernels.html``.
    """

    job: str
    status: str
    recorded_at: str | None
    severity: str | None
    findings: list[str]
    framework: str | None = None
    traces: int | None = None
    gain_share: float | None = None
    why: str = ""
    place: str | None = None
    page: str | None = None


class FleetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All jobs of a deployment, or of a folder.

    Attributes
    ----------
    stack, region : str
        Of a folder its name, and nothing.
    folder : str or None
        The folder below which the jobs were found; None of a deployment.
    since : str or None
        Jobs that did nothing after it are left out.
    jobs : list of FleetJob
        The most wasteful first; bounded, ``rest`` are the others.
    rules : list of FleetRule
        Those that fired on most jobs first.
    weeks : list of FleetWeek
        In order of time.
    owners : list of FleetOwner
        By kind, those that lost most first; bounded. A kind that no job names is missing.
    unjudged, stops : list
        Bounded; how many there are in all stands in ``totals`` and ``notes``.
    kernel_profiles : list of FleetKernels
        The newest first; bounded.
    notes : list of str
        What was left out, and how numbers are to be read, in sentences.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    generated_at: str
    since: str | None
    stack: str
    region: str
    totals: FleetTotals
    jobs: list[FleetJob]
    rest: FleetRest
    rules: list[FleetRule]
    heat: Heat
    weeks: list[FleetWeek]
    instance_types: list[FleetInstanceType]
    unjudged: list[Unjudged]
    stops: list[StopMade]
    notes: list[str]
    folder: str | None = None
    owners: list[FleetOwner] = []
    kernel_profiles: list[FleetKernels] = []


IDENTITY = f"urn:trainguard:fleet:{SCHEMA_VERSION}"


def encode_fleet(report: FleetReport) -> bytes:
    """Encode the fleet's document, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def fleet_schema() -> dict[str, Any]:
    """Return the schema of ``fleet.json``."""
    return {**report_schema(FleetReport, identity=IDENTITY), "title": "Report of all training jobs of a deployment"}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(fleet_schema()))
