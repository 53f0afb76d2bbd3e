"""A node without work: idle, never used, nearly idle, or hanging."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, NODE, series
from tests.unit.rules.test_low_gpu_utilization import idle, judge, minutely, training
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.ledger.bucket import Bucket
from trainguard.rules.low_gpu_utilization.usage import CLAIMS, IDLE_TIME, QUIET_MEAN, Kind

if TYPE_CHECKING:
    from collections.abc import Callable


def test_idle_node_is_a_finding_after_20_minutes_and_not_before() -> None:
    result = judge(minutely([95.0] * 30 + [0.0] * 20), closed=False)

    assert result.statuses[30 + 18] is Status.OK
    assert result.statuses[30 + 19] is Status.FIRED
    assert result.last.reason == "idle: every GPU of algo-1 has been idle for 20 min (allowed 20 min)."
    assert result.last.plain_details["finding"] == "idle"


def test_finding_on_an_idle_node_is_over_once_it_works_again() -> None:
    result = judge(minutely([95.0] * 30 + [0.0] * 25 + [95.0] * 2), closed=False)

    assert result.statuses[-3:] == (Status.FIRED, Status.FIRED, Status.OK)


def test_never_active_gpus_are_never_used_after_20_minutes() -> None:
    result = judge(minutely([0.0] * 20), closed=False)

    assert result.statuses == (Status.WARMING_UP,) * 19 + (Status.FIRED,)
    assert result.last.reason.startswith("never used: no GPU of algo-1 was used in the 20 min")


def test_short_idle_tail_is_no_finding_when_the_stream_closes() -> None:
    short = judge(series(np.concatenate([training(10.0), idle(15.0)])))
    long = judge(series(np.concatenate([training(10.0), idle(25.0)])))

    assert short.first_fire is None
    assert long.last.status is Status.FIRED


def test_waste_of_a_hanging_node_is_its_idle_time() -> None:
    hung = judge(minutely([95.0] * 30 + [0.0] * 30), closed=False).last
    unused = judge(minutely([0.0] * 30), closed=False).last

    assert hung.wasted_share == hung.affected_share == pytest.approx(30.0 / 60.0)
    assert unused.wasted_share == 1.0
    assert (hung.idle_node, unused.idle_node) == ("idle", "never used")
    assert (hung.measure, unused.measure) == (IDLE_TIME, IDLE_TIME)
    assert hung.advice == "Check whether the job hangs on algo-1, and stop it if it does."
    assert unused.advice is not None
    assert unused.advice.startswith("Check that the script places the model on the GPUs of algo-1")


def test_idle_node_is_named() -> None:
    assert NODE in judge(minutely([0.0] * 30)).last.reason


def test_gpus_with_odd_spikes_are_nearly_idle_after_20_minutes() -> None:
    values = np.full(40 * 120, 1.0)
    values[::900] = 60.0

    result = judge(series(values), closed=False)

    assert result.first_fire == pytest.approx(20.0, abs=1.1)
    assert result.last.reason.startswith(
        "nearly idle: for 40 min since its first sample; over the last 24 min of it no GPU of algo-1 was busier than"
    )
    assert (result.last.idle_node, result.last.measure) == ("never used", QUIET_MEAN)
    assert result.last.onset == pytest.approx(JOB_START)


@pytest.mark.parametrize("interval_s", [0.5, 10.0])
def test_late_work_within_idle_time_leaves_all_of_it_counted(interval_s: float) -> None:
    """A minute of work at 10 s sampling is the node's first work: what was before it is idle time all the same."""
    minute = round(60.0 / interval_s)
    values = np.full(40 * minute, 1.0)
    values[34 * minute : 35 * minute] = 60.0

    found = judge(series(values, interval_s=interval_s), closed=False).last
    (mean,) = (fact for fact in found.facts if fact.name.startswith("highest_mean"))

    assert mean.end is not None
    assert mean.start is not None
    assert 20.0 <= (mean.end - mean.start) / 60.0 <= 30.0
    counted = round((mean.end - mean.start) / interval_s) + 1
    assert mean.value == pytest.approx(values[-counted:].mean(), abs=0.05)


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 90.0])
def test_nearly_idle_start_is_named_by_minute_20_at_any_sampling(
    interval_s: float,
) -> None:
    values = np.full(round(24 * 60.0 / interval_s), 1.0)

    result = judge(series(values, interval_s=interval_s), closed=False)

    assert result.first_fire is not None
    assert result.first_fire <= 20.0


