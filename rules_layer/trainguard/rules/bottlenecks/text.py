"""The kinds, facts, details and words that the rules on bottlenecks share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from trainguard.core.finding import Fact, Status, clock
from trainguard.core.units import counted, show_duration, show_percent
from trainguard.render.details import Details
from trainguard.rules.bottlenecks.state import GOOD_GPUS, Contrast, MinuteCount, Share, Tally
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.warm_up import WarmUpKind, node_fact, undecided_text

MINUTE_S = 60.0


class BottleneckKind(StrEnum):
    """Findings: by points in which GPUs wait, or by minutes in which they are slow.

    ``_cheap`` cost too little, ``_over`` were not seen of late, in ``_alike`` the cores were as full while the GPUs
    worked.
    """

    WAITS = "waits"
    SLOW = "slow"
    WAITS_CHEAP = "waits_cheap"
    SLOW_CHEAP = "slow_cheap"
    WAITS_OVER = "waits_over"
    SLOW_OVER = "slow_over"
    WAITS_ALIKE = "waits_alike"
    SLOW_ALIKE = "slow_alike"

    @property
    def by_points(self) -> bool:
        return self.value.startswith("waits")

    def ending(self, how: str) -> "BottleneckKind":
        return BottleneckKind(f"{self.value}_{how}")


@dataclass(frozen=True, slots=True)
class CoreSeries:
    """A recorded series of the cores, and the names of its two measures as facts; the first is the mean, percent."""

    name: str
    level: str
    peak: str
    peak_unit: str


def share_facts(share: Share, view: NodeView, threshold: float, recent: range | None) -> Iterator[Fact]:
    """Yield in how many points it was seen; ``recent`` are the epoch minutes they are of, None of the whole job."""
    start, end = view.first_active_at, view.watermark_s
    if recent is not None and end is not None:
        # The newest minute that counts may lie before an idle run that goes on.
        start, end = max(MINUTE_S * recent.start, start or 0.0), min(MINUTE_S * recent.stop, end)
    where = {"start": start, "end": end}
    on = {"series": "GPUUtilization", "threshold": threshold / 100.0}
    yield node_fact("share_of_samples", share.percent / 100.0, view, unit="share", **on, **where)
    yield node_fact("samples_found", share.hits, view, **where)
    yield node_fact("samples", share.judged, view, **where)
    if recent is not None:
        yield node_fact("window", MINUTE_S * len(recent), view, unit="s", **where)


def core_facts(count: MinuteCount, series: CoreSeries, view: NodeView, *, newest: bool) -> Iterator[Fact]:
    start = max(MINUTE_S * count.minute, view.first_sample_at or 0.0) if newest else None
    name = "mean_utilization_newest_slow" if newest else "mean_utilization_slow"
    on = {"series": "GPUUtilization", "threshold": GOOD_GPUS}
    yield node_fact(name, count.mean(count.gpu), view, unit="%", start=start, **on)
    for of, total, unit in ((series.level, count.level, "%"), (series.peak, count.peak, series.peak_unit)):
        yield node_fact(of, count.mean(total), view, unit=unit, series=series.name, start=start)


def contrast_facts(contrast: Contrast, series: CoreSeries, view: NodeView, limit: float) -> Iterator[Fact]:
    for name, count in zip(("while_working", "while_low"), contrast, strict=True):
        if count is not None:
            on = {"series": series.name, "threshold": limit, "start": None}
            yield node_fact(f"core_at_limit_{name}", count.hot_share, view, unit="share", **on)
            mean = count.mean(count.gpu)
            yield node_fact(f"mean_utilization_{name}", mean, view, unit="%", series="GPUUtilization", start=None)


class ComparedClass(msgspec.Struct, frozen=True):
    """A class of events: its share of the time in minutes with and without bottlenecks, percent."""

    name: str = msgspec.field(name="class")
    with_bottlenecks_percent: float | None
    without_percent: float | None


class ComparedPhase(msgspec.Struct, frozen=True):
    """A phase of events, as a class of them."""

    name: str = msgspec.field(name="phase")
    with_bottlenecks_percent: float | None
    without_percent: float | None


class ComparedMinutes(msgspec.Struct, frozen=True):
    """What the framework did in minutes with and without bottlenecks, what differs most first."""

    minutes_with_bottlenecks: int
    minutes_without: int
    classes: list[ComparedClass]
    phases: list[ComparedPhase]


class BottleneckPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snapshot with a bottleneck: epoch seconds, how many GPUs were low, the highest core in percent."""

    time: float
    gpus_low: int
    cpu_max: float | None = None
    io_wait_max: float | None = None


