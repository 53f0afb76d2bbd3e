"""Whether a fire may stop its opted-in training job, as SageMaker describes it now; after a grace time asked again."""

import msgspec

from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobStatus
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.core.units import show_duration
from trainguard.engine.jobs.job_description import SAME_MOMENT_S, profile_place, stop_allowed
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop_preconditions import StopPreconditions, stop_objection
from trainguard.stack.actions.stop_switch import StopSwitch, StopSwitches

UPLOADING = "Uploading"


def decide_stop(
    case: StopCase,
    description: TrainingJobDescription | None,
    switch: StopSwitches,
    *,
    known: StopPreconditions,
    now: float,
) -> StopDecision:
    """Decide whether a fire stops its job, as SageMaker describes it now; ``now`` in epoch seconds."""
    reason = _objection_of_job(case, description) or stop_objection(case, known, now)
    if reason is not None:
        decision = _refused(reason)
    else:
        why = f"{STOP_TAG} is {STOP_ALLOWED!r} on job {case.job}, which is in progress"
        decision = permitted(case, switch, why=why, grace_s=case.policy.stops.grace_s, now=now)
    wanted = case.policy.stops.may_stop(case.rule) and not case.policy.alerts.is_staged(case.rule)
    opted_in = wanted and description is not None and stop_allowed(description)
    return msgspec.structs.replace(decision, opted_in=opted_in)


def permitted(
    case: StopCase, switch: StopSwitches, *, why: str, grace_s: float, now: float, hint: str = ""
) -> StopDecision:
    """Return the decision on a job that permits a stop; ``hint`` is what to do within ``grace_s`` seconds."""
    if (objection := switch.objection(job=case.job, rule=case.rule, now=now)) is not None:
        return _refused(objection)
    if switch.in_force is StopSwitch.DRY_RUN or case.policy.stops.dry_run:
        after = f" after a grace time of {show_duration(grace_s)}" if grace_s > 0.0 else ""
        who = switch.why if switch.in_force is StopSwitch.DRY_RUN else "its owner asked for a dry run"
        return StopDecision(False, "dry-run", f"{who}: job {case.job} would have been stopped{after}")
    if case.attempt == "first" and grace_s > 0.0:
        begun = f"its grace time of {show_duration(grace_s)} has begun" + (f"; {hint}" if hint else "")
        return StopDecision(False, "grace", begun, iso_time(now + grace_s))
    return StopDecision(True, "stop", why)


def over_stop_rate(limit: int) -> StopDecision:
    why = f"this deployment makes at most {limit} stops an hour, and the last hour has had them"
    return StopDecision(False, "refused", why, opted_in=True)


def _objection_of_job(case: StopCase, description: TrainingJobDescription | None) -> str | None:
    """Return the objection of the owner, or of the job as it is now, to a stop."""
    if case.policy.alerts.is_staged(case.rule):
        return f"{case.rule} is staged"
    if description is None:
        return f"SageMaker does not know a training job {case.job}"
    if not stop_allowed(description):
        given = description.tags.get(STOP_TAG)
        found = "has no tag" if given is None else f"has the value {given!r} in its tag"
        return f"its owner has not opted in: job {case.job} {found} {STOP_TAG}, expected {STOP_ALLOWED!r}"
    if not case.policy.stops.may_stop(case.rule):
        return f"{case.rule} is not among the rules that may stop job {case.job}"
    if profile_place(description) is None:
        return f"nothing says where the profile of job {case.job} lies, so that anybody's objects could be it"
    return _objection_of_identity(case, description) or _objection_of_status(case, description)


def _objection_of_identity(case: StopCase, description: TrainingJobDescription) -> str | None:
    """Return why the job may not be the fire's: only the time of creation distinguishes jobs of one name."""
    if description.arn != case.job_arn:
        return f"the job of that name is {description.arn}, not {case.job_arn}"
    if case.job_created_at is None or description.created_at is None:
        return f"it is not known when job {case.job} was created, nor so whether it is the one that the fire is about"
    if abs(description.created_at - epoch_of(case.job_created_at)) > SAME_MOMENT_S:
        created = iso_time(description.created_at)
        return f"another job of that name was created at {created}; the fire is about that of {case.job_created_at}"
    return None


def _objection_of_status(case: StopCase, description: TrainingJobDescription) -> str | None:
    if description.status is not JobStatus.IN_PROGRESS:
        return f"job {case.job} is {description.status.value}, not {JobStatus.IN_PROGRESS.value}"
    if description.secondary_status == UPLOADING:
        return f"job {case.job} is uploading its model"
    return None


def _refused(why: str) -> StopDecision:
    return StopDecision(False, "refused", why)
