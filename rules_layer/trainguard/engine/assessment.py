"""One look at a whole job, without any store; the deployed reconciler and the local engine both call `assess`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainguard.core.job_limits import LAST_EPISODE
from trainguard.core.records import JobRecord, OutboxEntry
from trainguard.engine.diagnosis.case import Case, case_of
from trainguard.engine.outbox.notifications import due_notifications, notified_cleared
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import JobState, JobStreams
from trainguard.engine.streams.rule_runner import is_near_threshold
from trainguard.engine.verdicts.combine import ends_episode
from trainguard.engine.verdicts.verdict import Fire, Verdict


@dataclass(frozen=True, slots=True)
class Assessment:
    """Result of a look: job-wide ``fires``, ``follow_ups``, and the numbers of the episodes that ``ended``, by rule."""

    case: Case
    fires: tuple[Fire, ...]
    follow_ups: tuple[OutboxEntry, ...]
    ended: Mapping[str, int]
    near_threshold: bool


def assess(job: JobRecord, plan: RulePlan, streams: JobStreams, *, now: float | None = None) -> Assessment:
    """Judge the job at ``now``, epoch seconds; moves episodes and records notifications in ``streams.state``."""
    case, fires = case_of(job, plan, streams, now=now)
    verdicts = case.verdicts
    near_threshold = any(family.near_threshold for family in streams.families.values())
    follow_ups = due_notifications(job, plan, verdicts, case.account, streams.state, case.ledger_once, now=now)
    return Assessment(
        case=case,
        fires=tuple(fires),
        follow_ups=tuple(follow_ups),
        ended=ended_episodes(verdicts, streams.state, job.episodes),
        near_threshold=near_threshold
        or any(is_near_threshold(verdict.result, verdict.history) for verdict in verdicts),
    )


def ended_episodes(verdicts: Sequence[Verdict], state: JobState, episodes: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of the job's current episodes that have ended, by rule.

    An alerted episode also ends when a notification said that it is over and its condition is back: then a scheduler
    run died before it had raised the number. The last episode that may fire never ends. A rule missing in ``episodes``
    is in its episode 0.
    """
    ended = {}
    for verdict in verdicts:
        current = episodes.get(verdict.rule, 0)
        is_over = ends_episode(verdict) or notified_cleared(state, verdict.rule, current)
        if verdict.history.alerted == current and is_over and current < LAST_EPISODE:
            ended[verdict.rule] = current
    return ended
