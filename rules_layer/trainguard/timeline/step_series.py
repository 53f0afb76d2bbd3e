"""Step durations as a report shows them: of the processes that lost the most time, where there are many."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from trainguard.telemetry.snapshots import IntArray
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.series import SlowStep, StepTimeline
from trainguard.timeline.series_builder import Shown, seconds
from trainguard.timeline.steps import MICROSECONDS, KeptStep

MAX_PROCESSES = 32
SLOWEST_OF_ALL = 2_000
FEWEST_SLOWEST = 10
_NAMED = 20

Process = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Series:
    """One process's steps of one mode: a row of its node's table."""

    digest: NodeDigest
    row: int
    process: str
    mode: str

    @property
    def owner(self) -> Process:
        return self.digest.node, self.process

    @property
    def counts(self) -> IntArray:
        counts: IntArray = self.digest.steps.table.counts[self.row]
        return counts

    @property
    def totals(self) -> IntArray:
        totals: IntArray = self.digest.steps.table.totals[self.row]
        return totals

    @property
    def mean_us(self) -> float:
        return float(self.totals.sum()) / float(self.counts.sum())

    @property
    def slowest(self) -> Sequence[KeptStep]:
        return self.digest.steps.extents[0, self.process, self.mode].slowest


def step_timelines(nodes: Iterable[NodeDigest], shown: Shown) -> tuple[list[StepTimeline], list[str]]:
    """Return the steps of at most MAX_PROCESSES processes in order of their names, and who was left out."""
    series = [
        _Series(digest, row, process, mode)
        for digest in nodes
        for row, (_, process, mode) in enumerate(digest.steps.table.keys)
    ]
    ranked = _by_time_lost(series)
    chosen = set(ranked[:MAX_PROCESSES])
    kept = [each for each in series if each.owner in chosen]
    slowest = max(FEWEST_SLOWEST, SLOWEST_OF_ALL // max(len(kept), 1))
    return [_timeline(each, shown, slowest) for each in kept], _left_out(ranked)


def _by_time_lost(series: Sequence[_Series]) -> list[Process]:
    """Return the processes, first the one that lost most time.

    A process loses what its steps took in a bucket beyond the typical step of their mode, the median of the processes'
    mean steps.
    """
    means = defaultdict(list)
    for each in series:
        means[each.mode].append(each.mean_us)
    typical = {mode: median(values) for mode, values in means.items()}
    lost: defaultdict[Process, float] = defaultdict(float)
    for each in series:
        lost[each.owner] += float(np.maximum(each.totals - each.counts * typical[each.mode], 0.0).sum())
    return sorted(lost, key=lambda owner: -lost[owner])


def _timeline(series: _Series, shown: Shown, slowest: int) -> StepTimeline:
    mean, low, high = seconds(series.digest.steps.table, series.row, shown)
    slow = sorted(series.slowest[:slowest], key=lambda step: (step.start_us, step.duration_us, step.number))
    return StepTimeline(
        node=series.digest.node,
        process=series.process,
        mode=series.mode,
        steps=int(series.counts.sum()),
        mean_s=mean,
        low_s=low,
        high_s=high,
        slowest=[
            SlowStep(at=step.start_us / MICROSECONDS, step=step.number, duration_s=step.duration_us / MICROSECONDS)
            for step in slow
        ],
    )


def _left_out(ranked: Sequence[Process]) -> list[str]:
    hidden = sorted(process for _, process in ranked[MAX_PROCESSES:])
    if not hidden:
        return []
    names = ", ".join(hidden[:_NAMED]) + (f" and {len(hidden) - _NAMED:,} more" if len(hidden) > _NAMED else "")
    return [f"Steps are shown of the {MAX_PROCESSES} processes that lost most time in them; left out: {names}."]
