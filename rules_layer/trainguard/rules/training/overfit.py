"""Overfit: the loss of validation is clearly above the loss of training. Source: AWS documentation of Overfit."""

from typing import ClassVar

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.protocol import PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Reading, checked
from trainguard.rules.training.run_series import mean_loss, metric_pairs
from trainguard.rules.training.selection import LOSSES, selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import several_words, step_spec

NEEDS = (
    "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
    "name='losses'), set the mode in the script (hook.set_mode), and validate during training."
)


FINE, WAITS, OVERFITS = "fine", "waits", "overfits"


def _words(sheet: FactSheet) -> Words:
    gap, times, patience = sheet["gap"], sheet.get("times_in_a_row"), sheet.get("patience")
    verb = "was" if sheet.past else "is"
    above = "not above" if sheet.kind == FINE else "above"
    reason = (
        f"Step {sheet['step'].value}: the mean loss of validation {verb} {sheet.number('loss_validation'):.6g} and "
        f"that of training {sheet.number('loss_training'):.6g}, a gap of {float(gap.value):.4g} of it, {above} the "
        f"threshold {gap.threshold:.6g}"
    )
    if times is not None and patience is not None:
        reason += f", {counted(int(times.value), 'time')} in a row (patience {patience.value})"
    reason += f", by {gap.series}{several_words(sheet, 'metrics')}."
    if sheet.kind != OVERFITS:
        return Words(reason)
    advice = (
        "Stop early, or use more data, augmentation, dropout or weight decay, or a smaller model. Check that both "
        "losses are the same measure: dropout and regularisation terms raise only that of training."
    )
    return Words(reason, advice, "the model overfitted")


MOST_PAIRS = 32


class OverfitParameters(StepParameters, frozen=True, kw_only=True):
    """``tensor_regex`` None stands for the collection losses; ``patience`` counts phases of validation."""

    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)

    tensor_regex: tuple[str, ...] | None = None
    patience: PositiveInt = 1
    ratio_threshold: float = 0.1


class Average(msgspec.Struct, array_like=True):
    """Sum and count of the losses of a phase."""

    total: float = 0.0
    count: int = 0

    def add(self, loss: float) -> None:
        """Take in the loss of a step."""
        self.total += loss
        self.count += 1


class OverfitState(StepState, kw_only=True):
    """Losses since the last judgement, and how often in a row it was over the threshold: of phases, and of pairs."""

    train: Average = msgspec.field(default_factory=Average)
    validation: Average = msgspec.field(default_factory=Average)
    over: int = 0
    pairs: dict[str, int] = msgspec.field(default_factory=dict)


class Overfit(StepRule[OverfitParameters, OverfitState]):
    """Fires while the loss of validation is clearly above that of training."""

    spec = step_spec(
        "Overfit",
        title="Overfitting",
        looks_at="the losses of training and of validation",
        fires_when="that of validation is clearly above that of training",
        condition=(
            "the loss of validation is above that of training by more than {ratio_threshold} of it, {patience} times "
            "in a row"
        ),
        measures=(Measure("gap of the losses relative to the loss of training"),),
        parameters={
            "tensor_regex": ParameterHelp(
                "patterns", "regular expressions, separated by commas, that names of losses match; None for losses"
            ),
            "patience": ParameterHelp("phases", "how often in a row the gap must be over the threshold"),
            "ratio_threshold": ParameterHelp("", "a gap above this share of the loss of training counts"),
        },
        needs=NEEDS,
        say=_words,
        kinds=(FINE, WAITS, OVERFITS),
        bound=("value", "of metrics beyond the first 32"),
    )

    def watch(self, state: OverfitState, step: StepView, parameters: OverfitParameters) -> None:
        """Collect losses before the range too: only the verdict waits for it."""
        self.check(state, step, parameters)

    def check(self, state: OverfitState, step: StepView, parameters: OverfitParameters) -> Check | None:
        """Collect the step's loss; judge at the first step of training after a validation, and pairs at once."""
        if parameters.tensor_regex is None:
            tensors = tuple(sorted(step.members(LOSSES)))
        else:
            tensors = selected(step, None, parameters.tensor_regex)
        if step.mode is Mode.GLOBAL:
            return _of_pairs(state, step, tensors, parameters)
        if step.mode not in (Mode.TRAIN, Mode.EVAL):
            return None
        loss = mean_loss(state, step, tensors)
        if loss is None:
            return None
        if step.mode is Mode.EVAL:
            state.validation.add(loss)
            state.waiting += 1
            return None
        check = _of_phases(state, step, tensors[0], parameters) if state.validation.count else None
        state.train.add(loss)
        state.waiting += check is None
        return check


def _of_phases(state: OverfitState, step: StepView, tensor: str, parameters: OverfitParameters) -> Check | None:
    train, validation = state.train, state.validation
    state.train, state.validation = Average(), Average()
    if train.total == 0.0:  # as where no loss was added
        return None
    means = train.total / train.count, validation.total / validation.count
    gap = _gap(*means)
    state.over = state.over + 1 if gap > parameters.ratio_threshold else 0
    reading = _reading(tensor, gap, state.over, parameters)
    return checked(step, [reading], lambda each: _facts(each, means, state.over, parameters))


def _of_pairs(
    state: OverfitState, step: StepView, tensors: tuple[str, ...], parameters: OverfitParameters
) -> Check | None:
    readings = []
    means: dict[str, tuple[float, float]] = {}
    pairs: dict[str, str] = {}
    for metric, names in metric_pairs(tensors).items():
        train, validation = mean_loss(state, step, names[:1]), mean_loss(state, step, names[1:])
        if train is None or validation is None or train == 0.0:
            continue
        if metric not in state.pairs and len(state.pairs) >= MOST_PAIRS:
            state.left_out += 1
            continue
        gap = _gap(train, validation)
        state.pairs[metric] = state.pairs.get(metric, 0) + 1 if gap > parameters.ratio_threshold else 0
        tensor = names[1]
        means[tensor], pairs[tensor] = (train, validation), metric
        readings.append(_reading(tensor, gap, state.pairs[metric], parameters))
    return checked(
        step,
        readings,
        lambda each: _facts(each, means[each.tensor or ""], state.pairs[pairs[each.tensor or ""]], parameters),
    )


def _reading(tensor: str, gap: float, over: int, parameters: OverfitParameters) -> Reading:
    fires = over >= parameters.patience
    kind = OVERFITS if fires else WAITS if over else FINE
    return Reading(tensor, gap, parameters.ratio_threshold, fires, gap, kind)


def _gap(train: float, validation: float) -> float:
    """Return by which share of its size the loss of validation is above that of training; NaN without a finite one."""
    return (validation - train) / abs(train)


def _facts(reading: Reading, means: tuple[float, float], over: int, parameters: OverfitParameters) -> tuple[Fact, ...]:
    train, validation = means
    in_a_row = (Fact(name="times_in_a_row", value=over), Fact(name="patience", value=parameters.patience))
    return (
        Fact(name="loss_validation", value=validation, series=reading.tensor),
        Fact(name="loss_training", value=train),
        Fact(name="gap", value=reading.value, unit="share", series=reading.tensor, threshold=reading.threshold),
        *(in_a_row if over and parameters.patience > 1 else ()),
    )
