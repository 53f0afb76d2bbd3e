"""What reports show of GPUs that wait for cores at a limit."""

from typing import Protocol

import msgspec

from trainguard.rules.bottleneck_counts import Share, Tally
from trainguard.rules.details import Details


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
