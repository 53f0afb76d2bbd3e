"""A running job of known length: when it ends, and one warning of a time limit that it will miss."""

import math

import pytest

from trainguard.core.records import AlertKind, JobRecord, OutboxEntry
from trainguard.engine.streams.job_streams import JobState, StepProgress
from trainguard.engine.summary import HELD, LEAST_DONE, outlook
from trainguard.state.codec import CODEC, decode_state, encode_state

AT, STEPS = 1_700_000_000.0, 20_000


Outlook = tuple[str, list[OutboxEntry]]


def job(limit_h: float | None = 24.0, total: int | None = STEPS, *, closing: bool = False) -> JobRecord:
    limit_s = None if limit_h is None else limit_h * 3_600.0
    return JobRecord("j", "arn:j", "b", "", time_limit_s=limit_s, total_steps=total, closing=closing)


def followed(
    of: JobRecord, hours: float, pace_s: float, *, started_at: float | None = AT
) -> list[tuple[float, Outlook]]:
    """Return each new outlook, with the hours since the start, of a job that is looked at every three minutes."""
    progress, found = StepProgress(), []
    for at in range(0, int(hours * 3_600), 180):
        made = outlook(of, progress, (AT + at, int(at / pace_s)), started_at)
        if made is not None:
            found.append((at / 3_600.0, made))
    return found


def warned(found: list[tuple[float, Outlook]]) -> list[tuple[float, OutboxEntry]]:
    return [(hours, entry) for hours, each in found for entry in each[1]]


def test_job_that_will_miss_its_limit_is_warned_of_early_once() -> None:
    # 20,000 steps of 5.4 s take 30 h.
    ((hours, entry),) = warned(followed(job(), 24.0, 5.4))
    assert LEAST_DONE * 30.0 <= hours < 23.0
    assert (entry.kind, entry.finding.rule, entry.alert_id) == (AlertKind.DEADLINE, "TimeLimit", entry.fire_id)
    facts = {fact.name: fact.value for fact in entry.finding.facts}
    assert facts["limit"] == AT + 86_400.0
    assert facts["forecast"] == pytest.approx(AT + 108_000.0, abs=600.0)
    assert facts["total"] == STEPS


@pytest.mark.parametrize(("limit_h", "total"), [(24.0, None), (None, STEPS), (31.0, STEPS), (30.1, STEPS)])
def test_without_a_limit_or_with_enough_time_nobody_is_warned(limit_h: float | None, total: int | None) -> None:
    assert warned(followed(job(limit_h, total), 30.0, 5.4)) == []


def test_outlook_is_new_with_each_hundredth_of_the_steps() -> None:
    found = followed(job(None), 30.0, 5.4)
    assert 80 <= len(found) <= 100
    assert "20,000 steps" in found[-1][1][0]
    assert followed(job(None, None), 30.0, 5.4) == followed(job(closing=True), 30.0, 5.4) == []


def test_limit_needs_a_start() -> None:
    assert warned(followed(job(), 24.0, 5.4, started_at=None)) == []


def test_miss_that_does_not_last_is_no_warning() -> None:
    progress = StepProgress(points=[(AT + 200.0 * each, 200 * each) for each in range(30)], misses=HELD - 1)
    assert outlook(job(20_000 / 3_600.0 * 1.2), progress, (AT + 6_000.0, 6_000), AT) is not None
    assert progress.misses == 0


def test_kept_points_are_few_and_survive_the_store() -> None:
    state = JobState()
    for step in range(0, STEPS, 3):
        state.progress.add((AT + step, step), STEPS)
    assert len(state.progress.points) <= 101
    assert not state.progress.add((AT, STEPS), STEPS)
    kept = decode_state("*#job", CODEC, encode_state(state), JobState)
    assert kept.progress == state.progress
    assert all(math.isfinite(at) for at, _ in kept.progress.points)
