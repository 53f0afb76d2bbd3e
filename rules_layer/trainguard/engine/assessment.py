"""One look at a whole job, without any store: its verdicts, and what follows from them.

The deployed tick and the local engine both call `assess` once a minute, so that there is one way through a minute:
which rules fire on the whole job, which notifications are due, and which episodes end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainguard.engine.diagnosis.case import Case, case_of
from trainguard.engine.outbox.notifications import due_notifications, notified_cleared
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.verdicts.liveness import ends_episode
from trainguard.engine.verdicts.nearness import is_near
from trainguard.engine.verdicts.verdict import Fire, Verdict
from trainguard.job_limits import LAST_EPISODE
from trainguard.records import JobRecord, OutboxEntry


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a look at a job found.

    Attributes
    ----------
    case : Case
        The job as it was judged.
    fires : tuple of Fire
        Fires of rules over the whole job that began.
    news : tuple of OutboxEntry
        Escalations and all-clears to send.
    ended : mapping of str to int
        Numbers of the episodes that end with this look, by rule: the next fire of the rule is one of its own.
    near : bool
        Whether a rule is near a change, so that the job is to be looked at each minute.
    """

    case: Case
    fires: tuple[Fire, ...]
    news: tuple[OutboxEntry, ...]
    ended: Mapping[str, int]
    near: bool


def assess(job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None) -> Assessment:
    """Judge the job and decide what follows; ``now`` is the time of the look, epoch seconds.

    Moves the episodes in ``streams.state``, and takes note there of the notifications. Nothing else changes: a second
    look at the same streams finds nothing new.
    """
    case, fires = case_of(job, plan, streams, now=now)
    verdicts = case.verdicts
    near = any(family.near for family in streams.families.values())
    news = due_notifications(job, plan, verdicts, case.account, streams.state, case.ledger_once)
    return Assessment(
        case=case,
        fires=tuple(fires),
        news=tuple(news),
        ended=ended_episodes(verdicts, streams.state, job.episodes),
        near=near or any(is_near(verdict.result, verdict.history) for verdict in verdicts),
    )


def ended_episodes(verdicts: Sequence[Verdict], state: JobState, episodes: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of the job's current episodes that have ended, by rule.

    An episode ends when people were alerted of it and its verdict says so: it is over, or began anew after its nodes
    had fallen silent. It ends as well when people were notified that it is over and its condition has come back since:
    then an earlier tick died after it had noted the notification and before it had raised the number. The last episode
    that may fire never ends.

    Parameters
    ----------
    verdicts : sequence of Verdict
        The job's verdicts.
    state : JobState
        What people were notified of.
    episodes : mapping of str to int
        The job's current episode by rule; a rule that is missing is in its episode 0.
    """
    ended = {}
    for verdict in verdicts:
        current = episodes.get(verdict.rule, 0)
        is_over = ends_episode(verdict) or notified_cleared(state, verdict.rule, current)
        if verdict.history.alerted == current and is_over and current < LAST_EPISODE:
            ended[verdict.rule] = current
    return ended
