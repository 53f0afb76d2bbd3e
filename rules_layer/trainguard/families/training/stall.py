"""StalledTrainingRule on a running job: nothing new came for longer than the threshold, and S3 was asked about it.

That no message came proves nothing: the queue may be behind. So when a stream has been silent for as long as the
threshold, the tick asks for a look at S3, and the rule fires by what that look found: `StepsState.looked_s`.
"""

from collections.abc import Sequence

from trainguard.families.training.stream import StepsState
from trainguard.finding import clock_times
from trainguard.records import JobRecord, JobStatus, Status
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.stalled_training import (
    StalledTrainingRule,
    StalledTrainingRuleParameters,
    StalledTrainingRuleState,
)
from trainguard.rules.training.step_rule import RunView
from trainguard.timestamps import iso_time

_TRAINS = frozenset({None, "Training"})
"""Secondary statuses in which a job may write steps; it downloads, uploads, stops or waits for instances in others."""


def judge_stall(
    rule: StalledTrainingRule, job: JobRecord, states: Sequence[StepsState], parameters: StalledTrainingRuleParameters
) -> RuleResult:
    """Return what the clock says of a job, from the states of its streams (at least one)."""
    if job.closing or job.status.is_final or any(state.ended for state in states):
        return RuleResult(Status.OK, "Training has ended.")
    newest = max(states, key=lambda state: state.progress_s or 0.0)
    if newest.progress_s is None:
        return RuleResult(Status.WARMING_UP, "No step was saved yet.")
    if job.status is not JobStatus.IN_PROGRESS:
        reason = f"The job's status is {job.status.value}: whether it still trains is not known."
        return RuleResult(Status.NOT_APPLICABLE, reason)
    looked_s = min(state.looked_s for state in states)
    if looked_s - newest.progress_s <= parameters.threshold or job.secondary_status not in _TRAINS:
        at = clock_times(iso_time(newest.progress_s), iso_time(newest.progress_s))
        return RuleResult(Status.OK, f"The newest object came at {at}.", data_points=newest.steps)
    known = StalledTrainingRuleState(step=newest.step, evaluated=newest.steps)
    return rule.judge_at(known, RunView(newest.steps), parameters, now=looked_s, progress_at=newest.progress_s)
