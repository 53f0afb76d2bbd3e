"""LossNotDecreasing: the loss has not fallen enough over a number of steps, or has risen.

Source: AWS documentation of LossNotDecreasing, as it stands since October 2020.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import MetricReading, checked, known, scalar
from trainguard.rules.training.selection import LOSSES, selected
from trainguard.rules.training.series import level_of, step_number
from trainguard.rules.training.step_rule import Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, filled, said, step_spec

FALLS, ROSE_LITTLE, FLAT, RISEN = "falls", "rose little", "flat", "risen"


_LOWER = "Lower the learning rate, lengthen its warm-up or clip gradients, and check the data of these steps."
_CHANGE = (
    "Change the learning rate or its schedule, or stop early if the loss is as low as it gets. A loss that is noisy "
    "from step to step needs a larger num_steps."
)


def _words(sheet: FactSheet) -> Words:
    rises = sheet.kind in (RISEN, ROSE_LITTLE)
    before, now = sheet.number("loss_before"), sheet.number("loss_now")
    moved = "did not change" if before == now else "did not fall"
    if before != now and sheet.number("change") != 0.0:
        moved = "rose by {change} %" if now > before else "fell by {change} %"
    mode = "" if sheet.get("mode") is None else " of mode {mode}"
    sentence = (
        f"{{change.series}} {moved} since step {{compared_step}}{mode}, from {{loss_before:.6g}} to {{loss_now:.6g}}, "
        f"{{change:against {'above|not above' if rises else 'below|not below'}}} %"
    )
    clause = "the loss rose" if rises else "the loss did not decrease"
    return said(sheet, filled(sheet, sentence), _LOWER if rises else _CHANGE, clause, what="losses")


MOST_KEPT = 32


class LossHistory(msgspec.Struct, array_like=True):
    """Saved steps, counted within their mode, and the loss at each; ``checked`` is the step of the last check.

    Only steps are kept that a later check may look back on. Where those are more than 32, every second one goes; a
    check may then look further back than it must, by a sixteenth of ``num_steps``.
    """

    steps: list[int] = msgspec.field(default_factory=list)
    losses: list[float] = msgspec.field(default_factory=list)
    checked: int | None = None

    def reference(self, step: int, num_steps: int) -> tuple[int, float] | None:
        pairs = zip(reversed(self.steps), reversed(self.losses), strict=True)
        return next((pair for pair in pairs if pair[0] <= step - num_steps), None)

    def is_due(self, step: int, num_steps: int) -> bool:
        return self.checked is None or step - self.checked >= num_steps

    def add(self, step: int, loss: float, num_steps: int) -> None:
        """Keep a step, and let go those that no later step looks back on."""
        self.steps.append(step)
        self.losses.append(loss)
        if self.checked is not None:
            first = next(index for index, saved in enumerate(self.steps) if saved >= self.checked)
        else:
            first = max(sum(saved <= step - num_steps for saved in self.steps) - 1, 0)
        keep = range(first, len(self.steps))
        if len(keep) > MOST_KEPT:  # by one: of an odd number of steps the first and the newest stay
            keep = keep[::2]
        self.steps = [self.steps[index] for index in keep]
        self.losses = [self.losses[index] for index in keep]


MOST_TENSORS = 32
PREFERRED = (Mode.EVAL, Mode.TRAIN, Mode.GLOBAL)


class LossNotDecreasingParameters(SelectingParameters, frozen=True, kw_only=True):
    use_losses_collection: bool = True
    num_steps: PositiveInt = 10
    diff_percent: NonNegative = 0.1
    increase_threshold_percent: NonNegative = 5.0
    mode: Literal["TRAIN", "EVAL", "PREDICT", "GLOBAL"] | None = None


class LossNotDecreasingState(StepState, kw_only=True):
    """Each loss by mode and tensor; at most 32 tensors of a mode."""

    losses: dict[str, dict[str, LossHistory]] = msgspec.field(default_factory=dict)


class LossNotDecreasing(StepRule[LossNotDecreasingParameters, LossNotDecreasingState]):
    spec = step_spec(
        "LossNotDecreasing",
        title="Loss that does not decrease",
        looks_at="the losses, or the selected tensors, that are single numbers",
        fires_when="one falls too little over a number of steps, or rises",
        condition=(
            "a loss falls by less than {diff_percent} % over {num_steps} steps, or rises by more than "
            "{increase_threshold_percent} %"
        ),
        measures=(Measure("fall of the loss", "%"), Measure("rise of the loss", "%")),
        parameters={
            **SELECTION_HELP,
            "use_losses_collection": ParameterHelp("", "whether the collection losses is checked too"),
            "num_steps": ParameterHelp("steps", "how far apart, at least, the two losses are that are compared"),
            "diff_percent": ParameterHelp("%", "a fall of less is none"),
            "increase_threshold_percent": ParameterHelp("%", "a rise of more is one"),
            "mode": ParameterHelp(
                "", "TRAIN, EVAL, PREDICT or GLOBAL; None for the first of EVAL, TRAIN and GLOBAL that has a loss"
            ),
        },
        needs=(
            "It checks losses that are single numbers, at steps num_steps apart: record them with "
            "CollectionConfig(name='losses')."
        ),
        on_scalars="It checks losses at steps num_steps apart: log more of them, or set num_steps.",
        changes={"": ChangeCode.CHANGE_LEARNING_RATE, RISEN: ChangeCode.LOWER_LEARNING_RATE},
        say=_words,
        kinds=(FALLS, ROSE_LITTLE, FLAT, RISEN),
        bound=("value", "of tensors beyond the first 32 of a mode"),
    )

    measures_by_kind: ClassVar[Mapping[str, Measure]] = dict.fromkeys((RISEN, ROSE_LITTLE), spec.measures[1])

    def watch(self, state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters) -> None:
        for tensor, loss in _losses(state, step, parameters):
            history = _history(state, step.mode, tensor)
            if history is not None:
                history.add(step.mode_step, loss, parameters.num_steps)

    def check(
        self, state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters
    ) -> Check | None:
        known = (each for each in PREFERRED if each is step.mode or state.losses.get(each))
        wanted: str | None = parameters.mode or next(known, None)
        readings, held = [], False
        since: dict[str, tuple[int, float, float]] = {}
        for tensor, loss in _losses(state, step, parameters):
            history = _history(state, step.mode, tensor)
            if history is None:
                continue
            reference = history.reference(step.mode_step, parameters.num_steps)
            if wanted == step.mode and reference is not None and history.is_due(step.mode_step, parameters.num_steps):
                history.checked = step.mode_step
                since[tensor] = *reference, loss
                readings.append(_reading(tensor, reference[1], loss, parameters))
            history.add(step.mode_step, loss, parameters.num_steps)
            held = True
        state.waiting += held and not readings

        def facts(reading: MetricReading) -> tuple[Fact, ...]:
            name = reading.tensor or ""
            earlier, before, now = since[name]
            return (
                *([] if step.mode is Mode.GLOBAL else [Fact(name="mode", value=str(step.mode))]),
                step_number("compared_step", earlier),
                level_of("loss_before", name, before),
                level_of("loss_now", name, now),
                Fact(name="change", value=reading.value, unit="%", series=name, threshold=reading.threshold),
            )

        return checked(step, readings, facts)


def _losses(
    state: LossNotDecreasingState, step: StepView, parameters: LossNotDecreasingParameters
) -> Sequence[tuple[str, float]]:
    """Return the selected tensors of a step that are single numbers; all where nothing is selected."""
    collections = (*(parameters.collection_names or ()), *((LOSSES,) if parameters.use_losses_collection else ()))
    tensors = selected(step, collections, parameters.tensor_regex)
    wanted = tensors if tensors or parameters.selects else step.names
    return [(tensor, loss) for loss, tensor in known(state, scalar, step, wanted)]


def _history(state: LossNotDecreasingState, mode: Mode, tensor: str) -> LossHistory | None:
    of_mode = state.losses.setdefault(mode, {})
    if tensor not in of_mode:
        if len(of_mode) >= MOST_TENSORS:
            state.left_out += 1
            return None
        of_mode[tensor] = LossHistory()
    return of_mode[tensor]


def _reading(tensor: str, before: float, now: float, parameters: LossNotDecreasingParameters) -> MetricReading:
    least, most = parameters.diff_percent, parameters.increase_threshold_percent
    if before == 0.0:
        fires = now >= 0.0 and least > 0.0
        return MetricReading(tensor, 0.0, least, fires, 1.0 if fires else -1.0, FLAT if fires else FALLS)
    fall = 100.0 * (before - now) / abs(before)
    if fall < 0.0:
        risen = RISEN if -fall > most else ROSE_LITTLE
        return MetricReading(tensor, -fall, most, -fall > most, -fall - most, risen)
    return MetricReading(tensor, fall, least, fall < least, least - fall, FLAT if fall < least else FALLS)
