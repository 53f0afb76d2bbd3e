"""Overfit and Overtraining: losses that part, or improve no more. Source: AWS documentation of both."""

import math

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import MetricReading, checked
from trainguard.rules.training.run_series import by_mode, mean_loss, metric_pairs
from trainguard.rules.training.selection import LOSSES, selected
from trainguard.rules.training.series import step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled, said, step_spec

FINE, WAITS, OVERFITS = "fine", "waits", "overfits"


def _overfit_words(sheet: FactSheet) -> Words:
    above = "not above" if sheet.kind == FINE else "above"
    sentence = (
        "the mean loss of validation {was/is} {loss_validation:.6g} and that of training {loss_training:.6g}, a gap of "
        f"{{gap}} of it, {above} the threshold {{gap.threshold:.6g}}"
    )
    if sheet.get("times_in_a_row") is not None:
        sentence += ", {times_in_a_row:counted time} in a row (patience {patience})"
    return said(
        sheet,
        filled(sheet, f"{sentence}, by {{gap.series}}"),
        "Stop early, or use more data, augmentation, dropout or weight decay, or a smaller model. Check that both "
        "losses are the same measure: dropout and regularisation terms raise only that of training.",
        "the model overfitted",
        what="metrics",
    )


MOST_PAIRS = 32


_ON_SCALARS = (
    "It checks losses of training and of evaluation at steps or epochs: log both, or say by ScalarNames_losses and "
    "ScalarNames_evaluation which names are theirs."
)


class OverfitParameters(StepParameters, frozen=True, kw_only=True):
    tensor_regex: tuple[str, ...] | None = None
    patience: PositiveInt = 1
    ratio_threshold: float = 0.1


# The sum of losses, and how many they are.
Average = tuple[float, int]


def _with(average: Average, loss: float) -> Average:
    return average[0] + loss, average[1] + 1


class OverfitState(StepState, kw_only=True):
    """Losses since the last judgement, and how often in a row it was over the threshold: of phases, and of pairs."""

    train: Average = 0.0, 0
    validation: Average = 0.0, 0
    over: int = 0
    pairs: dict[str, int] = msgspec.field(default_factory=dict)


class Overfit(StepRule[OverfitParameters, OverfitState]):
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
        needs=(
            "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
            "name='losses'), set the mode in the script (hook.set_mode), and validate during training."
        ),
        on_scalars=_ON_SCALARS,
        changes={"": ChangeCode.STOP_EARLY},
        say=_overfit_words,
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
            state.validation = _with(state.validation, loss)
            state.waiting += 1
            return None
        check = _of_phases(state, step, tensors[0], parameters) if state.validation[1] else None
        state.train = _with(state.train, loss)
        state.waiting += check is None
        return check


def _of_phases(state: OverfitState, step: StepView, tensor: str, parameters: OverfitParameters) -> Check | None:
    (total, count), (held_total, held_count) = state.train, state.validation
    state.train = state.validation = 0.0, 0
    if total == 0.0:  # as where no loss was added
        return None
    means = total / count, held_total / held_count
    gap = _gap(*means)
    state.over = state.over + 1 if gap > parameters.ratio_threshold else 0
    reading = _gap_reading(tensor, gap, state.over, parameters)
    return checked(step, [reading], lambda each: _gap_facts(each, means, state.over, parameters))


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
        readings.append(_gap_reading(tensor, gap, state.pairs[metric], parameters))
    return checked(
        step,
        readings,
        lambda each: _gap_facts(each, means[each.tensor or ""], state.pairs[pairs[each.tensor or ""]], parameters),
    )


def _gap_reading(tensor: str, gap: float, over: int, parameters: OverfitParameters) -> MetricReading:
    fires = over >= parameters.patience
    kind = OVERFITS if fires else WAITS if over else FINE
    return MetricReading(tensor, gap, parameters.ratio_threshold, fires, gap, kind)


def _gap(train: float, validation: float) -> float:
    """Return by which share of its size the loss of validation is above that of training; NaN without a finite one."""
    return (validation - train) / abs(train)


def _gap_facts(
    reading: MetricReading, means: tuple[float, float], over: int, parameters: OverfitParameters
) -> tuple[Fact, ...]:
    train, validation = means
    in_a_row = (Fact(name="times_in_a_row", value=over), Fact(name="patience", value=parameters.patience))
    return (
        Fact(name="loss_validation", value=validation, series=reading.tensor),
        Fact(name="loss_training", value=train),
        Fact(name="gap", value=reading.value, unit="share", series=reading.tensor, threshold=reading.threshold),
        *(in_a_row if over and parameters.patience > 1 else ()),
    )


