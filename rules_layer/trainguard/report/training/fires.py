"""The first step at which each rule over training fired, from the stored state of a job."""

from trainguard.errors import RuleFailedError
from trainguard.families.training.keys import TRAINING
from trainguard.families.training.stream import step_rules
from trainguard.families.training.streams import AnyStepStream, TrainingStreams
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.training.step_rule import Check


def first_fires(judged: EvaluatedJob) -> dict[str, Check]:
    """Return by rule the first check that fired, on debug-output or on files of scalars; none of rules that did not."""
    family = judged.streams.families.get(TRAINING)
    if not isinstance(family, TrainingStreams):
        return {}
    found: dict[str, Check] = {}
    for stream in family.of_steps.values():
        for rule in step_rules(judged.plan):
            check = _first(stream, rule.name)
            if check is not None and (rule.name not in found or check.step < found[rule.name].step):
                found[rule.name] = check
    return found


def _first(stream: AnyStepStream, rule: str) -> Check | None:
    """Return None of a rule that failed, and of one that is judged elsewhere: StalledTrainingRule by the clock."""
    try:
        return stream.state_of(rule).first
    except (KeyError, RuleFailedError):
        return None
