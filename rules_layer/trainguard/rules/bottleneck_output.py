"""What is said of GPUs that wait for cores at a limit: sentences, advice, and the report's details."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from trainguard.finding import clock_times
from trainguard.rules.bottleneck_counts import Share, Tally
from trainguard.rules.details import Details
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.units import counted, show_percent
from trainguard.timestamps import iso_time


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
    """A node; ``judged`` and ``bottlenecked`` of several nodes add up to the pooled share.

    ``slow_share_percent`` and ``recent_slow_share_percent`` are of the points in slow minutes.
    """

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


class Evidence(Protocol):
    """Shares over the whole job and recently."""

    @property
    def whole(self) -> Share:
        """Over the whole job."""

    @property
    def recent(self) -> Share:
        """Over the recent window."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """What slow minutes were like: the GPUs' mean against its limit, percent, and the cores' condition in words.

    ``newest`` says that the mean is of those of the newest minutes, and else of all.
    """

    limit: float
    gpu: float
    cause: str
    newest: bool


def details_of(tally: Tally, points: Evidence, minutes: Evidence, peak: str) -> BottleneckDetails:
    """Return a node's counts, its shares over the whole job and recently; ``peak`` names the measure of the cores."""
    return BottleneckDetails(
        judged=tally.judged,
        bottlenecked=tally.bottlenecked,
        share_percent=points.whole.percent,
        recent_judged=points.recent.judged,
        recent_share_percent=points.recent.percent,
        low_gpu_utilization=tally.low_gpu,
        bottlenecks=[BottleneckPoint(each.time, each.gpus_low, **{peak: each.peak}) for each in tally.newest],
        slow_share_percent=minutes.whole.percent,
        recent_slow_share_percent=minutes.recent.percent,
    )


def sentence_of_minutes(share: Share, where: str, threshold: float, slowness: Slowness) -> str:
    """Say in how many points GPUs worked slowly, minute by minute."""
    return (
        f"in the minutes of {share.hits:,} of {counted(share.judged, 'point')} {where} ({show_percent(share.percent)}, "
        f"threshold {show_percent(threshold)}) the GPUs were below {show_percent(slowness.limit)} on average, at "
        f"{show_percent(slowness.gpu)}{' in the newest' if slowness.newest else ''}, while {slowness.cause}."
    )


def too_little(wasted: float, least: float) -> str:
    """Say what it costs that is too little to fire."""
    return (
        f" That wastes {show_percent(100.0 * wasted)} of the time, less than the {show_percent(100.0 * least)} from "
        "which on it fires."
    )


def sentence_of(share: Share, where: str, cause: str, limits: tuple[float, float, float]) -> str:
    """Say in how many points GPUs waited; ``limits`` are threshold, gpu_fraction (0 to 1) and gpu_threshold."""
    threshold, fraction, low = limits
    return (
        f"in {share.hits:,} of {counted(share.judged, 'point')} {where} ({show_percent(share.percent)}, threshold "
        f"{show_percent(threshold)}) at least {show_percent(100.0 * fraction)} of the "
        f"GPUs were below {show_percent(low)} while {cause}."
    )


def over(minutes: int) -> str:
    """Say that what was seen is over."""
    return f" The newest {minutes} min were free of it."


def recent_minutes(minutes: int, view: NodeView) -> str:
    """Say which minutes were looked at, in words that stay true: for example ``of the 30 min to 05:17 UTC``."""
    mark = None if view.watermark_s is None else iso_time(view.watermark_s)
    until = "" if mark is None else f" to {clock_times(mark, mark)}"
    return f"of the {minutes} min{until} on {view.node}"
