"""Whether a fire may stop its opted-in training job, as SageMaker describes it now; after a grace time asked again."""

from dataclasses import dataclass

from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JOB_NODE, JobRecord, JobStatus, RuleRow, Status
from trainguard.core.stores import Jobs, RuleStates
from trainguard.core.timestamps import epoch_of, iso_time
from trainguard.core.units import show_duration
from trainguard.engine.jobs.job_description import SAME_MOMENT_S, profile_place, stop_allowed
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop_switch import StopSwitch, StopSwitches

# A fire is minutes old when all is well; an older one comes from a backlog or a replay.
MAX_FIRE_AGE_S = 1_800.0

# An older fire must be seen to be there still; a lag beyond this sets off an alarm.
UNSEEN_AGE_S = 900.0

# How far a node's clock may be ahead; a later time has no age that could be trusted.
MAX_CLOCK_LEAD_S = 300.0

# How far other nodes may be ahead of the fire's, and the job's row with them.
NODES_APART_S = 300.0


@dataclass(frozen=True, slots=True)
class StopPreconditions:
    """The registered job and the rule's rows; ``node_row`` is None for a fire of the whole job."""

    job: JobRecord | None
    row: RuleRow | None
    node_row: RuleRow | None = None

    @classmethod
    def read(cls, case: StopCase, jobs: Jobs, rows: RuleStates) -> "StopPreconditions":
        of_node = None if case.node == JOB_NODE else rows.load(case.job, f"{case.rule}#{case.node}")
        return cls(job=jobs.load(case.job), row=rows.load(case.job, case.rule), node_row=of_node)


def stop_objection(case: StopCase, known: StopPreconditions, now: float) -> str | None:
    """Return why the finding may be over at ``now``, epoch seconds; None where it stands."""
    if known.job is None:
        return f"TrainGuard no longer knows job {case.job}"
    if known.job.episodes.get(case.rule, 0) != case.entry.episode:
        return f"the finding of {case.rule} is over: its episode {case.entry.episode} has ended"
    if known.row is None:
        return f"the row of {case.rule} is gone"
    return _of_final(case, known.row, now) if case.attempt == "final" else _of_first(case, known, known.row, now)


def _of_first(case: StopCase, known: StopPreconditions, of_rule: RuleRow, now: float) -> str | None:
    """Return the objection of the fire's age, and of the rows published right after it."""
    fired_at = case.entry.enqueued_at
    age_s = now - fired_at
    if age_s < -MAX_CLOCK_LEAD_S:
        return f"the fire lies {-age_s / 60.0:.0f} min in the future: the node's clock is wrong, and its age not known"
    if age_s > MAX_FIRE_AGE_S:
        return f"the fire is {age_s / 60.0:.0f} min old, and the job may have recovered since"
    if of_rule.fire_id != case.fire_id:
        return _taken_over(case, of_rule)
    seen = []
    for row, ahead_s in ((of_rule, 0.0 if case.node == JOB_NODE else NODES_APART_S), (known.node_row, 0.0)):
        if row is None or row.evaluated_through is None:
            continue
        later_s = row.evaluated_through - fired_at
        if row.status is not Status.FIRED and later_s > ahead_s:
            return _no_longer(row)
        seen.append(row.status is Status.FIRED and later_s >= 0.0)
    if age_s > UNSEEN_AGE_S and not any(seen):
        return f"{case.rule} was not evaluated since it fired, and the job may have recovered since"
    return None


def _taken_over(case: StopCase, row: RuleRow) -> str:
    if row.fire_id is None:
        return f"the row of {case.rule} names no fire: that it fired could not be written there"
    return f"a newer fire, {row.fire_id}, has taken over the row of {case.rule}, or this one could not be written there"


def _of_final(case: StopCase, row: RuleRow, now: float) -> str | None:
    """Return why the finding may be over after the grace time."""
    if row.status is not Status.FIRED:
        return _no_longer(row)
    if row.fire_id != case.fire_id:
        return f"{case.rule} has fired again since, and that fire has its own grace time"
    return _of_watermark(case, row.evaluated_through, now)


