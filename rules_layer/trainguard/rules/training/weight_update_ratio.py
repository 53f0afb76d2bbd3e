"""WeightUpdateRatio: weights that change too much from one saved step to the next, or not at all.

Source: AWS documentation of WeightUpdateRatio. The ratio is that of L2 norms over a whole tensor: element by element
some entry nearly always stays the same.
"""

import math
from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import weights_text
from trainguard.rules.training.compare import change_of
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, not_saved
from trainguard.rules.training.selection import WEIGHTS
from trainguard.rules.training.step_rule import USELESS, Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.weights_text import UPDATE, UpdateKind
from trainguard.tensors.step_view import Mode, StepView


class WeightUpdateRatioParameters(StepParameters, frozen=True, kw_only=True):
    """``num_steps`` is how far back, in steps, the value before may lie; None for the saved step before."""

    rule_name: ClassVar[str] = "WeightUpdateRatio"

    num_steps: PositiveInt | None = None
    large_threshold: NonNegative = 10.0
    small_threshold: NonNegative = 1e-8
    epsilon: NonNegative = 1e-9


class WeightUpdateRatioState(StepState, kw_only=True):
    """``training`` says whether weights were saved at a step of mode TRAIN: from then on only those count."""

    training: bool = False


SPEC = RuleSpec(
    name="training/WeightUpdateRatio",
    family="training",
    title="Weight updates",
    looks_at="each tensor of the collection weights",
    fires_when="it changes by far too much between two saved steps, or not at all",
    condition=(
        "the change of a weight, relative to its norm before, is above {large_threshold} or below {small_threshold}"
    ),
    measures=(Measure("change of a weight relative to its norm"),),
    counts=STEPS,
    parameters={
        "num_steps": ParameterHelp("steps", "how far back the value before may lie; None for the saved step before"),
        "large_threshold": ParameterHelp("", "a ratio above it is too large"),
        "small_threshold": ParameterHelp("", "a ratio below it is too small"),
        "epsilon": ParameterHelp("", "is added to the norm before, so that a zero weight has a ratio"),
        **RANGE_HELP,
    },
    text=weights_text.weight_update_ratio,
)


class WeightUpdateRatio(StepRule[WeightUpdateRatioParameters, WeightUpdateRatioState]):
    """Fires while a weight changes far too much, or not at all."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = WeightUpdateRatioParameters
    state_type = WeightUpdateRatioState
    needs = weights_text.UPDATE_NEEDS

    def watch(self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters) -> None:
        """Note whether the run trains in mode TRAIN."""
        del parameters
        state.training = state.training or (step.mode is Mode.TRAIN and bool(step.members(WEIGHTS)))

    def check(
        self, state: WeightUpdateRatioState, step: StepView, parameters: WeightUpdateRatioParameters
    ) -> Check | None:
        """Compare each weight with its value before; a run without modes is judged as a whole."""
        self.watch(state, step, parameters)
        if step.mode is not (Mode.TRAIN if state.training else Mode.GLOBAL):
            return None
        readings, waits = [], False
        for tensor in sorted(step.members(WEIGHTS)):
            before = _before(step, tensor, parameters.num_steps)
            if before is None:
                waits = True
                continue
            ratio = _ratio(state, step, before, tensor, parameters.epsilon)
            if ratio is not None:
                readings.append(_reading(tensor, ratio, parameters))
        state.waiting += waits
        return checked(step, readings, lambda reading: (measured(UPDATE, reading),))


def _before(step: StepView, tensor: str, num_steps: int | None) -> StepView | None:
    if num_steps is None:
        return next(iter(step.earlier(tensor, 1)), None)
    within = [view for view in step.earlier(tensor, num_steps) if view.step >= step.step - num_steps]
    return next(reversed(within), None)


def _ratio(state: StepState, step: StepView, before: StepView, tensor: str, epsilon: float) -> float | None:
    if not_saved(state, step, tensor) or not_saved(state, before, tensor):
        return None
    try:
        if step.shape(tensor) != before.shape(tensor):
            state.leave_out(f"tensor {tensor} has another shape at step {step.step} than at step {before.step}")
            return None
        found = change_of(step, before, tensor)
    except USELESS as fault:
        state.leave_out(str(fault))
        return None
    if found is None:
        return None
    change, norm = found
    return change / (norm + epsilon) if norm + epsilon else math.inf if change else 0.0


def _reading(tensor: str, ratio: float, parameters: WeightUpdateRatioParameters) -> Reading:
    large, small = parameters.large_threshold, parameters.small_threshold
    over, under = ratio / large if large else math.inf, small / ratio if ratio else math.inf
    if ratio < small or (under > over and not ratio > large):
        return Reading(tensor, ratio, small, ratio < small, under, UpdateKind.SMALL)
    return Reading(tensor, ratio, large, ratio > large, over, UpdateKind.LARGE)