IMPROVES, TRAINING, VALIDATION = "improves", "training", "validation"


def _overtraining_words(sheet: FactSheet) -> Words:
    named = "" if sheet["loss_lowest"].series is None else " ({loss_lowest.series})"
    sentence = (
        f"the loss of {{of}}{named} {{had/has}} not fallen by more than {{delta}} below {{loss_lowest}} (step "
        "{loss_lowest_step}) for {steps_without_improvement:counted saved step}, "
        "{steps_without_improvement:side not below|below} the threshold {steps_without_improvement.threshold:.0f}"
    )
    return said(
        sheet,
        filled(sheet, sentence),
        "Stop early and keep the checkpoint of the best loss, or lower the learning rate. Set delta to the scale of "
        f"the loss: an improvement of {sheet.number('delta'):g} or less counts as none.",
        "the loss stopped improving",
        what="losses",
    )


class OvertrainingParameters(StepParameters, frozen=True, kw_only=True):
    patience_train: PositiveInt = 5
    patience_validation: PositiveInt = 10
    delta: NonNegative = 0.01


# The best loss of a mode, its step, and for how many saved steps no loss was better by ``delta``.
BestLoss = tuple[float, int, int]


class OvertrainingState(StepState, kw_only=True):
    train: BestLoss | None = None
    validation: BestLoss | None = None


class Overtraining(StepRule[OvertrainingParameters, OvertrainingState]):
    spec = step_spec(
        "Overtraining",
        title="Overtraining",
        looks_at="the losses of training and of validation",
        fires_when="one of them has not improved for too many saved steps",
        condition=(
            "the loss has not fallen by more than {delta} below its best for {patience_train} saved steps of "
            "training, or {patience_validation} of validation"
        ),
        measures=(Measure("saved steps without improvement"),),
        parameters={
            "patience_train": ParameterHelp("saved steps", "so many of training without improvement count"),
            "patience_validation": ParameterHelp("saved steps", "so many of validation without improvement count"),
            "delta": ParameterHelp("loss", "an improvement is more than this, in units of the loss"),
        },
        needs=(
            "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
            "name='losses'), and set the mode in the script (hook.set_mode)."
        ),
        on_scalars=_ON_SCALARS,
        changes={"": ChangeCode.STOP_EARLY},
        say=_overtraining_words,
        kinds=(IMPROVES, TRAINING, VALIDATION),
    )

    def check(self, state: OvertrainingState, step: StepView, parameters: OvertrainingParameters) -> Check | None:
        """Compare the step's loss with the best of its mode; a loss that is NaN is no improvement."""
        improved = {}
        for mode, tensors in by_mode(step, sorted(step.members(LOSSES))).items():
            loss = mean_loss(state, step, tensors)
            if loss is None:
                continue
            if mode is Mode.TRAIN:
                state.train = _after(state.train, loss, step.step, parameters.delta)
            else:
                state.validation = _after(state.validation, loss, step.step, parameters.delta)
            improved[mode] = tensors[0]
        if not improved:
            return None
        both = (
            (TRAINING, Mode.TRAIN, state.train, parameters.patience_train),
            (VALIDATION, Mode.EVAL, state.validation, parameters.patience_validation),
        )
        bests = {kind: best for kind, _, best, _ in both if best is not None}
        readings = [
            MetricReading(improved.get(mode), best[2], patience, best[2] >= patience, best[2] / patience, kind)
            for kind, mode, best, patience in both
            if best is not None
        ]

        def facts(reading: MetricReading) -> tuple[Fact, ...]:
            best, lowest_step, steps = bests[str(reading.kind)]
            return (
                Fact(name="of", value=str(reading.kind)),
                Fact(name="loss_lowest", value=best, series=reading.tensor),
                step_number("loss_lowest_step", lowest_step),
                Fact(name="steps_without_improvement", value=steps, unit="saved steps", threshold=reading.threshold),
                Fact(name="delta", value=parameters.delta),
            )

        check = checked(step, readings, facts)
        return check if check is None or check.fires else msgspec.structs.replace(check, kind=IMPROVES)


def _after(best: BestLoss | None, loss: float, step: int, delta: float) -> BestLoss:
    if best is None or math.isnan(best[0]) or loss < best[0] - delta:
        return loss, step, 0
    lowest, at, steps = best
    return lowest, at, steps + 1
