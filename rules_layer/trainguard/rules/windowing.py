"""Rules over samples in a window: patience and window in seconds or in points, and what must be there to judge.

By default both are durations, whatever the sampling interval: the points that the managed service documents are those
of its own sampling, every 500 ms. Points count where somebody gives points.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.errors import RuleConfigError
from trainguard.records import Status
from trainguard.rules.protocol import MAX_WINDOW_POINTS, MIN_WINDOW_POINTS, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import points_in
from trainguard.rules.warm_up import lacks_utilization, waiting
from trainguard.telemetry.snapshots import BoolArray, FloatArray

MIN_SAMPLED_SHARE = 0.25
"""A series with samples at fewer of the window's points is not judged on it."""

LASTING_WINDOWS = 2
"""What is seen in one window must hold while the window moves on by so many windows."""


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
        """Return values by name, with the seconds that hold where neither points nor seconds were given."""
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

    def judge(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what is missing, or what the samples mean."""
        if view.watermark_s is None:
            return waiting(view)
        unfit = self.unfit(view)
        if unfit is None:
            return self.judge_samples(state, view, parameters)
        return unfit if isinstance(unfit, RuleResult) else RuleResult(Status.NOT_APPLICABLE, unfit)

    def unfit(self, view: NodeView) -> RuleResult | str | None:
        """Say why the rule cannot judge the node's GPUs; None where it can."""
        return None if view.gpu_names else lacks_utilization(view)

    @abstractmethod
    def judge_samples(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what ``state`` means of a node with samples and GPUs; pure."""


class WindowedRule(SampledRule[W, S], Generic[W, S]):
    """A rule over the samples of a node's GPUs that looks back on the newest window of kept points."""

    def window_points(self, parameters: W, interval_s: float) -> int:
        """Return the window in points, at least 20; RuleConfigError where ``window_s`` is more than 2,500.

        A default window that is more points, at an interval below 100 ms, is cut to 2,500.
        """
        points = points_in(parameters.window_duration_s(interval_s), interval_s)
        if points > MAX_WINDOW_POINTS and parameters.window_s is not None:
            expected = (
                f"at most {MAX_WINDOW_POINTS * interval_s:g} s, which are {MAX_WINDOW_POINTS:,} points at the sampling "
                f"interval of {interval_s:g} s"
            )
            raise RuleConfigError(self.name, "window_s", parameters.window_s, expected)
        return min(max(points, MIN_WINDOW_POINTS), MAX_WINDOW_POINTS)

    def lasting_points(self, parameters: W, interval_s: float) -> int:
        """Return for how many points more a window must show the same before it counts: LASTING_WINDOWS windows.

        They are counted by how long the window is meant to be: at 60 s, where 20 points are 20 minutes, a window of
        250 s has lasted after 500 s.
        """
        return points_in(LASTING_WINDOWS * parameters.window_duration_s(interval_s), interval_s)

    def clear_after_s(self, parameters: W, interval_s: float) -> float:
        """Three windows."""
        return 3.0 * self.window_points(parameters, interval_s) * interval_s


def no_utilization(view: NodeView) -> str:
    """Say that a node has no samples of GPUs: it has none, only partitioned ones, or nobody measured them."""
    return lacks_utilization(view).reason


def sampled_enough(window: FloatArray, least: int = MIN_WINDOW_POINTS) -> BoolArray:
    """Tell which columns of a window (float64[K, G]) can be judged: numbers at ``least`` and a quarter of it."""
    enough: BoolArray = np.count_nonzero(~np.isnan(window), axis=0) >= max(least, MIN_SAMPLED_SHARE * len(window))
    return enough
