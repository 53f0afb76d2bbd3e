"""Rules over samples in a window: patience and window in seconds or in points.

Both default to durations: the documented points are those of the managed service's 500 ms sampling.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.core.errors import RuleConfigError
from trainguard.formats.profile.snapshots import BoolArray, FloatArray, IntArray, points_in
from trainguard.rules.protocol import MAX_WINDOW_POINTS, MIN_WINDOW_POINTS, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.windows.warm_up import lacks_utilization, waiting

# Below it even P(X > 0) is under 1e-6; the masses far above such a mean would underflow.
NEGLIGIBLE_MEAN = 1e-7


def normal_tail(deviations: float) -> float:
    """Probability that a normal value lies more than ``deviations`` standard deviations above its mean, 1 - Phi."""
    return math.erfc(deviations / math.sqrt(2.0)) / 2.0


def poisson_quantile(probability: float, expected: float) -> int:
    """Smallest k with P(X <= k) >= ``probability`` (0.5 to 1 - 1e-6, else ValueError) for a Poisson mean ``expected``.

    Sums the upper tail from 8 deviations and 12 counts above the mean down: only small positive numbers are added.
    """
    if not 0.5 <= probability <= 1.0 - 1e-6:
        raise ValueError(f"probability is {probability!r}, expected a number from 0.5 to 1 - 1e-6")
    if not 0.0 <= expected < math.inf:
        raise ValueError(f"expected is {expected!r}, expected a finite mean of at least 0")
    if expected < NEGLIGIBLE_MEAN:
        return 0
    count = math.ceil(expected + 8.0 * math.sqrt(expected) + 12.0)
    mass = math.exp(count * math.log(expected) - expected - math.lgamma(count + 1.0))
    tail = mass
    while tail <= 1.0 - probability:
        mass *= count / expected
        tail += mass
        count -= 1
    return count


MIN_SAMPLED_SHARE = 0.25
# What is seen in one window must hold while the window moves on by so many windows.
LASTING_WINDOWS = 2


class PatienceParameters(RuleParameters, frozen=True, kw_only=True):
    """Parameters with a patience, in seconds or in points.

    A rule declares the fields itself, in the order in which people see its parameters, both None by default. Seconds
    win over points. Where neither is given, ``default_patience_s`` seconds are waited for, and at least
    ``default_points`` points. A class without that default gives its fields a value.
    """

    if TYPE_CHECKING:
        patience: int | None
        patience_s: float | None

    default_patience_s: ClassVar[float | None] = None
    default_points: ClassVar[int] = MIN_WINDOW_POINTS

    def patience_points(self, interval_s: float) -> int:
        """Return how many points are waited for before the first verdict."""
        if self.patience_s is not None:
            return points_in(self.patience_s, interval_s)
        if self.patience is not None:
            return self.patience
        return max(points_in(self.default_patience_s or 0.0, interval_s), self.default_points)

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        for span, default_s in cls._default_spans().items():
            if values[span] is None and values[f"{span}_s"] is None:
                values[f"{span}_s"] = default_s
        return values

    @classmethod
    def _default_spans(cls) -> dict[str, float | None]:
        return {"patience": cls.default_patience_s}


class WindowParameters(PatienceParameters, frozen=True, kw_only=True):
    """Parameters with a patience and a window, each in seconds or in points; declared as there."""

    if TYPE_CHECKING:
        window: int | None
        window_s: float | None

    default_window_s: ClassVar[float | None] = None

    @classmethod
    def _default_spans(cls) -> dict[str, float | None]:
        return {**super()._default_spans(), "window": cls.default_window_s}

    def window_duration_s(self, interval_s: float) -> float:
        """Return how long the window is meant to be, seconds: where few points fall into it, more are looked at."""
        if self.window_s is not None:
            return self.window_s
        if self.window is not None:
            return max(self.window, MIN_WINDOW_POINTS) * interval_s
        return self.default_window_s or 0.0


P = TypeVar("P", bound=PatienceParameters)
W = TypeVar("W", bound=WindowParameters)
S = TypeVar("S", bound=msgspec.Struct)


class SampledRule(SystemRule[P, S], Generic[P, S]):
    """A rule over the samples of a node's GPUs: it judges once there are samples, of GPUs that it can judge."""

    # Whether it judges a node of which all GPUs are partitioned (MIG).
    judges_instances: ClassVar[bool] = False

    def judge(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        if view.watermark_s is None:
            return waiting(view)
        if not view.gpu_names and not (self.judges_instances and view.mig_names):
            return lacks_utilization(view)
        return self.judge_samples(state, view, parameters)

    @abstractmethod
    def judge_samples(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what ``state`` means of a node with samples and GPUs; pure."""


class WindowedRule(SampledRule[W, S], Generic[W, S]):
    """A rule over the samples of a node's GPUs that looks back on the newest window of kept points."""

    def window_points(self, parameters: W, interval_s: float) -> int:
        """Return the window in points, 20 to 2,500; RuleConfigError where a given ``window_s`` is longer."""
        points = points_in(parameters.window_duration_s(interval_s), interval_s)
        if points > MAX_WINDOW_POINTS and parameters.window_s is not None:
            expected = (
                f"at most {MAX_WINDOW_POINTS * interval_s:g} s, which are {MAX_WINDOW_POINTS:,} points at the sampling "
                f"interval of {interval_s:g} s"
            )
            raise RuleConfigError(self.name, "window_s", parameters.window_s, expected)
        return min(max(points, MIN_WINDOW_POINTS), MAX_WINDOW_POINTS)

    def lasting_points(self, parameters: W, interval_s: float) -> int:
        """Return for how many points more a window must show the same before it counts: LASTING_WINDOWS windows."""
        return points_in(LASTING_WINDOWS * parameters.window_duration_s(interval_s), interval_s)

    def clear_after_s(self, parameters: W, interval_s: float) -> float:
        return 3.0 * self.window_points(parameters, interval_s) * interval_s


def sampled_enough(window: FloatArray, least: int = MIN_WINDOW_POINTS) -> BoolArray:
    """Tell which columns of a window (float64[K, G]) can be judged: numbers at ``least`` and a quarter of it."""
    missing, needed = np.isnan(window), max(least, MIN_SAMPLED_SHARE * len(window))
    # Of most windows no number is missing, and to see that is quicker than to count them.
    counts = len(window) - (np.count_nonzero(missing, axis=0) if missing.any() else np.zeros(window.shape[1]))
    enough: BoolArray = counts >= needed
    return enough


WHISKER_IQRS = 1.5


def column_quantiles(values: FloatArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of each column of ``values`` (float64[K, G]) without NaN: float64[Q, G], NaN for an empty column.

    One sort serves all quantiles; ``numpy.nanquantile`` falls back to a Python loop over the columns.
    """
    ordered = np.sort(values, axis=0)
    sizes = np.count_nonzero(~np.isnan(values), axis=0)
    columns = np.arange(values.shape[1])
    if not len(ordered):
        return np.full((len(quantiles), values.shape[1]), np.nan)
    return _interpolate(sizes, quantiles, lambda ranks: ordered[ranks, columns])


def counted_quantiles(counts: IntArray, quantiles: Sequence[float]) -> FloatArray:
    """Quantiles of whole numbers counted in ``counts`` (int64[G, V]): float64[Q, G], NaN for an empty row."""
    cumulative = np.cumsum(counts, axis=1)
    sizes = counts.sum(axis=1)

    def value_at(ranks: IntArray) -> FloatArray:
        values: FloatArray = (cumulative <= ranks[..., np.newaxis]).sum(axis=-1).astype(np.float64)
        return values

    return _interpolate(sizes, quantiles, value_at)


@dataclass(frozen=True, slots=True)
class Box:
    """A box plot's numbers: upper = min(p75 + 1.5 iqr, max), lower = max(p25 - 1.5 iqr, min), iqr = p75 - p25."""

    smallest: float
    p25: float
    p50: float
    p75: float
    p95: float
    largest: float

    @property
    def shown(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("p25", "p50", "p75", "p95", "upper", "lower")}

    @property
    def upper(self) -> float:
        return min(self.p75 + WHISKER_IQRS * (self.p75 - self.p25), self.largest)

    @property
    def lower(self) -> float:
        return max(self.p25 - WHISKER_IQRS * (self.p75 - self.p25), self.smallest)


BOX_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)


def column_boxes(values: FloatArray) -> tuple[Box | None, ...]:
    """Boxes of the columns of ``values`` (float64[K, G]), leaving out NaN; None for a column without a number."""
    table = column_quantiles(values, BOX_QUANTILES)
    return tuple(None if np.isnan(column[0]) else Box(*column.tolist()) for column in table.T)


def counted_boxes(counts: IntArray) -> tuple[Box, ...]:
    """Boxes of whole numbers counted in ``counts`` (int64[G, V]), a box for each row."""
    table = counted_quantiles(counts, BOX_QUANTILES)
    return tuple(Box(*column) for column in table.T.tolist())


def _interpolate(sizes: IntArray, quantiles: Sequence[float], value_at: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Interpolate at h = (n - 1) q between the order statistics floor(h) and floor(h) + 1; ``sizes`` is int64[G]."""
    last = np.maximum(sizes - 1, 0)
    positions = last * np.array(quantiles, dtype=np.float64)[:, np.newaxis]
    below = np.floor(positions).astype(np.int64)
    low = value_at(below)
    high = value_at(np.minimum(below + 1, last))
    values: FloatArray = np.where(sizes > 0, low + (positions - below) * (high - low), np.nan)
    return values
