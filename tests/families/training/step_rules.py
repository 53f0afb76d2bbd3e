"""Two rules over steps whose verdicts are easy to foresee, and one that only the clock judges."""

import numpy as np

from trainguard.core.finding import Fact
from trainguard.engine.training.stream import STALLED
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.protocol import Positive
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.training.registry import AnyStepRule
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import step_spec


def _said(sheet: FactSheet) -> Words:
    return Words(sheet.name("said"))


class HighLossParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` is a loss."""

    threshold: Positive = 100.0


class HighLoss(StepRule[HighLossParameters, StepState]):
    """Fires while the first member of the collection losses is over the threshold."""

    spec = step_spec(
        "HighLoss",
        looks_at="losses",
        fires_when="the first is high",
        condition="the first loss is over {threshold}",
        needs="It checks losses: record the collection losses.",
        say=_said,
    )

    def check(self, state: StepState, step: StepView, parameters: HighLossParameters) -> Check | None:
        losses = sorted(step.members("losses"))
        if not losses:
            return None
        value = float(step.value(losses[0]).reshape(-1)[0])
        return Check(
            step=step.step,
            at=step.at,
            fires=value > parameters.threshold,
            facts=(Fact(name="said", value=f"Step {step.step}: the loss is {value:g}."),),
            tensor=losses[0],
            value=value,
            threshold=parameters.threshold,
        )


class SameWeights(StepRule[StepParameters, StepState]):
    """Fires while the tensor ``weight`` is what it was at the step before."""

    spec = step_spec(
        "SameWeights",
        looks_at="the tensor weight",
        fires_when="it is what it was",
        condition="the weight is that of the step before",
        needs="It checks the tensor weight: record it.",
        say=_said,
    )

    def check(self, state: StepState, step: StepView, parameters: StepParameters) -> Check | None:
        earlier = step.earlier("weight", 1) if "weight" in step.names else ()
        if not earlier:
            return None
        same = bool(np.array_equal(step.value("weight"), earlier[0].value("weight")))
        before = earlier[0].step
        reason = f"Step {step.step}: the weight is {'' if same else 'not '}that of step {before}."
        return Check(step=step.step, at=step.at, fires=same, facts=(Fact(name="said", value=reason),), tensor="weight")


RULES: tuple[AnyStepRule, ...] = (HighLoss(), SameWeights())
HIGH_LOSS, SAME_WEIGHTS = (rule.name for rule in RULES)
__all__ = ["HIGH_LOSS", "RULES", "SAME_WEIGHTS", "STALLED"]
