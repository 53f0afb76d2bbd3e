"""FeatureImportanceOverweight: a few features make up nearly all importance of an XGBoost model.

Source: AWS documentation of FeatureImportanceOverweight.
"""

from typing import ClassVar

from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.folds import scalar
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, check_of, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.tensors.step_view import StepView


class FeatureImportanceOverweightParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` is a share, 0 to 1."""

    rule_name: ClassVar[str] = "FeatureImportanceOverweight"
    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)

    threshold: NonNegative = 0.8
    nfeatures: PositiveInt = 3
    tensor_regex: str = ".*feature_importance/weight"


SPEC = RuleSpec(
    name="training/FeatureImportanceOverweight",
    family="training",
    title="Feature importance",
    looks_at="the importance of each feature of an XGBoost model",
    fires_when="a few features make up nearly all of it",
    condition="the {nfeatures} most important features make up more than a share of {threshold} of all importance",
    measures=(Measure("share of the most important features"),),
    counts=STEPS,
    parameters={
        "threshold": ParameterHelp("", "a share above it is too high"),
        "nfeatures": ParameterHelp("features", "how many of the most important ones are added up"),
        "tensor_regex": ParameterHelp("pattern", "a regular expression that names of importances match"),
        **RANGE_HELP,
    },
    clause="a few features made up nearly all importance",
)


class FeatureImportanceOverweight(StepRule[FeatureImportanceOverweightParameters, StepState]):
    """Fires while a few features make up nearly all importance."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = FeatureImportanceOverweightParameters
    state_type = StepState
    needs = (
        "It checks the importance of features of an XGBoost model: record it with "
        "CollectionConfig(name='feature_importance')."
    )

    def check(
        self, state: StepState, step: StepView, parameters: FeatureImportanceOverweightParameters
    ) -> Check | None:
        """Compare the sum of the greatest importances with that of all; features never used have none."""
        found = [(used(state, scalar, step, name), name) for name in matching(step, parameters.tensor_regex)]
        importances = sorted(((value, name) for value, name in found if value is not None), reverse=True)
        total = sum(value for value, _ in importances)
        if not total:
            return None
        top = importances[: parameters.nfeatures]
        share = sum(value for value, _ in top) / total
        reading = Reading(top[0][1], share, parameters.threshold, share > parameters.threshold, share)
        return check_of(step, [reading], lambda each: _say(each, [name for _, name in top], len(importances)))

    def advice(self, check: Check, parameters: FeatureImportanceOverweightParameters) -> str:
        """Say what to check in the features."""
        del check
        return (
            "Check these features for leakage of the label, and the others for errors. A model of "
            f"{parameters.nfeatures} used features or fewer always fires: lower nfeatures for it."
        )


def _say(reading: Reading, names: list[str], features: int) -> str:
    others = [name.rpartition("/")[2] for name in names[1:5]] + (["…"] if len(names) > 5 else [])
    shown = ", ".join([names[0], *others])
    compared = "above" if reading.fires else "not above"
    return (
        f"{len(names)} of {features} used features ({shown}) make up a share of {reading.value:.4g} of all importance, "
        f"{compared} the threshold {reading.threshold:.6g}"
    )
