"""How far forecasts of MLPerf's jobs at another size, or on other GPUs, are from what was published."""

import json
import lzma
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trainguard.kernels.columns import Gpu
from trainguard.kernels.peaks import peaks_of
from trainguard.ledger.bucket import Bucket
from trainguard.planning.cluster import Cluster
from trainguard.planning.plan import MeasuredJob, PlanLimits, Planner, Scaling, sort_factor

DATA = Path(__file__).parents[2] / "data" / "mlperf" / "scaling.json.xz"
# Of sizes that differ less than this in the samples of a GPU, the difference is of the number of GPUs.
_ALIKE = 0.3
_MOST = 0.8


@cache
def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress(DATA.read_bytes()))
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """One benchmark on the same sort of GPU in two sizes, or in one size on two sorts; times of a step, seconds."""

    benchmark: str
    old: dict[str, Any]
    new: dict[str, Any]

    @property
    def samples(self) -> float:
        """The factor on a GPU's samples in a step."""
        of_gpu = [each["batch"] / each["gpus"] for each in (self.new, self.old)]
        return float(of_gpu[0] / of_gpu[1])

    @property
    def gpus(self) -> float:
        return float(self.new["gpus"] / self.old["gpus"])

    @property
    def step(self) -> float:
        times = [median(each["steps_s"].values()) for each in (self.new, self.old)]
        return float(times[0] / times[1])

    @property
    def sort(self) -> float:
        old, new = (
            peaks_of(Gpu(name=each["gpu"], memory=0, capability=(0, 0), sms=0)) for each in (self.old, self.new)
        )
        assert old is not None
        assert new is not None
        return sort_factor(old, new, "bf16")

    def name(self) -> str:
        old, new = (f"{each['gpus']} {each['gpu']}, {each['batch']:,}" for each in (self.old, self.new))
        return f"{self.benchmark}: {old} to {new}"


def sizes() -> list[Pair]:
    """Return the pairs of sizes of the same sort of GPU, from the smaller to the larger number."""
    return [each for each in _pairs() if each.old["gpu"] == each.new["gpu"] and each.gpus > 1.0]


def sorts() -> list[Pair]:
    """Return the pairs of sorts of GPU with the same number and batch."""
    return [each for each in _pairs() if each.gpus == each.samples == 1.0 and each.old["gpu"] > each.new["gpu"]]


def _pairs() -> Iterator[Pair]:
    for old, new in permutations(published()["sizes"], 2):
        if old["benchmark"] == new["benchmark"]:
            yield Pair(old["benchmark"], old, new)


def fitted(pairs: Sequence[Pair], others: Sequence[Pair]) -> Scaling:
    """Fit exponents and spreads, each benchmark with the same weight."""
    alike = [each for each in pairs if abs(math.log(each.samples)) < _ALIKE]
    apart = [each for each in pairs if abs(math.log(each.samples)) >= _ALIKE]
    gpus = _quantile(alike, [math.log(each.step) / math.log(each.gpus) for each in alike], 0.5)
    samples = _quantile(
        apart,
        [(math.log(each.step) - gpus * math.log(each.gpus)) / math.log(each.samples) for each in apart],
        0.5,
        [abs(math.log(each.samples)) for each in apart],
    )
    unit = Scaling(samples, gpus, 1.0, 1.0)
    spread = _quantile(
        pairs, [_error(unit, each) / unit.half_width(each.samples, each.gpus, None) for each in pairs], _MOST
    )
    of_sorts = [_spread_of(each) for each in others]
    return Scaling(samples, gpus, spread, _of_next_benchmark(others, of_sorts))


def _spread_of(pair: Pair) -> float:
    """Return with which spread the interval just holds a pair of GPUs, beside what another precision may change."""
    known, unit = (Scaling(0.0, 0.0, 0.0, spread).of_sort(pair.sort) for spread in (0.0, 1.0))
    error = abs(math.log(pair.step / pair.sort))
    return math.sqrt(max(error**2 - known**2, 0.0) / (unit**2 - known**2))


def _error(scaling: Scaling, pair: Pair) -> float:
    return abs(math.log(pair.step / scaling.factor(pair.samples, pair.gpus)))


def _of_next_benchmark(pairs: Sequence[Pair], values: Sequence[float]) -> float:
    """Return what bounds a quantile of another benchmark with the same probability (split conformal, by benchmark).

    Pairs of one benchmark err alike, so that a quantile over pairs says nothing of another benchmark. Of n benchmarks
    the value is that of rank (n + 1) times the part, rounded up: of five the largest.
    """
    names = [each.benchmark for each in pairs]
    of_each = sorted(
        float(np.quantile([value for name, value in zip(names, values, strict=True) if name == each], _MOST))
        for each in dict.fromkeys(names)
    )
    return of_each[min(math.ceil((len(of_each) + 1) * _MOST), len(of_each)) - 1]


def _quantile(pairs: Sequence[Pair], values: Sequence[float], part: float, weights: Sequence[float] = ()) -> float:
    """Return a quantile, in which each benchmark has the same weight, or ``weights`` times it."""
    counts = Counter(each.benchmark for each in pairs)
    weight = np.array([1.0 / counts[each.benchmark] for each in pairs]) * (np.array(weights) if weights else 1.0)
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) - 0.5 * weight[order]
    return float(np.interp(part, reached / weight.sum(), np.array(values)[order]))


@dataclass(frozen=True, slots=True)
class Judged:
    """A forecast of a pair by a fit without its benchmark: relative error, and whether the interval holds it."""

    pair: Pair
    forecast: float
    error: float
    held: bool


def judged() -> list[Judged]:
    """Forecast the time of an hour of training of each pair by the product, in both directions."""
    pairs, others = sizes(), sorts()
    found = []
    for benchmark in dict.fromkeys(each.benchmark for each in pairs):
        scaling = fitted(*([each for each in group if each.benchmark != benchmark] for group in (pairs, others)))
        mine = [each for each in (*pairs, *others) if each.benchmark == benchmark]
        for pair in mine:
            found += [_judged(pair, scaling), _judged(Pair(benchmark, pair.new, pair.old), scaling)]
    return found


def _judged(pair: Pair, scaling: Scaling) -> Judged:
    old, new = (_cluster(each) for each in (pair.old, pair.new))
    job = MeasuredJob(seconds={Bucket.COMPUTE: 3_600.0}, cluster=old)
    row = Planner(job, scaling).rows([PlanLimits(new, pair.samples, 1.0)])[1]
    truth = 3_600.0 * pair.step
    held = row.seconds.low <= truth <= row.seconds.high
    return Judged(pair, row.seconds.value / 3_600.0, row.seconds.value / truth - 1.0, held)


def _cluster(size: dict[str, Any]) -> Cluster:
    peaks = peaks_of(Gpu(name=size["gpu"], memory=0, capability=(0, 0), sms=0))
    return Cluster(nodes=1, gpus=size["gpus"], instance_type=size["gpu"], peaks=peaks)
