"""Stalls of a job: by the clock, and none while its GPUs work on: steps may be saved seldom, or validation be long."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.records import JobRecord, JobStatus, Status
from trainguard.engine.training.stream import StepsState
from trainguard.engine.verdicts.episodes import StoredEpisode
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.ledger.node import Span
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.stalled_training import (
    StalledTrainingRule,
    StalledTrainingRuleParameters,
    StalledTrainingRuleState,
    patience_s,
)
from trainguard.rules.training.step_rule import RunView
from trainguard.rules.training.step_words import StepKind

# GPUs that are busy for this share of the time work. Those that are always busy may wait in a collective.
WORKS, SPINS = 0.5, 0.995


def works_on(busy: float | None) -> bool:
    return busy is not None and WORKS <= busy < SPINS


# Secondary statuses in which a job may write steps; in others it downloads, uploads, stops or waits for instances.
_TRAINS = frozenset({None, "Training"})

_TEXT = StalledTrainingRule().text


def judge_stall(
    rule: StalledTrainingRule,
    job: JobRecord,
    states: Sequence[StepsState],
    parameters: StalledTrainingRuleParameters,
    busy: Callable[[Span], float | None] = lambda _: None,
) -> RuleResult:
    """Return the clock's verdict on a job, from the states of its streams (at least one).

    ``busy`` gives which share, 0 to 1, of a span in epoch seconds the GPUs were busy; None where that is not known.
    """
    if job.closing or job.status.is_final or any(state.ended for state in states):
        return RuleResult.of(_TEXT, Status.OK, "ended")
    newest = max(states, key=lambda state: state.progress_s or 0.0)
    if newest.progress_s is None:
        return RuleResult.of(_TEXT, Status.WARMING_UP, StepKind.NO_STEP)
    if job.status is not JobStatus.IN_PROGRESS:
        status = Fact(name="job_status", value=job.status.value)
        return RuleResult.of(_TEXT, Status.NOT_APPLICABLE, "not running", (status,))
    looked_s, longest_s = min(state.looked_s for state in states), max(state.longest_s for state in states)
    silent_s = max(looked_s - newest.progress_s, 0.0)
    if silent_s <= patience_s(parameters, longest_s) or job.secondary_status not in _TRAINS:
        at = newest.progress_s
        since = Fact(name="time_since_object", value=silent_s, unit="s", start=at, end=at + silent_s)
        return RuleResult.of(_TEXT, Status.OK, "newest object", (since,), data_points=newest.steps)
    share = busy((looked_s - parameters.threshold, looked_s))
    if works_on(share):
        return _working(silent_s, share or 0.0, newest.steps)
    known = StalledTrainingRuleState(step=newest.step, evaluated=newest.steps, longest_s=longest_s)
    return rule.judge_at(known, RunView(newest.steps), parameters, now=looked_s, progress_at=newest.progress_s)


def _working(silent_s: float, busy: float, steps: int) -> RuleResult:
    facts = (
        Fact(name="time_without_step", value=silent_s, unit="s"),
        Fact(name="gpus_busy", value=busy, unit="share"),
    )
    return RuleResult.of(_TEXT, Status.OK, "GPUs work", facts, data_points=steps)


def _silence(episode: StoredEpisode) -> float:
    """Return for how many seconds no step came, with those that the rule waits before an episode begins."""
    gaps = [float(fact.value) for fact in episode.facts if fact.name == "time_without_step"]
    return gaps[0] if gaps else episode.until - episode.start


def without_working(verdict: Verdict, busy: Callable[[Span], float | None]) -> Verdict:
    """Leave out of a recorded run's stalls those in which the GPUs worked on; ``busy`` as in `judge_stall`."""
    history = verdict.history
    shares = [busy((each.start, each.until)) for each in history.episodes]
    kept = [each for each, share in zip(history.episodes, shares, strict=True) if not works_on(share)]
    dropped = len(history.episodes) - len(kept)
    if not dropped:
        return verdict
    times = history.times_fired - dropped
    changed = msgspec.structs.replace(
        history,
        episodes=kept,
        times_fired=times,
        alerted=min(history.alerted, times - 1),
        is_open=history.is_open and not works_on(shares[-1]),
    )
    if kept and not (verdict.result.status is Status.FIRED and works_on(shares[-1])):
        return replace(verdict, history=changed)
    length, share = max(
        (_silence(each), share)
        for each, share in zip(history.episodes, shares, strict=True)
        if share is not None and works_on(share)
    )
    return replace(verdict, history=changed, result=_working(length, share, verdict.result.data_points))
