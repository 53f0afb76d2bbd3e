"""Whether the finding of a fire is still there when it asks for a stop.

Right after a fire its rows may be older than the fire. So the first decision refuses what is known to be over, and asks
for no proof while the fire is young. A fire out of a backlog must be proven. After a grace time the row must say that
the fire is still open. Times of two nodes cannot be compared to the minute; the fire's own node has one writer, so that
a later time in its row is later.
"""

from dataclasses import dataclass

from trainguard.core.records import JOB_NODE, JobRecord, RuleRow, Status
from trainguard.core.stores import Jobs, RuleStates
from trainguard.core.timestamps import epoch_of
from trainguard.stack.actions.request import StopCase

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
    ended = _of_episode(case, known.job)
    if ended is not None:
        return ended
    if known.row is None:
        return f"the row of {case.rule} is gone"
    if case.attempt == "final":
        return _of_final(case, known.row, now)
    return _of_age(case, now) or _of_fire(case, known.row) or _of_first(case, known, now)


def _of_episode(case: StopCase, job: JobRecord | None) -> str | None:
    if job is None:
        return f"TrainGuard no longer knows job {case.job}"
    if job.episodes.get(case.rule, 0) != case.episode:
        return f"the finding of {case.rule} is over: its episode {case.episode} has ended"
    return None


def _of_age(case: StopCase, now: float) -> str | None:
    age_s = now - epoch_of(case.fired_at)
    if age_s < -MAX_CLOCK_LEAD_S:
        return f"the fire lies {-age_s / 60.0:.0f} min in the future: the node's clock is wrong, and its age not known"
    if age_s <= MAX_FIRE_AGE_S:
        return None
    return f"the fire is {age_s / 60.0:.0f} min old, and the job may have recovered since"


def _of_fire(case: StopCase, row: RuleRow) -> str | None:
    if row.fire_id != case.fire_id:
        return f"the row of {case.rule} is not that of this fire"
    return None


def _of_first(case: StopCase, known: StopPreconditions, now: float) -> str | None:
    """Return the objection of published rows right after the fire."""
    fired_at = epoch_of(case.fired_at)
    seen = []
    for row, ahead_s in (
        (known.row, 0.0 if case.node == JOB_NODE else NODES_APART_S),
        (known.node_row, 0.0),
    ):
        if row is None or row.evaluated_through is None:
            continue
        later_s = row.evaluated_through - fired_at
        if row.status is not Status.FIRED and later_s > ahead_s:
            return _no_longer(row)
        seen.append(row.status is Status.FIRED and later_s >= 0.0)
    if now - fired_at > UNSEEN_AGE_S and not any(seen):
        return f"{case.rule} was not evaluated since it fired, and the job may have recovered since"
    return None


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
    if watermark_s < epoch_of(case.fired_at):
        return f"{case.rule} was not evaluated since it fired, and the job may have recovered since"
    return None


def _no_longer(row: RuleRow) -> str:
    where = "" if row.node is None else f" on {row.node}"
    return f"{row.rule} no longer fires{where}: {row.finding.reason}"
