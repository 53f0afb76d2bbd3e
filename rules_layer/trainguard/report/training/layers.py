"""Norms of gradients, updates of weights and activations of each layer over steps."""

import math
from collections.abc import Callable, Collection

import msgspec
import numpy as np

from trainguard.formats.tensors.name_patterns import NamePatternError
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.render.numbers import natural
from trainguard.report.training.heat_map import HeatMap, ReadBudget
from trainguard.rules.training.readings import abs_mean, change_of, float64, numbers
from trainguard.rules.training.selection import GRADIENTS, WEIGHTS, matching
from trainguard.rules.training.tensors.activations import SaturatedActivationParameters

ACTIVATIONS = ("activations", "relu_output")
ACTIVATION_NAMES = (
    r"^(?!gradient).*(?i:relu|tanh|sigmoid|gelu|silu|swish|elu)[A-Za-z0-9]*(?:_\d+)?_(?:input|output)(?:_\d+)?$"
)
ABS_MEAN, L2 = "abs_mean", "l2"
_EPSILON = 1e-9


def _map(measure: str) -> Callable[[], HeatMap]:
    return lambda: HeatMap(measure=measure)


class Layers(msgspec.Struct, kw_only=True):
    """Maps of layers over steps.

    gradients: Mean of the absolute values; where only the L2 norm was saved, that.
    updates: L2 norm of a weight's change since its saved step before, in relation to its norm then.
    activation_mean, activation_zeros, activation_saturated: Mean, share of zeros (0 to 1), and share of inputs of tanh
        and sigmoid beyond their limits (0 to 1).
    """

    gradients: HeatMap = msgspec.field(default_factory=_map(ABS_MEAN))
    updates: HeatMap = msgspec.field(default_factory=_map("update_ratio"))
    activation_mean: HeatMap = msgspec.field(default_factory=_map("mean"))
    activation_zeros: HeatMap = msgspec.field(default_factory=_map("zeros"))
    activation_saturated: HeatMap = msgspec.field(default_factory=_map("saturated"))

    def fold(self, step: StepView, budget: ReadBudget, wanted: Collection[str]) -> None:
        """Take in a step; layers in ``wanted`` are shown before others where there are many."""
        if step.mode in (Mode.TRAIN, Mode.GLOBAL):
            self._fold_gradients(step, budget, wanted)
            self._fold_updates(step, budget, wanted)
        self._fold_activations(step, budget, wanted)

    def _fold_gradients(self, step: StepView, budget: ReadBudget, wanted: Collection[str]) -> None:
        names = sorted(step.members(GRADIENTS), key=natural)
        if not names or not self.gradients.is_next():
            return
        if not self.gradients.steps:
            self.gradients.measure = budget.tried(_measure_of, step, names[0]) or ABS_MEAN
        is_l2 = self.gradients.measure == L2
        fold = _l2 if is_l2 else abs_mean
        self.gradients.begin(step.step)
        allowance = budget.of_step()
        for name in self.gradients.rows_of(names, wanted):
            value = budget.tensor(fold, step, name, allowance)
            if value is not None:
                self.gradients.put(name, value)

    def _fold_updates(self, step: StepView, budget: ReadBudget, wanted: Collection[str]) -> None:
        names = sorted((name for name in step.members(WEIGHTS) if step.has_value(name)), key=natural)
        if not names or not self.updates.is_next():
            return
        shown = [name for name in self.updates.rows_of(names, wanted) if budget.tried(_before, step, name)]
        if not shown:
            self.updates.seen -= 1
            return
        self.updates.begin(step.step)
        allowance = budget.of_step()
        for name in shown:
            change = budget.tensor(_change, step, name, allowance, times=2)
            if change is not None:
                self.updates.put(name, change[0] / (change[1] + _EPSILON))

    def _fold_activations(self, step: StepView, budget: ReadBudget, wanted: Collection[str]) -> None:
        names = sorted((name for name in activations_of(step) if step.has_value(name)), key=natural)
        if not names or not self.activation_mean.is_next():
            return
        saturated = [name for name in names if limits_of(name) is not None]
        self.activation_mean.begin(step.step)
        self.activation_zeros.begin(step.step)
        if saturated:
            self.activation_saturated.begin(step.step)
            self.activation_saturated.rows_of(saturated, wanted)
        self.activation_zeros.rows_of(names, wanted)
        allowance = budget.of_step()
        for name in self.activation_mean.rows_of(names, wanted):
            found = budget.tensor(_activation, step, name, allowance)
            if found is None:
                continue
            mean, zeros, saturated_share = found
            self.activation_mean.put(name, mean)
            self.activation_zeros.put(name, zeros)
            if saturated_share is not None and name in self.activation_saturated.rows:
                self.activation_saturated.put(name, saturated_share)


def activations_of(step: StepView) -> frozenset[str]:
    """Return a step's activations; those of their collections alone where all names would take too long to search."""
    members = [step.members(collection) for collection in ACTIVATIONS]
    try:
        named = matching(step, ACTIVATION_NAMES)
    except NamePatternError:
        named = ()
    return frozenset().union(*members, named)


def limits_of(name: str) -> tuple[float, float] | None:
    """Return between which inputs a layer is not saturated; None of outputs, and of layers without limits."""
    lower = name.lower()
    if "input" not in lower or not ("tanh" in lower or "sigmoid" in lower):
        return None
    return SaturatedActivationParameters().limits(name)


def _measure_of(step: StepView, name: str) -> str:
    if step.reduction(name, "mean", absolute=True) is not None or step.has_value(name):
        return ABS_MEAN
    return L2 if step.reduction(name, "l2") is not None else ABS_MEAN


def _l2(step: StepView, name: str) -> float | None:
    saved = step.reduction(name, "l2")
    if saved is not None:
        return saved
    blocks = numbers(step, name)
    if blocks is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(sum(float(np.square(float64(block)).sum()) for block in blocks))


def _before(step: StepView, name: str) -> StepView | None:
    """Return the saved step before; None where only reductions of the tensor were saved then."""
    earlier = next(iter(step.earlier(name, 1)), None)
    return None if earlier is None or not earlier.has_value(name) else earlier


def _change(step: StepView, name: str) -> tuple[float, float] | None:
    """Return the norms of a tensor's change and of its earlier value; None where its shape was another."""
    earlier = _before(step, name)
    if earlier is None or earlier.shape(name) != step.shape(name):
        return None
    return change_of(step, earlier, name)


def _activation(step: StepView, name: str) -> tuple[float, float, float | None] | None:
    """Return the mean of all entries, and shares (0 to 1) of zeros and of saturated entries; None without limits."""
    blocks = numbers(step, name)
    if blocks is None:
        return None
    limits = limits_of(name)
    count, zeros, beyond, total = 0, 0, 0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            count += block.size
            zeros += block.size - int(np.count_nonzero(block))
            total += float(float64(block).sum())
            if limits is not None:
                beyond += int(np.count_nonzero((block <= limits[0]) | (block >= limits[1])))
    if not count:
        return None
    return total / count, zeros / count, None if limits is None else beyond / count
