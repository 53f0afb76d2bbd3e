"""The steps at which each rule over training began to fire, from the stored state of a job."""

from typing import NamedTuple

from trainguard.errors import RuleFailedError
from trainguard.families.training.keys import TRAINING
from trainguard.families.training.stream import step_rules
from trainguard.families.training.streams import AnyStepStream, TrainingStreams
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.training.step_rule import Check, StepState


class RuleFires(NamedTuple):
    """The first check of a rule that fired, what it says, and the steps at which it began to fire, in their order."""

    first: Check
    reason: str
    episodes: tuple[int, ...]


def rule_fires(judged: EvaluatedJob) -> dict[str, RuleFires]:
    """Return by rule where it fired, on debug-output and on files of scalars; none of rules that did not."""
    family = judged.streams.families.get(TRAINING)
    if not isinstance(family, TrainingStreams):
        return {}
    found = {}
    for rule in step_rules(judged.plan):
        states = [_state(stream, rule.name) for stream in family.of_steps.values()]
        fired = [(each.first, each.onsets) for each in states if each is not None and each.first is not None]
        if fired:
            first = min((check for check, _ in fired), key=lambda check: check.step)
            begins = {step for check, steps in fired for step in (check.step, *steps)}
            found[rule.name] = RuleFires(first, rule.said(first), tuple(sorted(begins)))
    return found


def _state(stream: AnyStepStream, rule: str) -> StepState | None:
    """Return None of a rule that failed, and of one that is judged elsewhere: StalledTrainingRule by the clock."""
    try:
        return stream.state_of(rule)
    except (KeyError, RuleFailedError):
        return None
