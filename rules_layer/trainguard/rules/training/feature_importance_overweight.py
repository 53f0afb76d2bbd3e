"""FeatureImportanceOverweight: a few features make up nearly all importance of an XGBoost model.

Source: AWS documentation of FeatureImportanceOverweight.
"""

from typing import ClassVar

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import NonNegative, PositiveInt
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import xgboost_text
from trainguard.rules.training.folds import scalar
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.selection import matching
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.xgboost_text import IMPORTANCE, FeaturesKind
from trainguard.tensors.step_view import StepView

MOST_SHOWN = 5


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
    text=xgboost_text.feature_importance_overweight,
)


class FeatureImportanceOverweight(StepRule[FeatureImportanceOverweightParameters, StepState]):
    """Fires while a few features make up nearly all importance."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = FeatureImportanceOverweightParameters
    state_type = StepState
    needs = xgboost_text.FEATURES_NEEDS

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
        fires = share > parameters.threshold
        kind = FeaturesKind.OVERWEIGHT if fires else FeaturesKind.FINE
        reading = Reading(top[0][1], share, parameters.threshold, fires, share, kind)
        counts = (
            Fact(name="top_features", value=len(top)),
            Fact(name="features", value=len(importances)),
            Fact(name="nfeatures", value=parameters.nfeatures),
        )
        names = [name if place == 0 else name.rpartition("/")[2] for place, (_, name) in enumerate(top[:MOST_SHOWN])]
        shown = [Fact(name="feature", value=name) for name in names]
        return checked(step, [reading], lambda each: (measured(IMPORTANCE, each, "share"), *counts, *shown))
