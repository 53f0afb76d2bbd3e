"""Rules over samples in a window: patience and window in points or in seconds, and what must be there to judge."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
import numpy as np

from trainguard.errors import RuleConfigError
from trainguard.records import Status
from trainguard.rules.protocol import MAX_WINDOW_POINTS, MIN_WINDOW_POINTS, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import points_in
from trainguard.telemetry.snapshots import BoolArray, FloatArray

MIN_SAMPLED_SHARE = 0.25
"""A series with samples at fewer of the window's points is not judged on it."""

LASTING_WINDOWS = 2
"""What is seen in one window must hold while the window moves on by so many windows."""


class PatienceParameters(RuleParameters, frozen=True, kw_only=True):
    """Parameters with a patience, in points or in seconds.

    A rule declares the fields itself, in the order in which people see its parameters.
    """

    if TYPE_CHECKING:
        patience: int
        patience_s: float | None

    def patience_points(self, interval_s: float) -> int:
        """Return how many points are waited for before the first verdict."""
        return patience_in_points(self.patience, self.patience_s, interval_s)


class WindowParameters(PatienceParameters, frozen=True, kw_only=True):
    """Parameters with a patience and a window, each in points or in seconds; declared as there."""

    if TYPE_CHECKING:
        window: int
        window_s: float | None


P = TypeVar("P", bound=PatienceParameters)
W = TypeVar("W", bound=WindowParameters)
S = TypeVar("S", bound=msgspec.Struct)


class SampledRule(SystemRule[P, S], Generic[P, S]):
    """A rule over the samples of a node's GPUs: it judges once there are samples, of GPUs that it can judge."""

    def judge(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what is missing, or what the samples mean."""
        if view.watermark_s is None:
            return RuleResult(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        unfit = self.unfit(view)
        return (
            self.judge_samples(state, view, parameters) if unfit is None else RuleResult(Status.NOT_APPLICABLE, unfit)
        )

    def unfit(self, view: NodeView) -> str | None:
        """Say why the rule cannot judge the node's GPUs; None where it can."""
        return None if view.gpu_names else f"{view.node} has no GPU."

    @abstractmethod
    def judge_samples(self, state: S, view: NodeView, parameters: P) -> RuleResult:
        """Say what ``state`` means of a node with samples and GPUs; pure."""


class WindowedRule(SampledRule[W, S], Generic[W, S]):
    """A rule over the samples of a node's GPUs that looks back on the newest window of kept points."""

    def window_points(self, parameters: W, interval_s: float) -> int:
        """``window``, or ``window_s`` in points, at least 20; RuleConfigError over 2,000."""
        return window_in_points(self.name, parameters.window, parameters.window_s, interval_s)

    def clear_after_s(self, parameters: W, interval_s: float) -> float:
        """Three windows."""
        return 3.0 * self.window_points(parameters, interval_s) * interval_s


def patience_in_points(patience: int, patience_s: float | None, interval_s: float) -> int:
    """``patience_s`` in points where it is given, else ``patience``."""
    return patience if patience_s is None else points_in(patience_s, interval_s)


def window_in_points(rule: str, window: int, window_s: float | None, interval_s: float) -> int:
    """``window_s`` in points where it is given, else ``window``; 20 points where it is fewer.

    Raises RuleConfigError where ``window_s`` is more than 2,000 points.
    """
    points = window if window_s is None else points_in(window_s, interval_s)
    if points > MAX_WINDOW_POINTS:
        expected = (
            f"at most {MAX_WINDOW_POINTS * interval_s:g} s, which are {MAX_WINDOW_POINTS:,} points at the sampling "
            f"interval of {interval_s:g} s"
        )
        raise RuleConfigError(rule, "window_s", window_s, expected)
    return max(points, MIN_WINDOW_POINTS)


def sampled_enough(window: FloatArray) -> BoolArray:
    """Tell which columns of a window (float64[K, G]) can be judged: numbers at 20 and at a quarter of the points."""
    enough: BoolArray = np.count_nonzero(~np.isnan(window), axis=0) >= max(
        MIN_WINDOW_POINTS, MIN_SAMPLED_SHARE * len(window)
    )
    return enough
