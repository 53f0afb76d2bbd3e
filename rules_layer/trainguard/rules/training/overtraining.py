"""Overtraining: the loss of training, or of validation, has not improved for too many saved steps.

Source: AWS documentation of Overtraining. Each of the two patiences fires alone. In a run without modes the metrics of
XGBoost stand for both.
"""

import math
from typing import ClassVar

import msgspec

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.losses import by_mode, mean_loss
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, check_of
from trainguard.rules.training.selection import LOSSES
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.units import counted
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
    clause="the loss stopped improving",
)


class Overtraining(StepRule[OvertrainingParameters, OvertrainingState]):
    """Fires while the loss of training or of validation does not improve."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OvertrainingParameters
    state_type = OvertrainingState
    needs = (
        "It checks the collection losses at steps of modes TRAIN and EVAL: record it with CollectionConfig("
        "name='losses'), and set the mode in the script (hook.set_mode)."
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
            ("training", Mode.TRAIN, state.train, parameters.patience_train),
            ("validation", Mode.EVAL, state.validation, parameters.patience_validation),
        )
        bests = {str(mode): (what, best) for what, mode, best, _ in both if best is not None}
        readings = [
            Reading(improved.get(mode), best.steps, patience, best.steps >= patience, best.steps / patience, mode)
            for _, mode, best, patience in both
            if best is not None
        ]

        def say(reading: Reading) -> str:
            what, best = bests[str(reading.kind)]
            named = f" ({reading.tensor})" if reading.tensor else ""
            compared = "not below" if reading.fires else "below"
            return (
                f"the loss of {what}{named} has not fallen by more than {parameters.delta:.4g} below "
                f"{best.best:.4g} (step {best.step}) for {counted(best.steps, 'saved step')}, {compared} the threshold "
                f"{reading.threshold:.0f}"
            )

        return check_of(step, readings, say, what="losses")

    def advice(self, check: Check, parameters: OvertrainingParameters) -> str:
        """Say when to stop, and that the improvement that counts is absolute."""
        del check
        return (
            "Stop early and keep the checkpoint of the best loss, or lower the learning rate. Set delta to the scale "
            f"of the loss: an improvement of {parameters.delta:g} or less counts as none."
        )


def _after(best: BestLoss | None, loss: float, step: int, delta: float) -> BestLoss:
    if best is None or math.isnan(best.best) or loss < best.best - delta:
        return BestLoss(loss, step)
    return BestLoss(best.best, best.step, best.steps + 1)
