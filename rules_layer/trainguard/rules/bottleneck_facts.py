"""The facts of the rules on bottlenecks: kinds of what is found, and the numbers that it rests on."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainguard.finding import Fact
from trainguard.rules.bottleneck_counts import GOOD_GPUS, Contrast, MinuteCount, Share
from trainguard.rules.rule_inputs import NodeView

MINUTE_S = 60.0


class BottleneckKind(StrEnum):
    """What is said of a node: by points in which GPUs wait, or by minutes in which they are slow.

    Those that end in ``_cheap`` cost too little, in ``_over`` were not seen of late, and in ``_alike`` are no cause:
    the cores were as full while the GPUs worked. The status says whether the first two are found.
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
        """Whether it is told by points."""
        return self.value.startswith("waits")

    def ending(self, how: str) -> "BottleneckKind":
        """Return the kind of the same evidence that ends so."""
        return BottleneckKind(f"{self.value}_{how}")


@dataclass(frozen=True, slots=True)
class CoreSeries:
    """A recorded series of the cores, and what the two measures of it are called as facts, with the second one's unit.

    The first is the mean over all cores, percent.
    """

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
    where: dict[str, Any] = {"node": view.node, "start": start, "end": end}
    yield Fact(
        name="share_of_samples",
        value=share.percent / 100.0,
        unit="share",
        series="GPUUtilization",
        threshold=threshold / 100.0,
        **where,
    )
    yield Fact(name="samples_found", value=share.hits, **where)
    yield Fact(name="samples", value=share.judged, **where)
    if recent is not None:
        yield Fact(name="window", value=MINUTE_S * len(recent), unit="s", **where)


def core_facts(count: MinuteCount, series: CoreSeries, view: NodeView, *, newest: bool) -> Iterator[Fact]:
    """Yield what GPUs and cores were at in slow minutes."""
    start = max(MINUTE_S * count.minute, view.first_sample_at or 0.0) if newest else None
    where: dict[str, Any] = {"node": view.node, "start": start, "end": view.watermark_s}
    name = "mean_utilization_newest_slow" if newest else "mean_utilization_slow"
    gpu = count.mean(count.gpu)
    yield Fact(name=name, value=gpu, unit="%", series="GPUUtilization", threshold=GOOD_GPUS, **where)
    yield Fact(name=series.level, value=count.mean(count.level), unit="%", series=series.name, **where)
    peak = count.mean(count.peak)
    yield Fact(name=series.peak, value=peak, unit=series.peak_unit, series=series.name, **where)


def contrast_facts(contrast: Contrast, series: CoreSeries, view: NodeView, limit: float) -> Iterator[Fact]:
    """Yield in which share of the points a core was at its limit while the GPUs worked, and while they did not."""
    for name, count in (("while_working", contrast.good), ("while_low", contrast.poor)):
        if count is not None:
            where: dict[str, Any] = {"node": view.node, "end": view.watermark_s}
            share = count.hot_share
            yield Fact(
                name=f"core_at_limit_{name}", value=share, unit="share", series=series.name, threshold=limit, **where
            )
            mean = count.mean(count.gpu)
            yield Fact(name=f"mean_utilization_{name}", value=mean, unit="%", series="GPUUtilization", **where)
