"""The steps of each process and mode, and how StepOutlier judges them."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tests.claims.context import Context
from tests.claims.durations import Binned, Whole, binned
from tests.claims.raw import Event
from tests.claims.timelines import STEP
from tests.claims.weighted import weighted_mean

LEFT_OUT, LEAST = 100, 100
MOST_BINS, BINS_OF_ALL = 256, 8_192
# Of a node's series those are judged that come first by process and mode; so many of the others are counted.
MOST_SERIES, MOST_REFUSED = 128, 256

PLAUSIBLE_SHARE, CHANCE = 0.002, 0.999
# Whether the GPUs waited is compared with a limit; a share nearer to it than this may lie on either side.
SURE = 0.01


@dataclass
class StepSeries:
    """The steps of a process in a mode that count: without the first hundred and the newest, in order of their end."""

    node: str
    process: str
    mode: str
    counted: list[Event]
    bins: int = MOST_BINS
    # The time of the process in the steps of all modes.
    process_us: int = field(default=0)

    @property
    def label(self) -> str:
        """Process and mode."""
        return f"{self.node}-{self.process} {self.mode.removeprefix(f'{STEP}.')}"

    @cached_property
    def lengths_us(self) -> Whole:
        """Durations, microseconds."""
        return np.array([step.length_us for step in self.counted], dtype=np.int64)

    @cached_property
    def binned(self) -> Binned:
        """Durations by bins."""
        return binned(self.lengths_us, self.bins)

    def limit_us(self, stddev: float) -> float:
        """Return mean and ``stddev`` standard deviations."""
        return float(self.lengths_us.mean() + stddev * self.lengths_us.std())

    def outlier_from_us(self, stddev: float) -> float:
        """Return from which duration on a step is an outlier."""
        return self.binned.edge_above(self.limit_us(stddev))

    def outliers(self, stddev: float) -> int:
        """Return how many steps are outliers."""
        return int((self.lengths_us >= self.outlier_from_us(stddev)).sum())

    def plausible(self, stddev: float, least: int) -> int:
        """Return how many long steps chance explains."""
        tail = math.erfc(stddev / math.sqrt(2.0)) / 2.0
        return max(least, _poisson_quantile(len(self.counted) * max(tail, PLAUSIBLE_SHARE)))

    @property
    def slow_share(self) -> float:
        """The share of the process's time that steps over twice the median took beyond it."""
        median = self.binned.median
        return self.binned.excess(2.0 * median, median) / max(self.process_us, 1)

    def slow_above_us(self, stddev: float) -> float:
        """Return over which duration a step is compared with the others."""
        return min(2.0 * self.binned.median, self.limit_us(stddev))


def _poisson_quantile(mean: float) -> int:
    number, reached = -1, 0.0
    while reached < CHANCE:
        number += 1
        reached += math.exp(number * math.log(mean) - mean - math.lgamma(number + 1.0))
    return number


def is_wanted(name: str, mode: str | None) -> bool:
    """Tell whether steps of a name are judged."""
    if mode in {None, "None"}:
        return name.startswith(STEP)
    return name == mode or name.lower() == f"{STEP}.{mode}".lower()


def all_series(context: Context, last_file: float = math.inf) -> list[StepSeries]:
    """Return all series with enough steps, by node, process and mode, of files up to a time in their names."""
    found: list[StepSeries] = []
    of_node: Counter[str] = Counter()
    for (node, process), events in sorted(context.raw.job.events.items()):
        modes: dict[str, list[Event]] = {}
        for each in events:
            if is_wanted(each.name, context.parameters.get("mode")) and each.file <= last_file:
                modes.setdefault(each.name, []).append(each)
        ordered = {mode: sorted(steps, key=lambda each: each.end_us) for mode, steps in sorted(modes.items())}
        series = [StepSeries(node, process, mode, steps[LEFT_OUT:-1]) for mode, steps in ordered.items()]
        series = series[: MOST_SERIES - of_node[node]]
        of_node[node] += len(series)
        total = sum(int(each.lengths_us.sum()) for each in series)
        found += [StepSeries(each.node, each.process, each.mode, each.counted, process_us=total) for each in series]
    for one in found:
        one.bins = min(MOST_BINS, BINS_OF_ALL // sum(other.node == one.node for other in found))
    return [each for each in found if len(each.counted) >= LEAST]


def left_out(context: Context, node: str, last_file: float) -> int:
    """Return how many series of a node are not judged, of files up to a time in their names."""
    found = {
        (process, each.name)
        for (of, process), events in context.raw.job.events.items()
        for each in events
        if of == node and is_wanted(each.name, context.parameters.get("mode")) and each.file <= last_file
    }
    return min(max(len(found) - MOST_SERIES, 0), MOST_REFUSED)


def most_severe(context: Context, series: list[StepSeries]) -> Iterator[StepSeries]:
    """Yield the series of highest severity: those whose GPUs waited first, then by what they have too much.

    More than one where the raw data do not tell whether the GPUs waited.
    """
    ranked = [(_place(context, each, sure=True), _place(context, each, sure=False), each) for each in series]
    worst = max((least for least, _, _ in ranked), default=None)
    for _, most, each in ranked:
        if worst is not None and most >= worst:
            yield each


def _place(context: Context, series: StepSeries, *, sure: bool) -> tuple[bool, bool, float]:
    """Return how severe the steps of a process are; surely so, or perhaps."""
    stddev, limit = context.parameters["stddev"], context.parameters["slow_share"]
    plausible = series.plausible(stddev, context.parameters["n_outliers"])
    by_count = series.outliers(stddev) / max(plausible, 1)
    by_time = 100.0 * series.slow_share / max(limit, 0.1)
    too_many, too_slow = series.outliers(stddev) > plausible, 100.0 * series.slow_share > limit
    slow = too_many or too_slow
    fired = slow and _waited(context, series, 0.0 if too_many else limit / 100.0, SURE if sure else -SURE)
    return fired, slow, round(max(by_count, by_time), 9)


def _waited(context: Context, series: StepSeries, least: float, margin: float) -> bool:
    """Tell whether the least busy GPU left so much undone that it may have waited for half of the slow steps' time."""
    node = context.raw.job.nodes.get(series.node)
    if node is None or not node.gpus:
        return True
    start, end = min(step.start for step in series.counted), max(step.end for step in series.counted)
    means = [weighted_mean(node.of("GPUUtilization")[gpu], start, end, node.interval_s) for gpu in node.used_gpus]
    known = [mean for mean in means if not math.isnan(mean)]
    if not known:
        return True
    stddev, median = context.parameters["stddev"], series.binned.median
    lost_us = series.binned.excess(series.slow_above_us(stddev), median)
    needed = max(0.5 * lost_us / max(1e6 * (end - start), 1.0), least)
    return 1.0 - min(known) / 100.0 >= needed + margin