def test_chance_zeros_of_minutely_readings_are_no_stopped_node() -> None:
    readings = np.where(np.random.default_rng(5).random(430) < 0.15, 90.0, 0.0)
    readings[400:425] = 0.0

    result = judge(series(readings, interval_s=60.0), closed=False)

    assert not any(said.reason.startswith("idle:") for said in result.results)


def flickering(share: float, minutes: float, *, interval_s: float = 15.0, seed: int = 4) -> FloatArray:
    """Return two GPUs, of which the first works in a share of all half minutes, and idles else."""
    works = np.random.default_rng(seed).random(round(minutes * 2.0)) < share
    busy = works[(np.arange(round(minutes * 60.0 / interval_s)) * interval_s // 30.0).astype(int)]
    return np.column_stack([np.where(busy, 80.0, 0.0), np.zeros(len(busy))])


@pytest.mark.parametrize("interval_s", [10.0, 15.0, 30.0, 60.0])
@pytest.mark.parametrize(("share", "fires"), [(0.25, True), (0.75, False)])
def test_a_mostly_idle_job_is_idle_in_part_at_any_sampling(interval_s: float, share: float, fires: bool) -> None:
    values = flickering(share, 100.0, interval_s=interval_s)

    result = judge(series(values, interval_s=interval_s), closed=False)

    assert (result.last.kind == Kind.IDLE_IN_PART) is fires
    if fires:
        assert result.first_fire is not None
        assert result.view.first_active_at is not None
        worked = round((result.view.first_active_at - JOB_START) / interval_s)
        assert result.first_fire <= worked * interval_s / 60.0 + 35.0
        lost = float((100.0 - values[worked:]).sum()) / 100.0 / values.size
        assert result.last.wasted_share == pytest.approx(lost, abs=0.01)


def test_facts_of_partial_idleness_are_of_all_samples_of_it() -> None:
    values = flickering(0.25, 60.0)
    node = series(values, interval_s=15.0)

    facts = {fact.name: fact for fact in judge(node, closed=False).last.facts}

    means: dict[str, Callable[[FloatArray], float]] = {
        "idle_share": lambda part: float((part < 10.0).all(axis=1).mean()),
        "mean_utilization": lambda part: float(part.mean()),
        "highest_mean_utilization": lambda part: float(part.mean(axis=0).max()),
    }
    for name, true in means.items():
        fact = facts[name]
        assert fact.start is not None
        assert fact.end is not None
        shown = (node.times >= fact.start) & (node.times <= fact.end)
        assert fact.value == pytest.approx(true(values[shown]))
        assert node.times[0] <= fact.start < fact.end <= node.times[-1]
        assert fact.end - fact.start > 30.0 * 60.0


def test_a_job_idle_in_part_is_so_until_it_clearly_is_no_more() -> None:
    values = np.concatenate([flickering(0.35, 60.0), flickering(0.54, 90.0), flickering(0.9, 60.0)])

    result = judge(series(values, interval_s=15.0), closed=False)

    idle = [at for at, said in enumerate(result.results) if said.kind == Kind.IDLE_IN_PART]
    assert set(result.statuses[idle[0] : idle[-1]]) == {Status.FIRED}
    assert 150 <= idle[-1] < 200


def test_short_waits_between_steps_are_judged_gpu_by_gpu() -> None:
    waits = np.where(np.arange(40 * 120) % 4 < 2, 92.0, 0.0)
    assert judge(series(waits), closed=False).last.kind == Kind.FLUCTUATES


def test_a_node_that_hardly_works_is_found_in_time() -> None:
    works = (np.arange(90 * 4) % 48) < 4
    result = judge(series(np.where(works, 95.0, 0.0), interval_s=15.0))

    assert result.last.status is Status.FIRED
    assert result.last.kind in {Kind.PAUSES, Kind.IDLE_IN_PART}
    assert result.last.progress is not None
    assert result.last.progress.seen < result.last.progress.needed


def test_a_pause_told_as_a_stop_is_not_idle_in_part() -> None:
    result = judge(minutely([95.0] * 40 + [0.0] * 35 + [95.0] * 30), closed=False)

    kinds = {said.kind for said in result.results if said.status is Status.FIRED}
    assert Kind.STOPPED in kinds
    assert Kind.IDLE_IN_PART not in kinds


@pytest.mark.parametrize("kind", [Kind.HARDLY_USED, Kind.NEARLY_IDLE, Kind.HOLDS_MEMORY])
def test_what_is_never_active_claims_start_up_and_tail_too(kind: Kind) -> None:
    assert {Bucket.START_UP, Bucket.TAIL, Bucket.IDLE} <= set(CLAIMS[kind])
