"""StalledTrainingRule on a running job: nothing new came for longer than its patience, and S3 was asked about it.

That no message came proves nothing: the queue may be behind. So when a stream has been silent for as long as the
threshold, the tick asks for a look at S3, and the rule fires by what that look found: `StepsState.looked_s`.
"""

from collections.abc import Sequence

from trainguard.families.training.stream import StepsState
from trainguard.finding import Fact
from trainguard.records import JobRecord, JobStatus, Status
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.stalled_training import (
    StalledTrainingRule,
    StalledTrainingRuleParameters,
    StalledTrainingRuleState,
    patience_s,
)
from trainguard.rules.training.stalled_training_text import StallKind, text
from trainguard.rules.training.step_rule import RunView
from trainguard.rules.training.step_text import StepKind

_TRAINS = frozenset({None, "Training"})
"""Secondary statuses in which a job may write steps; it downloads, uploads, stops or waits for instances in others."""


def judge_stall(
    rule: StalledTrainingRule, job: JobRecord, states: Sequence[StepsState], parameters: StalledTrainingRuleParameters
) -> RuleResult:
    """Return what the clock says of a job, from the states of its streams (at least one)."""
    if job.closing or job.status.is_final or any(state.ended for state in states):
        return RuleResult.of(text, Status.OK, StallKind.ENDED)
    newest = max(states, key=lambda state: state.progress_s or 0.0)
    if newest.progress_s is None:
        return RuleResult.of(text, Status.WARMING_UP, StepKind.NO_STEP)
    if job.status is not JobStatus.IN_PROGRESS:
        status = Fact(name="job_status", value=job.status.value)
        return RuleResult.of(text, Status.NOT_APPLICABLE, StallKind.NOT_RUNNING, (status,))
    looked_s, longest_s = min(state.looked_s for state in states), max(state.longest_s for state in states)
    silent_s = max(looked_s - newest.progress_s, 0.0)
    if silent_s <= patience_s(parameters, longest_s) or job.secondary_status not in _TRAINS:
        at = newest.progress_s
        since = Fact(name="time_since_object", value=silent_s, unit="s", start=at, end=at + silent_s)
        return RuleResult.of(text, Status.OK, StallKind.NEWEST, (since,), data_points=newest.steps)
    known = StalledTrainingRuleState(step=newest.step, evaluated=newest.steps, longest_s=longest_s)
    return rule.judge_at(known, RunView(newest.steps), parameters, now=looked_s, progress_at=newest.progress_s)
