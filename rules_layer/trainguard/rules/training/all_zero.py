"""AllZero: a tensor that is zero, or a given share of it.

Source: AWS documentation of AllZero (all, or the given percentage of a tensor's values are zero).
"""

import math
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import Percent
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import values_text
from trainguard.rules.training.folds import zeros
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved, used
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.step_rule import Check, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.values_text import ZEROS, AllZeroKind
from trainguard.tensors.step_view import StepView


class AllZeroParameters(SelectingParameters, frozen=True, kw_only=True):
    """``threshold`` in percent of a tensor's entries."""

    rule_name: ClassVar[str] = "AllZero"
    required: ClassVar[bool] = True

    threshold: Percent = 100.0


SPEC = RuleSpec(
    name="training/AllZero",
    family="training",
    title="Zero tensors",
    looks_at="the selected tensors",
    fires_when="all entries of one are zero, or the given share of them",
    condition="{threshold} % of a tensor's entries or more are zero",
    measures=(Measure("share of zeros", "%"),),
    counts=STEPS,
    parameters={
        **SELECTION_HELP,
        "threshold": ParameterHelp("%", "a tensor with this share of zeros, or more, counts"),
        **RANGE_HELP,
    },
    text=values_text.all_zero,
)


class AllZero(StepRule[AllZeroParameters, StepState]):
    """Fires while a tensor, or the given share of it, is zero."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = AllZeroParameters
    state_type = StepState
    needs = values_text.ZERO_NEEDS

    def check(self, state: StepState, step: StepView, parameters: AllZeroParameters) -> Check | None:
        """Count the zeros of each tensor, or see in its size or its extremes whether it is all zero."""
        threshold = parameters.threshold
        readings = []

        def percent_of(view: StepView, tensor: str) -> float | None:
            return _percent(state, view, tensor, threshold)

        first: dict[float, Reading] = {}
        for tensor in parameters.tensors(step):
            percent = used(state, percent_of, step, tensor)
            if percent is None:
                continue
            if percent not in first:
                first[percent] = Reading(
                    tensor, percent, threshold, percent >= threshold, percent, _kind(percent, threshold)
                )
            readings.append(first[percent])
        return checked(step, readings, lambda reading: (measured(ZEROS, reading, "%"),))


def _kind(percent: float, threshold: float) -> AllZeroKind:
    return AllZeroKind.ZERO if percent >= threshold else AllZeroKind.FINE


def _percent(state: StepState, step: StepView, tensor: str, threshold: float) -> float | None:
    if step.has_value(tensor):
        found = zeros(step, tensor)
        return None if found is None else found.percent
    told = _told_by_size(step, tensor, threshold)
    if told is None:
        told = _told_by_extremes(step, tensor, threshold)
    if told is None:
        not_saved(state, step, tensor)
    return told


def _told_by_size(step: StepView, tensor: str, threshold: float) -> float | None:
    size = step.reduction(tensor, "mean", absolute=True)
    if size is None:
        size = step.reduction(tensor, "l1")
    if size is None or math.isnan(size):
        return None
    if size == 0.0:
        return 100.0
    return 0.0 if threshold >= 100.0 else None


def _told_by_extremes(step: StepView, tensor: str, threshold: float) -> float | None:
    least, most = step.reduction(tensor, "min"), step.reduction(tensor, "max")
    highest = step.reduction(tensor, "max", absolute=True)
    lowest = step.reduction(tensor, "min", absolute=True)
    if highest == 0.0 or (least == 0.0 and most == 0.0):
        return 100.0
    if _is_above_zero(lowest) or _is_above_zero(least) or (most is not None and most < 0.0):
        return 0.0
    some_entry = highest is not None or (least is not None and most is not None)
    return 0.0 if some_entry and threshold >= 100.0 else None


def _is_above_zero(value: float | None) -> bool:
    return value is not None and value > 0.0
