"""The kinds, facts, details and words that the rules on bottlenecks share."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.core.finding import Fact, Status, clock
from trainguard.core.units import show_percent
from trainguard.render.details import Details
from trainguard.rules.bottlenecks.state import GOOD_GPUS, Contrast, MinuteCount, Share, Tally
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet, Parts, Words
from trainguard.rules.windows import WarmUpKind, undecided_text

MINUTE_S = 60.0


# Findings: by points in which GPUs wait, or by minutes in which they are slow.
WAITS, SLOW = "waits", "slow"
# ``_cheap`` cost too little, ``_over`` were not seen of late, in ``_alike`` the cores were as full at work.
KINDS = tuple(f"{by}{why_not}" for why_not in ("", "_cheap", "_over", "_alike") for by in (WAITS, SLOW))


def share_facts(share: Share, view: NodeView, threshold: float, recent: range | None) -> Iterator[Fact]:
    """Yield in how many points it was seen; ``recent`` are the epoch minutes they are of, None of the whole job."""
    start, end = view.first_active_at, view.watermark_s
    if recent is not None and end is not None:
        # The newest minute that counts may lie before an idle run that goes on.
        start, end = max(MINUTE_S * recent.start, start or 0.0), min(MINUTE_S * recent.stop, end)
    where: dict[str, Any] = {"start": start, "end": end}
    on = {"series": "GPUUtilization", "threshold": threshold / 100.0}
    yield view.work_fact("share_of_samples", share.percent / 100.0, unit="share", **on, **where)
    yield view.work_fact("samples_found", share.hits, **where)
    yield view.work_fact("samples", share.judged, **where)
    if recent is not None:
        yield view.work_fact("window", MINUTE_S * len(recent), unit="s", **where)


def core_facts(count: MinuteCount, cores: "CoreWords", view: NodeView, *, newest: bool) -> Iterator[Fact]:
    start = max(MINUTE_S * count.minute, view.first_sample_at or 0.0) if newest else None
    name = "mean_utilization_newest_slow" if newest else "mean_utilization_slow"
    on = {"series": "GPUUtilization", "threshold": GOOD_GPUS}
    yield view.work_fact(name, count.mean(count.gpu), unit="%", start=start, **on)
    for of, total, unit in ((cores.level, count.level, "%"), (cores.peak, count.peak, cores.peak_unit)):
        yield view.work_fact(of, count.mean(total), unit=unit, series=cores.series, start=start)


def contrast_facts(contrast: Contrast, series: str, view: NodeView, limit: float) -> Iterator[Fact]:
    for name, count in zip(("while_working", "while_low"), contrast, strict=True):
        if count is not None:
            on = {"series": series, "threshold": limit, "start": None}
            yield view.work_fact(f"core_at_limit_{name}", count.hot_share, unit="share", **on)
            mean = count.mean(count.gpu)
            yield view.work_fact(f"mean_utilization_{name}", mean, unit="%", series="GPUUtilization", start=None)


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
class BottleneckShares:
    whole: Share
    recent: Share


def details_of(tally: Tally, points: BottleneckShares, minutes: BottleneckShares, peak: str) -> BottleneckDetails:
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
    """What a rule says about its cores: texts with places for facts and for ``parts``.

    ``series`` is the recorded one; ``level``, the mean in percent, and ``peak`` are its two measures as facts.
    """

    series: str
    level: str
    peak: str
    peak_unit: str
    clause: str
    cause: str
    cause_of_minutes: str
    at_limit: str
    remedy: str
    parts: Parts = field(default_factory=dict)

    def __call__(self, sheet: FactSheet) -> Words:
        if sheet.kind in tuple(WarmUpKind):
            return undecided_text(sheet)
        if not sheet.kind:
            return Words("", None, self.clause)
        by, _, why = sheet.kind.partition("_")
        found = f"{_POINTS}{self.cause}." if by == WAITS else f"{_MINUTES}{self.cause_of_minutes}."
        why_not = _WHY_NOT.get(why, "").format(at_limit=self.at_limit)

        advice = f"{self.remedy}{_ADVICE}" if sheet.status is Status.FIRED else None
        clause = "" if why == "alike" else self.clause

        slow = sheet.get("mean_utilization_newest_slow") or sheet.get("mean_utilization_slow")
        return sheet.fill(Words(f"{found}{why_not}", advice, clause), slow=slow, **_PARTS, **self.parts)


def _where(sheet: FactSheet) -> str:
    share = sheet["share_of_samples"]
    if share.end is None:
        return ""
    return sheet.say_if("window", "of the {window} to {end} ", end=clock(share.end))


_SEEN = (
    "{samples_found.value:,} of {samples:point} {where}on {share_of_samples.node} ({share_of_samples}, threshold "
    "{share_of_samples.limit})"
)
_POINTS = f"in {_SEEN} at least {{gpus_low}} of the GPUs were below {{low_limit}} while "
_MINUTES = (
    f"in the minutes of {_SEEN} the GPUs were below {{slow.limit}} on average, at {{slow}}{{in_the_newest}}, while "
)
_WHY_NOT = {
    "cheap": (
        " The GPUs left {{undone_share}} of the time undone in it, less than the {{undone_share.limit}} from which on "
        "it fires."
    ),
    "over": " The newest {{free_minutes.value:g}} min were free of it.",
    "alike": (
        " {at_limit} in {{core_at_limit_while_working}} of the points of minutes in which the GPUs worked, at "
        "{{mean_utilization_while_working}}, and in {{core_at_limit_while_low}} of those of the others: that is no "
        "cause."
    ),
}
_ADVICE = " ({share_of_samples.node}).{grown}"
_PARTS: Parts = {
    "where": _where,
    "limit": lambda sheet: show_percent(sheet["core_at_limit_while_working"].threshold or 0.0),
    "in_the_newest": lambda sheet: sheet.say_if("mean_utilization_newest_slow", " in the newest"),
    "grown": lambda sheet: sheet.say_if(
        "grown_phase",
        " {grown_phase} {took/takes} {phase_time_with} of the processes' time in minutes with bottlenecks and "
        "{phase_time_without} in those without.",
    ),
}
