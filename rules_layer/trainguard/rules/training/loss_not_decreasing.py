"""LossNotDecreasing: the loss has not fallen enough over a number of steps, or has risen.

Source: AWS documentation of LossNotDecreasing, as it stands since October 2020: a fall of less than diff_percent fires,
and so does a rise of more than increase_threshold_percent, while a rise between does not.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.folds import scalar
from trainguard.rules.training.loss_facts import level
from trainguard.rules.training.loss_facts import step as step_number
from trainguard.rules.training.loss_history import LossHistory
from trainguard.rules.training.loss_not_decreasing_text import BOUND, NEEDS, DecreaseKind, text
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.selection import LOSSES, selected
from trainguard.rules.training.step_rule import Check, StepRule, StepState
from trainguard.tensors.step_view import Mode, StepView

MOST_TENSORS = 32
PREFERRED = (Mode.EVAL, Mode.TRAIN, Mode.GLOBAL)


class LossNotDecreasingParameters(SelectingParameters, frozen=True, kw_only=True):
    """``num_steps`` counts steps of the mode; ``mode`` None takes the first of EVAL, TRAIN and GLOBAL with a loss."""

    rule_name: ClassVar[str] = "LossNotDecreasing"

    use_losses_collection: bool = True
    num_steps: PositiveInt = 10
    diff_percent: NonNegative = 0.1
    increase_threshold_percent: NonNegative = 5.0
    mode: Literal["TRAIN", "EVAL", "PREDICT", "GLOBAL"] | None = None


class LossNotDecreasingState(StepState, kw_only=True):
    """Each loss by mode and tensor; at most 32 tensors of a mode."""

    losses: dict[str, dict[str, LossHistory]] = msgspec.field(default_factory=dict)


SPEC = RuleSpec(
    name="training/LossNotDecreasing",
    family="training",
    title="Loss that does not decrease",
    looks_at="the losses, or the selected tensors, that are single numbers",
    fires_when="one falls too little over a number of steps, or rises",
    condition=(
        "a loss falls by less than {diff_percent} % over {num_steps} steps, or rises by more than "
        "{increase_threshold_percent} %"
    ),
    measures=(Measure("fall of the loss", "%"), Measure("rise of the loss", "%")),
    counts=STEPS,
    parameters={
        **SELECTION_HELP,
        "use_losses_collection": ParameterHelp("", "whether the collection losses is checked too"),
        "num_steps": ParameterHelp("steps", "how far apart, at least, the two losses are that are compared"),
        "diff_percent": ParameterHelp("%", "a fall of less is none"),
        "increase_threshold_percent": ParameterHelp("%", "a rise of more is one"),
        "mode": ParameterHelp(
            "", "TRAIN, EVAL, PREDICT or GLOBAL; None for the first of EVAL, TRAIN and GLOBAL that has a loss"
        ),
        **RANGE_HELP,
    },
    text=text,
)


class LossNotDecreasing(StepRule[LossNotDecreasingParameters, LossNotDecreasingState]):
    """Fires while a loss does not fall."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = LossNotDecreasingParameters
    state_type = LossNotDecreasingState
    needs = NEEDS
    bound = BOUND

    def watch(self, state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters) -> None:
        """Keep the losses of a step before the range, which checks within it look back on."""
        for tensor, loss in _losses(state, step, parameters):
            history = _history(state, step.mode, tensor)
            if history is not None:
                history.add(step.mode_step, loss, parameters.num_steps)

    def check(
        self, state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters
    ) -> Check | None:
        """Compare each loss with the newest one at least ``num_steps`` before, once in so many steps."""
        counts = self._counts(state, step.mode, parameters)
        readings, held = [], False
        since: dict[str, tuple[int, float, float]] = {}
        for tensor, loss in _losses(state, step, parameters):
            history = _history(state, step.mode, tensor)
            if history is None:
                continue
            reference = history.reference(step.mode_step, parameters.num_steps)
            if counts and reference is not None and history.is_due(step.mode_step, parameters.num_steps):
                history.checked = step.mode_step
                since[tensor] = *reference, loss
                readings.append(_reading(tensor, reference[1], loss, parameters))
            history.add(step.mode_step, loss, parameters.num_steps)
            held = True
        state.waiting += held and not readings

        def facts(reading: Reading) -> tuple[Fact, ...]:
            name = reading.tensor or ""
            earlier, before, now = since[name]
            return (
                *([] if step.mode is Mode.GLOBAL else [Fact(name="mode", value=str(step.mode))]),
                step_number("compared_step", earlier),
                level("loss_before", name, before),
                level("loss_now", name, now),
                Fact(name="change", value=reading.value, unit="%", series=name, threshold=reading.threshold),
            )

        return checked(step, readings, facts)

    def measure(self, check: Check) -> Measure:
        """Say whether a fall or a rise was measured."""
        return SPEC.measures[1 if check.kind in (DecreaseKind.RISEN, DecreaseKind.ROSE_LITTLE) else 0]

    def _counts(self, state: LossNotDecreasingState, mode: Mode, parameters: LossNotDecreasingParameters) -> bool:
        """Whether losses of a mode are checked: the one that is asked for, or the first that has had a loss."""
        if parameters.mode is not None:
            return mode == parameters.mode
        return mode == next((each for each in PREFERRED if each is mode or state.losses.get(each)), None)


def _losses(
    state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters
) -> Sequence[tuple[str, float]]:
    """Return the selected tensors of a step that are single numbers; all where nothing is selected."""
    collections = (*(parameters.collection_names or ()), *((LOSSES,) if parameters.use_losses_collection else ()))
    tensors = selected(step, collections, parameters.tensor_regex)
    found = _scalars(state, step, tensors)
    return found if tensors or parameters.selects else _scalars(state, step, step.names)


def _scalars(state: LossNotDecreasingState, step: StepView, tensors: Sequence[str]) -> Sequence[tuple[str, float]]:
    found = [(tensor, used(state, scalar, step, tensor)) for tensor in tensors]
    return [(tensor, loss) for tensor, loss in found if loss is not None]


def _history(state: LossNotDecreasingState, mode: Mode, tensor: str) -> LossHistory | None:
    """Return what is kept of a loss; None, and counted, where too many others are."""
    of_mode = state.losses.setdefault(mode, {})
    if tensor not in of_mode:
        if len(of_mode) >= MOST_TENSORS:
            state.left_out += 1
            return None
        of_mode[tensor] = LossHistory()
    return of_mode[tensor]


def _reading(tensor: str, before: float, now: float, parameters: LossNotDecreasingParameters) -> Reading:
    """Compare two losses; from a loss of 0 nothing can fall relative to it, so that only a loss below 0 is a fall."""
    least, most = parameters.diff_percent, parameters.increase_threshold_percent
    if before == 0.0:
        fires = now >= 0.0 and least > 0.0
        return Reading(tensor, 0.0, least, fires, 1.0 if fires else -1.0, _kind(fires))
    fall = 100.0 * (before - now) / abs(before)
    if fall < 0.0:
        risen = DecreaseKind.RISEN if -fall > most else DecreaseKind.ROSE_LITTLE
        return Reading(tensor, -fall, most, -fall > most, -fall - most, risen)
    return Reading(tensor, fall, least, fall < least, least - fall, _kind(fall < least))


def _kind(fires: bool) -> DecreaseKind:
    return DecreaseKind.FLAT if fires else DecreaseKind.FALLS
