"""What a rule has found, as values, and how JSON has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import msgspec

from trainguard.core.text import one_line
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.core.units import (
    counted,
    listed,
    show_duration,
    show_number,
    show_percent,
    show_percentage_points,
    show_step,
)


class Status(StrEnum):
    """What a rule says about a node or a job."""

    WAITING_FOR_DATA = "WAITING_FOR_DATA"
    WARMING_UP = "WARMING_UP"
    OK = "OK"
    FIRED = "FIRED"
    ERROR = "ERROR"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    DISABLED = "DISABLED"

    @property
    def place(self) -> int:
        return _STATUS_PLACES[self]


_STATUS_PLACES = {
    Status.FIRED: 0,
    Status.ERROR: 1,
    Status.OK: 2,
    Status.WARMING_UP: 3,
    Status.WAITING_FOR_DATA: 4,
    Status.NOT_APPLICABLE: 5,
    Status.DISABLED: 6,
}


class AlertKind(StrEnum):
    """What an alert reports.

    A rule fired, its severity rose, its cause is known, it is over; a stop is to come; settings are faulty; a job will
    miss its time limit.
    """

    FIRE = "fire"
    ESCALATION = "escalation"
    CAUSE = "cause"
    CLEARED = "cleared"
    WARNING = "warning"
    NOTICE = "notice"
    DEADLINE = "deadline"

    @property
    def is_of_rule(self) -> bool:
        """Whether it is about a rule of the job, which has a row."""
        return self not in {AlertKind.NOTICE, AlertKind.DEADLINE}


class JobStatus(StrEnum):
    """TrainingJobStatus of DescribeTrainingJob, and Unknown for a job that SageMaker does not know."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_final(self) -> bool:
        return self in {JobStatus.STOPPED, JobStatus.COMPLETED, JobStatus.FAILED}


WHOLE_JOB = "*"

MOST_EPISODES = 8

MOST_FACTS = 12

# A fact of a finding on steps that do not say when they were saved: its time is unknown.
UNTIMED = "untimed_steps"

MOST_NAMES = 16
NAMED_GPUS, NAMED_NODES = 2, 4
LONGEST_NAME = 120
_MINUTE = len("2026-01-31T12:00")
_DAY = len("2026-01-31")


class Severity(StrEnum):
    """How much a finding matters."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return _SEVERITY_RANKS[self]


_SEVERITY_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def severity_rank(severity: Severity | str | None) -> int:
    """Return a severity's rank; -1 for None. Raises ValueError for a word that is no severity."""
    return -1 if severity is None else Severity(severity).rank


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number, or name, that a finding rests on: what was measured, where, and over which time.

    Attributes
    ----------
    name : str
        What the value is, in snake case, for example ``mean_utilization``. A mean is over all samples of its time;
        one over chosen samples says so in its name, for example ``mean_utilization_at_work``.
    value : float, int or str
        In ``unit``. A share is from 0 to 1 and has the unit ``share``, a percentage is from 0 to 100 and has ``%``.
        A time is epoch seconds and has the unit ``time``.
    unit : str
        Empty for a plain count or a name.
    series : str or None
        The recorded series that the value is computed from, for example ``GPUUtilization``.
    node, device : str or None
        Where, for example ``algo-1`` and ``gpu3``; None of what is of all nodes, or of all devices of the node.
    start, end : float or None
        The time that the value is of, epoch seconds, within the job's; ``from`` and ``to`` in JSON.
    threshold : float or None
        What the value was compared with, in the same unit.
    """

    name: str
    value: float | int | str
    unit: str = ""
    series: str | None = None
    node: str | None = None
    device: str | None = None
    start: float | None = msgspec.field(default=None, name="from")
    end: float | None = msgspec.field(default=None, name="to")
    threshold: float | None = None

    @property
    def limit(self) -> "Fact":
        """The threshold as a fact of the same unit; 0 where there is none."""
        return msgspec.structs.replace(self, value=self.threshold or 0.0)

    @property
    def rest(self) -> "Fact":
        return msgspec.structs.replace(self, value=100.0 - float(self.value))

    @property
    def as_step(self) -> str:
        """The value, seconds, as the length of a training step."""
        return show_step(1e6 * float(self.value))

    @property
    def when(self) -> str:
        return clock(self.start, self.end)

    @property
    def span(self) -> str:
        return show_duration((self.end or 0.0) - (self.start or 0.0))

    def __format__(self, noun: str) -> str:
        """Say the value by its unit, or with a noun how many of them it is."""
        if isinstance(self.value, str):
            return self.value
        if noun:
            return counted(round(self.value), noun)
        show = {"s": show_duration, "%": show_percent, "time": clock}.get(self.unit)
        if self.unit == "share":
            return show_percent(100.0 * self.value)
        if self.unit.startswith("points"):
            return show_percentage_points(self.value)
        return (show or show_number)(self.value)


class Patience(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a rule's patience is: ``seen`` of ``needed``, ``streak`` in a row; window times are epoch seconds."""

    seen: int
    needed: int
    counts: str = "points"
    streak: int | None = None
    window_points: int | None = None
    window_start: float | None = None
    window_end: float | None = None

    @property
    def words(self) -> str:
        """For example ``240/1000``; never beyond the end."""
        return f"{min(self.seen, self.needed)}/{self.needed}"


class EpisodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which a finding's condition held.

    Attributes
    ----------
    start : str
        When the condition began, as the data show it; not when the alert went out.
    end : str or None
        The last time at which it held; None while it goes on.
    node : str or None
        The node on which it held; None of several nodes, or of the job as a whole.
    nodes : list of str
        All nodes on which it held; empty for the job as a whole.
    gpus : list of str
        The GPUs on which it held, for example ``gpu3``; of several nodes with the node, ``algo-2/gpu3``. Empty where
        the rule looks at no GPU.
    measured : float or None
        The worst value that the rule measured in it, in the unit of the rule's ``measured``.
    wasted_s : float or None
        Seconds of the nodes' paid time that it cost, all nodes added up; None where the rule cannot say.
    cost : float or None
        The same in money, in ``currency``.
    """

    start: str
    end: str | None
    node: str | None
    nodes: list[str] = msgspec.field(default_factory=list)
    gpus: list[str] = msgspec.field(default_factory=list)
    measured: float | None = None
    wasted_s: float | None = None
    cost: float | None = None
    currency: str | None = None

    @property
    def sentence(self) -> str:
        """Say when and where it was, for example ``2026-01-31 12:00 to 13:10 UTC on algo-1, gpu3``."""
        gpus = listed(self.gpus, NAMED_NODES) if len(self.gpus) <= NAMED_GPUS else f"{len(self.gpus)} GPUs"
        node = [f"on {listed(self.nodes, NAMED_NODES)}"] if self.nodes else []
        where = ", ".join([*node, *([gpus] if gpus else [])])
        return f"{clock_times(self.start, self.end)} {where}".strip()

    @property
    def episode(self) -> "Episode":
        """The episode as a value; raises ValueError where a time is not ISO 8601."""
        return Episode(
            start=epoch_of(self.start),
            end=None if self.end is None else epoch_of(self.end),
            nodes=tuple(self.nodes),
            gpus=tuple(self.gpus),
            measured=self.measured,
            wasted_s=self.wasted_s,
            cost=self.cost,
            currency=self.currency,
        )

    @property
    def lost(self) -> str | None:
        return None if self.cost is None else f"{self.currency} {self.cost:,.2f}"


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of time in which a rule's condition held; times are event time in epoch seconds.

    ``start`` is when the condition began, not when the alert went out; ``end`` is None while it goes on. ``nodes`` is
    empty for the job as a whole; ``gpus`` of several nodes are ``algo-2/gpu3``. ``wasted_s`` is paid node time, all
    nodes added up, ``cost`` the same in ``currency``; None where unknown. Empty ``reason`` and ``advice`` are made of
    the facts.
    """

    start: float
    end: float | None
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    measured: float | None = None
    wasted_s: float | None = None
    cost: float | None = None
    currency: str | None = None
    idle_node: str | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)
    advice: str = field(default="", compare=False)
    kind: str = field(default="", compare=False)
    facts: tuple[Fact, ...] = field(default=(), compare=False)

    @property
    def node(self) -> str | None:
        return self.nodes[0] if len(self.nodes) == 1 else None

    @property
    def plain(self) -> "Episode":
        """The episode with names cut and escaped as an alert or a row holds them."""
        return replace(self, nodes=_plain(self.nodes), gpus=_plain(self.gpus))

    @property
    def sentence(self) -> str:
        return self.entry.sentence

    @property
    def entry(self) -> EpisodeEntry:
        return EpisodeEntry(
            start=iso_time(self.start),
            end=None if self.end is None else iso_time(self.end),
            node=self.node,
            nodes=list(self.nodes),
            gpus=list(self.gpus),
            measured=_rounded(self.measured, 6),
            wasted_s=_rounded(self.wasted_s, 3),
            cost=_rounded(self.cost, 2),
            currency=self.currency,
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says about one node or the whole job (``node`` None).

    ``reason`` is there also where nothing was found; ``severity`` is None then. ``measured`` and ``threshold`` have the
    unit of the rule's measure. ``episodes`` are the newest, oldest first.
    """

    rule: str
    node: str | None
    reason: str
    measured: float | None = None
    threshold: float | None = None
    severity: Severity | None = None
    advice: str | None = None
    cost: str | None = None
    episodes: tuple[Episode, ...] = ()
    finding_kind: str = ""
    facts: tuple[Fact, ...] = ()

    @property
    def held(self) -> tuple[Episode, ...]:
        return () if any(fact.name == UNTIMED for fact in self.facts) else self.episodes

    @property
    def where(self) -> str:
        return WHOLE_JOB if self.node is None else self.node


FINDING_FIELDS = tuple(field.name for field in fields(Finding))


def finding_fields(finding: Finding) -> dict[str, Any]:
    columns = {name: getattr(finding, name) for name in FINDING_FIELDS}
    return columns | {"episodes": [episode.entry for episode in finding.episodes]}


def flat(finding: Finding) -> dict[str, object]:
    """Return a finding's fields as executions and alerts have them: plain values, and ``*`` for the whole job."""
    columns = finding_fields(finding)
    plain = {name: msgspec.to_builtins(columns[name]) for name in ("episodes", "facts")}
    return columns | plain | {"node": finding.where}


def finding_in(document: Mapping[str, Any]) -> Finding:
    """Return the finding that `flat` put into a document; raises msgspec.ValidationError where it is incomplete."""
    columns = {name: document[name] for name in FINDING_FIELDS if name in document}
    if columns.get("node") == WHOLE_JOB:
        columns["node"] = None
    entries = msgspec.convert(columns.pop("episodes", []), list[EpisodeEntry])
    try:
        episodes = tuple(entry.episode for entry in entries)
    except ValueError as fault:
        raise msgspec.ValidationError(f"time of an episode: {fault}") from fault
    return msgspec.convert({**columns, "episodes": episodes}, Finding)


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


def clock_times(start: str, end: str | None) -> str:
    """Say from when to when, both ISO 8601, in UTC to the minute; ``since ...`` where ``end`` is None."""
    first = start[:_MINUTE].replace("T", " ")
    if end is None:
        return f"since {first} UTC"
    last = end[:_MINUTE].replace("T", " ")
    if last == first:
        return f"{first} UTC"
    return f"{first} to {last[_DAY:].strip() if last[:_DAY] == first[:_DAY] else last} UTC"


def clock(start: float | None, end: float | None = None) -> str:
    """Say a time, epoch seconds, by the clock, or from when to when; one that is unknown as 0."""
    return clock_times(iso_time(start or 0.0), iso_time((start if end is None else end) or 0.0))


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one_line(name, LONGEST_NAME) for name in names[:MOST_NAMES])
