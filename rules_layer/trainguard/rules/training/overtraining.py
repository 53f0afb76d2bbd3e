"""Overtraining: a loss has not improved for too many saved steps. Source: AWS documentation of Overtraining."""

import math

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.units import counted
from trainguard.formats.tensors.step_view import Mode, StepView
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Reading, checked
from trainguard.rules.training.run_series import by_mode, mean_loss
from trainguard.rules.training.selection import LOSSES
from trainguard.rules.training.series import step_number
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import several_words, step_spec

IMPROVES, TRAINING, VALIDATION = "improves", "training", "validation"


def _words(sheet: FactSheet) -> Words:
    steps, best = sheet["steps_without_improvement"], sheet["loss_lowest"]
    fires = sheet.kind != IMPROVES
    named = "" if best.series is None else f" ({best.series})"
    delta = sheet.number("delta")
    verb = "had" if sheet.past else "has"
    reason = (
        f"Step {sheet['step'].value}: the loss of {sheet.name('of')}{named} {verb} not fallen by more than {delta:.4g} "
        f"below {float(best.value):.4g} (step {sheet['loss_lowest_step'].value}) for "
        f"{counted(int(steps.value), 'saved step')}, {'not below' if fires else 'below'} the threshold "
        f"{steps.threshold:.0f}{several_words(sheet, 'losses')}."
    )
    if not fires:
        return Words(reason)
    advice = (
        "Stop early and keep the checkpoint of the best loss, or lower the learning rate. Set delta to the scale of "
        f"the loss: an improvement of {delta:g} or less counts as none."
    )
    return Words(reason, advice, "the loss stopped improving")


class OvertrainingParameters(StepParameters, frozen=True, kw_only=True):
    """Patiences in saved steps of their mode; ``delta`` in units of the loss."""

    patience_train: PositiveInt = 5
    patience_validation: PositiveInt = 10
    delta: NonNegative = 0.01


class BestLoss(msgspec.Struct, array_like=True):
    """The best loss of a mode, its step, and for how many saved steps no loss was better by ``delta``."""

    best: float
    step: int
    steps: int = 0


class OvertrainingState(StepState, kw_only=True):
    """The best loss of training and of validation."""

    train: BestLoss | None = None
    validation: BestLoss | None = None


class Overtraining(StepRule[OvertrainingParameters, OvertrainingState]):
    """Fires while the loss of training or of validation does not improve."""

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
        say=_words,
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
            Reading(improved.get(mode), best.steps, patience, best.steps >= patience, best.steps / patience, kind)
            for kind, mode, best, patience in both
            if best is not None
        ]

        def facts(reading: Reading) -> tuple[Fact, ...]:
            best = bests[str(reading.kind)]
            return (
                Fact(name="of", value=str(reading.kind)),
                Fact(name="loss_lowest", value=best.best, series=reading.tensor),
                step_number("loss_lowest_step", best.step),
                Fact(
                    name="steps_without_improvement", value=best.steps, unit="saved steps", threshold=reading.threshold
                ),
                Fact(name="delta", value=parameters.delta),
            )

        check = checked(step, readings, facts)
        return check if check is None or check.fires else msgspec.structs.replace(check, kind=IMPROVES)


def _after(best: BestLoss | None, loss: float, step: int, delta: float) -> BestLoss:
    if best is None or math.isnan(best.best) or loss < best.best - delta:
        return BestLoss(loss, step)
    return BestLoss(best.best, best.step, best.steps + 1)