def _of_watermark(case: StopCase, watermark_s: float | None, now: float) -> str | None:
    """Return why the row may not be true of the job as it is now; ``watermark_s`` in epoch seconds."""
    if watermark_s is None:
        return f"{case.rule} was never evaluated, and the job may have recovered since"
    if now - watermark_s > MAX_FIRE_AGE_S:
        seen = f"{(now - watermark_s) / 60.0:.0f} min ago"
        return f"{case.rule} was evaluated {seen} for the last time, and the job may have recovered since"
    if watermark_s - now > MAX_CLOCK_LEAD_S:
        return f"{case.rule} was evaluated at a time that is still to come: a node's clock is wrong"
    if watermark_s < case.entry.enqueued_at:
        return f"{case.rule} was not evaluated since it fired, and the job may have recovered since"
    return None


def _no_longer(row: RuleRow) -> str:
    where = "" if row.node is None else f" on {row.node}"
    return f"{row.rule} no longer fires{where}: {row.finding.reason}"


@dataclass(frozen=True, slots=True)
class StopTarget:
    """A training job or resources, as described now.

    ``forbidden`` says why owner or deployment let no fire stop it, ``unfit`` why it may not be what the fire is about,
    or does not run; None where they do, and where it is and runs. ``allowed`` is the phrase of a stop, ``hint`` what to
    do within the ``grace_s`` seconds before.
    """

    forbidden: str | None
    unfit: str | None
    opted_in: bool
    allowed: str
    grace_s: float
    hint: str = ""


def decide(
    case: StopCase, target: StopTarget, switch: StopSwitches, *, known: StopPreconditions, now: float
) -> StopDecision:
    """Decide whether a fire may stop ``target``; the first objection is the reason."""
    stops, is_staged = case.policy.stops, case.policy.alerts.is_staged(case.rule)
    may_stop, grace_s = stops.may_stop(case.rule), target.grace_s
    opted_in = target.opted_in and may_stop and not is_staged
    objection = (
        (f"{case.rule} is staged" if is_staged else None)
        or target.forbidden
        or (None if may_stop else f"{case.rule} is not among the rules that may stop job {case.job}")
        or target.unfit
        or stop_objection(case, known, now)
        or switch.objection(job=case.job, rule=case.rule, now=now)
    )
    if objection is not None:
        return StopDecision(False, "refused", objection, opted_in=opted_in)
    if switch.in_force is StopSwitch.DRY_RUN or stops.dry_run:
        after = f" after a grace time of {show_duration(grace_s)}" if grace_s > 0.0 else ""
        who = switch.why if switch.in_force is StopSwitch.DRY_RUN else "its owner asked for a dry run"
        why = f"{who}: job {case.job} would have been stopped{after}"
        return StopDecision(False, "dry-run", why, opted_in=opted_in)
    if case.attempt == "first" and grace_s > 0.0:
        begun = f"its grace time of {show_duration(grace_s)} has begun" + (f"; {target.hint}" if target.hint else "")
        return StopDecision(False, "grace", begun, iso_time(now + grace_s), opted_in)
    return StopDecision(True, "stop", target.allowed, opted_in=opted_in)


UPLOADING = "Uploading"


def decide_stop(
    case: StopCase,
    description: TrainingJobDescription | None,
    switch: StopSwitches,
    *,
    known: StopPreconditions,
    now: float,
) -> StopDecision:
    """Decide whether a fire may stop its training job; ``now`` in epoch seconds."""
    return decide(case, _training_job(case, description), switch, known=known, now=now)


def _training_job(case: StopCase, description: TrainingJobDescription | None) -> StopTarget:
    opted_in = description is not None and stop_allowed(description)
    return StopTarget(
        forbidden=None if opted_in else _objection_of_owner(case, description),
        unfit=None if description is None else _objection_of_job(case, description),
        opted_in=opted_in,
        allowed=f"{STOP_TAG} is {STOP_ALLOWED!r} on job {case.job}, which is in progress",
        grace_s=case.policy.stops.grace_s,
    )


def over_stop_rate(limit: int) -> StopDecision:
    why = f"this deployment makes at most {limit} stops an hour, and the last hour has had them"
    return StopDecision(False, "refused", why, opted_in=True)


def _objection_of_owner(case: StopCase, description: TrainingJobDescription | None) -> str:
    if description is None:
        return f"SageMaker does not know a training job {case.job}"
    given = description.tags.get(STOP_TAG)
    found = "has no tag" if given is None else f"has the value {given!r} in its tag"
    return f"its owner has not opted in: job {case.job} {found} {STOP_TAG}, expected {STOP_ALLOWED!r}"


def _objection_of_job(case: StopCase, description: TrainingJobDescription) -> str | None:
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
