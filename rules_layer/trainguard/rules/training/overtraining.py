"""Overtraining: the loss of training, or of validation, has not improved for too many saved steps.

Source: AWS documentation of Overtraining. Each of the two patiences fires alone. In a run without modes the metrics of
XGBoost stand for both.
"""

import math
from typing import ClassVar

import msgspec

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.loss_facts import step as step_number
from trainguard.rules.training.losses import by_mode, mean_loss
from trainguard.rules.training.overtraining_text import NEEDS, OvertrainingKind, text
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked
from trainguard.rules.training.selection import LOSSES
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.tensors.step_view import Mode, StepView


class OvertrainingParameters(StepParameters, frozen=True, kw_only=True):
    """Patiences in saved steps of their mode; ``delta`` in units of the loss."""

    rule_name: ClassVar[str] = "Overtraining"

    patience_train: PositiveInt = 5
    patience_validation: PositiveInt = 10
    delta: NonNegative = 0.01


class BestLoss(msgspec.Struct, array_like=True):
    """The best loss of a mode, at which step, and for how many saved steps no loss was better by ``delta``."""

    best: float
    step: int
    steps: int = 0


class OvertrainingState(StepState, kw_only=True):
    """The best loss of training and of validation."""

    train: BestLoss | None = None
    validation: BestLoss | None = None


SPEC = RuleSpec(
    name="training/Overtraining",
    family="training",
    title="Overtraining",
    looks_at="the losses of training and of validation",
    fires_when="one of them has not improved for too many saved steps",
    condition=(
        "the loss has not fallen by more than {delta} below its best for {patience_train} saved steps of training, or "
        "{patience_validation} of validation"
    ),
    measures=(Measure("saved steps without improvement"),),
    counts=STEPS,
    parameters={
        "patience_train": ParameterHelp("saved steps", "so many of training without improvement count"),
        "patience_validation": ParameterHelp("saved steps", "so many of validation without improvement count"),
        "delta": ParameterHelp("loss", "an improvement is more than this, in units of the loss"),
        **RANGE_HELP,
    },
    text=text,
)


class Overtraining(StepRule[OvertrainingParameters, OvertrainingState]):
    """Fires while the loss of training or of validation does not improve."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OvertrainingParameters
    state_type = OvertrainingState
    needs = NEEDS

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
            (OvertrainingKind.TRAINING, Mode.TRAIN, state.train, parameters.patience_train),
            (OvertrainingKind.VALIDATION, Mode.EVAL, state.validation, parameters.patience_validation),
        )
        bests = {kind: best for kind, _, best, _ in both if best is not None}
        readings = [
            Reading(improved.get(mode), best.steps, patience, best.steps >= patience, best.steps / patience, kind)
            for kind, mode, best, patience in both
            if best is not None
        ]

        def facts(reading: Reading) -> tuple[Fact, ...]:
            best = bests[OvertrainingKind(str(reading.kind))]
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
        return check if check is None or check.fires else msgspec.structs.replace(check, kind=OvertrainingKind.IMPROVES)


def _after(best: BestLoss | None, loss: float, step: int, delta: float) -> BestLoss:
    if best is None or math.isnan(best.best) or loss < best.best - delta:
        return BestLoss(loss, step)
    return BestLoss(best.best, best.step, best.steps + 1)
