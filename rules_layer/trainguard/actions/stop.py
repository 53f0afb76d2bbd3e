"""Whether a fire may stop its training job.

Stopping is opt-in. The decision looks at the job as SageMaker describes it now, never at a copy; IAM enforces the same
tag once more, whatever this says.
"""

from dataclasses import dataclass
from enum import StrEnum

from trainguard.engine.registration import STOP_ALLOWED, STOP_TAG, stop_allowed
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobStatus

UPLOADING = "Uploading"

MAX_FIRE_AGE_S = 1_800.0
"""A fire is minutes old when all is well; an older one comes from a backlog or a replay."""


class StopSwitch(StrEnum):
    """The deployment's stop switch."""

    ENABLED = "enabled"
    DRY_RUN = "dry-run"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class StopDecision:
    """Whether to stop; ``decision`` is stop, dry-run or refused, ``why`` a sentence for the alert and the row."""

    stop: bool
    decision: str
    why: str


def decide_stop(
    job: str, description: TrainingJobDescription | None, switch: str, *, fired_at: float, now: float
) -> StopDecision:
    """Decide whether a fire of ``job`` stops it.

    Parameters
    ----------
    job : str
    fired_at, now : float
        Event time at which the rule fired, and the time of the decision, epoch seconds: what was true hours ago, when a
        backlog is worked off, says nothing of the job as it is.
    description : TrainingJobDescription or None
        The job and its tags as SageMaker gives them now.
    switch : str
        Value of the deployment's stop switch; anything but ``enabled`` and ``dry-run`` refuses.
    """
    reason = _objection(job, description)
    if reason is None and now - fired_at > MAX_FIRE_AGE_S:
        reason = f"the fire is {(now - fired_at) / 60.0:.0f} min old, and the job may have recovered since"
    if reason is not None:
        return _refused(reason)
    if switch == StopSwitch.ENABLED:
        return StopDecision(True, "stop", f"{STOP_TAG} is {STOP_ALLOWED!r} on job {job}, which is in progress")
    if switch == StopSwitch.DRY_RUN:
        return StopDecision(False, "dry-run", f"the stop switch is {switch!r}: job {job} would have been stopped")
    return _refused(f"the stop switch is {switch!r}")


def _objection(job: str, description: TrainingJobDescription | None) -> str | None:
    if description is None:
        return f"SageMaker does not know a training job {job}"
    if not stop_allowed(description):
        given = description.tags.get(STOP_TAG)
        found = "has no tag" if given is None else f"has the value {given!r} in its tag"
        return f"its owner has not opted in: job {job} {found} {STOP_TAG}, expected {STOP_ALLOWED!r}"
    if description.status is not JobStatus.IN_PROGRESS:
        return f"job {job} is {description.status.value}, not {JobStatus.IN_PROGRESS.value}"
    if description.secondary_status == UPLOADING:
        return f"job {job} is uploading its model"
    return None


def _refused(why: str) -> StopDecision:
    return StopDecision(False, "refused", why)
