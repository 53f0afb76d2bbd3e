"""CreateXgboostReport: it never fires; where it is chosen, a report on the XGBoost model is written."""

from typing import ClassVar

from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import xgboost_text
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import step_fact
from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import Check, StepParameters, StepRule, StepState
from trainguard.rules.training.xgboost_text import ReportKind
from trainguard.tensors.step_view import StepView

COLLECTIONS = ("metrics", "feature_importance", "predictions", "labels")


class CreateXgboostReportParameters(StepParameters, frozen=True, kw_only=True):
    """It has none of its own."""

    rule_name: ClassVar[str] = "CreateXgboostReport"


SPEC = RuleSpec(
    name="training/CreateXgboostReport",
    family="training",
    title="XGBoost report",
    looks_at="metrics, feature importance, labels and predictions of an XGBoost model",
    fires_when="never: it asks for a report",
    condition="never",
    counts=STEPS,
    parameters=RANGE_HELP,
    informs_only=True,
    text=xgboost_text.create_xgboost_report,
)


class CreateXgboostReport(StepRule[CreateXgboostReportParameters, StepState]):
    """Never fires: it counts the steps that a report on the XGBoost model has something of."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = CreateXgboostReportParameters
    state_type = StepState
    needs = xgboost_text.REPORT_NEEDS

    def check(self, state: StepState, step: StepView, parameters: CreateXgboostReportParameters) -> Check | None:
        """Say how many of the report's tensors a step holds."""
        del state, parameters
        tensors = len(selected(step, COLLECTIONS, None))
        if not tensors:
            return None
        facts = (step_fact(step), Fact(name="tensors", value=tensors))
        return Check(step=step.step, at=step.at, fires=False, kind=ReportKind.HOLDS, facts=facts)
