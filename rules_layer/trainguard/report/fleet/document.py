"""All jobs of a deployment as one typed document: what ``fleet.json`` holds and ``fleet.html`` shows.

Times are ISO 8601 in UTC, shares from 0 to 1, money in the currency of ``totals``. Its JSON schema is published; a
change that a reader must know of raises SCHEMA_VERSION.
"""

import sys
from typing import Any, Literal

import msgspec

from trainguard.report.document import encode_schema, report_schema

SCHEMA_VERSION: Literal["1"] = "1"


class FleetGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some jobs together.

    kind: What they have in common: ``user``, ``team`` or ``project``, by the jobs' tags; ``week``, in which they began;
        ``instance type``; empty of any others.
    name: The owner, the week's Monday, or the instance type; None of jobs of which it is not known.
    judged, with_findings: Jobs of which at least one rule could say something, and those on which one has fired.
    instance_hours: What was paid for, as far as a job's times are known.
    wasted_share: The part of it that the jobs' largest losses make up.
    unpriced: Jobs that have no part in ``spent`` and ``lost``.
    weeks: Of an owner the newest weeks in which its jobs began, in order of time.
    """

    kind: str = ""
    name: str | None = None
    jobs: int
    judged: int
    with_findings: int
    instance_hours: float
    wasted_share: float | None
    spent: float | None
    lost: float | None
    unpriced: int
    weeks: list["FleetGroup"] = []


class FleetTotals(FleetGroup, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All jobs together: how many of them run, how often rules fired, and how many were stopped."""

    active: int
    fires: int
    stops: int
    currency: str


class FleetJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job.

    Findings overlap, so ``wasted_share`` (of the job's paid time) is that of the finding that wasted most, and ``lost``
    its price; None where no finding could say, and where there is none and no rule has judged the use of
    the GPUs; 0 where it has and nothing was found. ``report`` is where its report lies, of
    a job of this machine below the page's folder; ``place`` is where such a job lies, below the report's ``folder``.
    ``link`` is where the tool that recorded it shows it. ``owners`` are by kind. ``summary`` of a job without a verdict
    says why there is none.
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
    owners: dict[str, str] = {}
    platform: str | None = None
    queue: str | None = None


class FleetRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule over all jobs; ``lost`` is what its findings have cost, ``worst`` the job on which they wasted most."""

    rule: str
    jobs_judged: int
    jobs_fired: int
    jobs_in_error: int
    times_fired: int
    lost: float | None
    worst: str | None


class Heat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rules fired where: the jobs with findings, the most wasteful first, with a word for each of ``rules``.

    The word is the finding's severity, ``over`` for one that is over, else the rule's status; empty without a row.
    """

    rules: list[str]
    rows: dict[str, list[str]]
    left_out: int


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


class FleetBrake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator's brake in force on ``what``: ``alerts``, ``evaluation`` or ``stops``.

    ``job`` and ``rule`` None stand for all; ``until`` None is until somebody releases it.
    """

    id: str
    what: str
    job: str | None
    rule: str | None
    since: str
    until: str | None
    by: str
    why: str


class FleetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All jobs of a deployment, or of a folder.

    stack, region: Of a folder its name, and nothing.
    folder: The folder below which the jobs were found; None of a deployment.
    since: Jobs that did nothing after it are left out.
    jobs: The most wasteful first; bounded, ``rest`` are the others.
    rules: Those that fired on most jobs first.
    weeks, instance_types, owners: Weeks in order of time; owners by kind, those that lost most first; bounded. A kind
        that no job names is missing.
    unjudged, stops: Bounded; how many there are in all stands in ``totals`` and ``notes``.
    kernel_profiles: The newest first; bounded.
    brakes: In force when the report was made.
    notes: What was left out, and how numbers are to be read, in sentences.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    generated_at: str
    since: str | None
    stack: str
    region: str
    totals: FleetTotals
    jobs: list[FleetJob]
    rest: FleetGroup
    rules: list[FleetRule]
    heat: Heat
    weeks: list[FleetGroup]
    instance_types: list[FleetGroup]
    unjudged: list[FleetJob]
    stops: list[StopMade]
    notes: list[str]
    folder: str | None = None
    owners: list[FleetGroup] = []
    kernel_profiles: list[FleetKernels] = []
    brakes: list[FleetBrake] = []


IDENTITY = f"urn:trainguard:fleet:{SCHEMA_VERSION}"


def encode_fleet(report: FleetReport) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def fleet_schema() -> dict[str, Any]:
    return {**report_schema(FleetReport, identity=IDENTITY), "title": "Report of all training jobs of a deployment"}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(fleet_schema()))