class BottleneckDetails(Details, frozen=True):
    """A node; ``judged`` and ``bottlenecked`` of several nodes add up to the pooled share."""

    judged: int
    bottlenecked: int
    share_percent: float
    recent_judged: int
    recent_share_percent: float
    low_gpu_utilization: int
    bottlenecks: list[BottleneckPoint]
    framework: ComparedMinutes | None = None
    slow_share_percent: float = 0.0
    recent_slow_share_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    whole: Share
    recent: Share


def details_of(tally: Tally, points: Evidence, minutes: Evidence, peak: str) -> BottleneckDetails:
    return BottleneckDetails(
        judged=tally.judged,
        bottlenecked=tally.bottlenecked,
        share_percent=points.whole.percent,
        recent_judged=points.recent.judged,
        recent_share_percent=points.recent.percent,
        low_gpu_utilization=tally.low_gpu,
        bottlenecks=[BottleneckPoint(time, low, **{peak: core}) for time, low, core in tally.newest],
        slow_share_percent=minutes.whole.percent,
        recent_slow_share_percent=minutes.recent.percent,
    )


@dataclass(frozen=True, slots=True)
class CoreWords:
    clause: str
    cause: Callable[[FactSheet], str]
    cause_of_minutes: Callable[[FactSheet], str]
    at_limit: Callable[[FactSheet], str]
    remedy: Callable[[FactSheet], str]

    def __call__(self, sheet: FactSheet) -> Words:
        if sheet.kind in tuple(WarmUpKind):
            return undecided_text(sheet)
        if not sheet.kind:
            return Words("", None, self.clause)
        kind = BottleneckKind(sheet.kind)
        reason = _points(sheet, self) if kind.by_points else _minutes(sheet, self)
        reason += _why_not(sheet, kind, self)
        advice = _advice(sheet, self) if sheet.status is Status.FIRED else None
        return Words(reason, advice, "" if kind.value.endswith("alike") else self.clause)


def _counted(sheet: FactSheet) -> tuple[str, str]:
    share, window = sheet["share_of_samples"], sheet.get("window")
    where = f"on {share.node}"
    if window is not None and share.end is not None:
        where = f"of the {show_duration(float(window.value))} to {clock(share.end)} on {share.node}"
    percent, threshold = (show_percent(100.0 * value) for value in (float(share.value), share.threshold or 0.0))
    seen = f"{sheet.count('samples_found'):,} of {counted(sheet.count('samples'), 'point')}"
    return f"{seen} {where}", f"{percent}, threshold {threshold}"


def _points(sheet: FactSheet, cores: CoreWords) -> str:
    seen, share = _counted(sheet)
    fraction, low = sheet.share("gpus_low"), sheet.percent("low_limit")
    return f"in {seen} ({share}) at least {fraction} of the GPUs were below {low} while {cores.cause(sheet)}."


def _minutes(sheet: FactSheet, cores: CoreWords) -> str:
    seen, share = _counted(sheet)
    newest = sheet.get("mean_utilization_newest_slow")
    mean = newest or sheet["mean_utilization_slow"]
    now = "" if newest is None else " in the newest"
    return (
        f"in the minutes of {seen} ({share}) the GPUs were below {show_percent(mean.threshold or 0.0)} on average, at "
        f"{show_percent(float(mean.value))}{now}, while {cores.cause_of_minutes(sheet)}."
    )


def _why_not(sheet: FactSheet, kind: BottleneckKind, cores: CoreWords) -> str:
    if kind.value.endswith("cheap"):
        undone = sheet["undone_share"]
        amount, least = show_percent(100.0 * float(undone.value)), show_percent(100.0 * (undone.threshold or 0.0))
        return f" The GPUs left {amount} of the time undone in it, less than the {least} from which on it fires."
    if kind.value.endswith("over"):
        return f" The newest {sheet.number('free_minutes'):g} min were free of it."
    if kind.value.endswith("alike"):
        good, poor = sheet.number("core_at_limit_while_working"), sheet.number("core_at_limit_while_low")
        return (
            f" {cores.at_limit(sheet)} in {show_percent(100.0 * good)} of the points of minutes in which the GPUs "
            f"worked, at {sheet.percent('mean_utilization_while_working')}, and in "
            f"{show_percent(100.0 * poor)} of those of the others: that is no cause."
        )
    return ""


def _advice(sheet: FactSheet, cores: CoreWords) -> str:
    advice = f"{cores.remedy(sheet)} ({sheet['share_of_samples'].node})."
    phase = sheet.get("grown_phase")
    if phase is None:
        return advice
    hit, clean = (sheet.percent(f"phase_time_{side}") for side in ("with", "without"))
    takes = "took" if sheet.past else "takes"
    return (
        f"{advice} {phase.value} {takes} {hit} of the processes' time in minutes with bottlenecks and {clean} in those "
        "without."
    )
