"""One report a rule of training health, in the words of SageMaker Debugger: ``debugger-reports/<Rule>.json``."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from trainguard.local.training import EvaluatedTraining, RuleSteps
from trainguard.records import Status
from trainguard.report.encode import encode_report
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.training.registry import TRAINING_RULES
from trainguard.rules.training.step_rule import StepState

DebuggerStatus = Literal["NoIssuesFound", "IssuesFound", "Error", "NotApplicable"]
_RANK: Mapping[DebuggerStatus, int] = {"IssuesFound": 0, "NoIssuesFound": 1, "Error": 2, "NotApplicable": 3}


def debugger_reports(done: EvaluatedTraining) -> dict[str, bytes]:
    """Return the report of every rule by its file's name.

    Of a job with tensors and files of scalars, the stream counts that says most: one with a finding, else one on which
    the rule could check a step.
    """
    reports = {}
    for rule in TRAINING_RULES:
        said = [_report(each) for rules in done.streams for each in rules if each.rule is rule]
        if said:
            best = min(said, key=lambda report: _RANK[report["status"]])
            reports[f"debugger-reports/{best['rule']}.json"] = encode_report(best)
    return reports


def _report(said: RuleSteps) -> dict[str, Any]:
    state = StepState() if said.state is None else said.state
    shown = state.first or state.latest
    return {
        "rule": said.rule.name.rpartition("/")[2],
        "status": _status(said, state),
        "first_step": None if state.first is None else state.first.step,
        "steps": list(said.steps),
        "tensor": None if shown is None else shown.tensor,
        "value": None if shown is None else _finite(shown.value),
        "threshold": None if shown is None else _finite(shown.threshold),
        "reason": said.result.reason if state.first is None else said.rule.said(state.first),
        "parameters": {name: value for name, value in said.parameters.items() if name not in UNSHOWN},
    }


def _status(said: RuleSteps, state: StepState) -> DebuggerStatus:
    if said.result.status is Status.ERROR:
        return "Error"
    if state.first is not None:
        return "IssuesFound"
    judged = said.result.status in {Status.OK, Status.FIRED}
    return "NoIssuesFound" if judged else "NotApplicable"


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has; None of NaN and infinity, which the reason names."""
    return value if value is not None and math.isfinite(value) else None
