from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.unit.rules.node_replay import JOB_START, NodeSeries, Replay, node_minutes, replay, series
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck, CPUBottleneckParameters

RULE = CPUBottleneck()
DEFAULTS = CPUBottleneckParameters()
BUSY, HOT, COOL = 95.0, 99.0, 40.0


def judge(node: NodeSeries, parameters: CPUBottleneckParameters = DEFAULTS, *, closed: bool = True) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def node(*phases: tuple[float, float, float], interval_s: float = 5.0) -> NodeSeries:
    """Build a node of one GPU from phases of (minutes, utilization, busiest core)."""
    lengths = [round(minutes * 60.0 / interval_s) for minutes, _, _ in phases]
    gpu = np.repeat([utilization for _, utilization, _ in phases], lengths)
    return series(gpu, cpu=np.repeat([cpu for _, _, cpu in phases], lengths), interval_s=interval_s)


def starved(minutes: float, idle_share: float, *, interval_s: float = 5.0) -> NodeSeries:
    """Build a node whose GPU waits for a hot CPU in ``idle_share`` of every 20 points."""
    count = round(minutes * 60.0 / interval_s)
    waits = np.arange(count) % 20 < round(20 * idle_share)
    return series(np.where(waits, 0.0, BUSY)[::-1], cpu=np.where(waits, HOT, COOL)[::-1], interval_s=interval_s)


def test_gpu_waiting_for_a_hot_core_most_of_the_time_fires() -> None:
    result = judge(starved(20.0, 0.6))

    assert result.last.status is Status.FIRED
    assert result.last.measured == pytest.approx(60.0, abs=3.0)
    assert result.last.threshold == 50.0


@pytest.mark.parametrize(("more_hits", "status"), [(0, Status.OK), (1, Status.FIRED)])
def test_share_fires_above_the_threshold_only(more_hits: int, status: Status) -> None:
    gpu = np.tile([BUSY, 0.0, 0.0, BUSY, 0.0, BUSY], 20)
    gpu[5 : 5 + more_hits] = 0.0

    result = judge(series(gpu, cpu=np.where(gpu < BUSY, HOT, COOL), interval_s=60.0), closed=False)

    assert (result.last.plain_details["bottlenecked"], result.last.plain_details["judged"]) == (60 + more_hits, 120)
    assert result.last.status is status


@pytest.mark.parametrize(
    ("utilization", "cpu", "hits"),
    [(10.0, 99.0, 0), (9.0, 90.0, 0), (9.0, 90.5, 10)],
    ids=["gpu-on-threshold", "cpu-on-threshold", "both-beyond"],
)
def test_values_on_the_thresholds_are_no_bottleneck(utilization: float, cpu: float, hits: int) -> None:
    phases = node(*[(1.0, BUSY, COOL), (1.0, utilization, cpu)] * 10, (1.0, BUSY, COOL), interval_s=60.0)

    assert judge(phases).last.plain_details["bottlenecked"] == hits


def test_verdict_needs_more_points_than_patience() -> None:
    result = judge(node((103.0, BUSY, COOL), interval_s=60.0), CPUBottleneckParameters(patience=100), closed=False)

    assert result.statuses[98:101] == (Status.WARMING_UP, Status.WARMING_UP, Status.OK)
    assert result.results[99].patience == "100/100"


def test_start_up_and_tail_on_a_hot_cpu_are_left_out() -> None:
    result = judge(node((15.5, 0.0, HOT), (10.0, BUSY, COOL), (15.0, 0.0, HOT)))

    assert result.first_fire is None
    assert result.last.plain_details["judged"] == 120
    assert result.last.plain_details["bottlenecked"] == 0


@pytest.mark.parametrize("interval_s", [0.5, 5.0, 60.0, 90.0])
def test_single_long_idle_run_on_a_hot_cpu_is_no_bottleneck(interval_s: float) -> None:
    compiled = judge(node((0.1, 40.0, COOL), (9.0, 0.0, HOT), (20.0, BUSY, COOL), interval_s=interval_s))
    stalled = judge(node((10.0, BUSY, COOL), (15.0, 0.0, HOT), (6.0, BUSY, COOL), interval_s=interval_s))

    assert (compiled.first_fire, stalled.first_fire) == (None, None)
    assert stalled.last.plain_details["bottlenecked"] == 0


@pytest.mark.parametrize("interval_s", [0.5, 5.0, 60.0, 90.0])
def test_repeatedly_stalling_loader_counts_from_the_third_time(
    interval_s: float,
) -> None:
    cycle = [(6.0, BUSY, COOL), (12.0, 0.0, HOT)]
    twice = judge(node(*cycle * 2, (3.0, BUSY, COOL), interval_s=interval_s))
    thrice = judge(node(*cycle * 3, (3.0, BUSY, COOL), interval_s=interval_s))

    assert twice.first_fire is None
    assert thrice.last.status is Status.FIRED
    assert thrice.last.measured == pytest.approx(100.0 * 36.0 / 57.0, abs=1.0)


def test_pauses_with_a_calm_cpu_are_no_bottleneck() -> None:
    result = judge(node(*[(4.0, BUSY, COOL), (5.0, 0.0, COOL)] * 3, (5.0, BUSY, COOL)))

    assert result.last.status is Status.OK
    assert result.last.plain_details["low_gpu_utilization"] == 180


def test_late_20_minute_fault_fires_by_the_recent_window() -> None:
    healthy, fault = 240.0, starved(20.0, 0.9)
    gpu = np.concatenate([np.full(round(healthy * 12), BUSY), fault.gpu[:, 0], [BUSY] * 6])
    cpu = np.concatenate([np.full(round(healthy * 12), COOL), fault.cpu_max, [COOL] * 6])

    result = judge(series(gpu, cpu=cpu, interval_s=5.0))

    assert result.first_fire is not None
    assert result.first_fire > healthy + 15.0
    assert "points of the 30 min to 2023-11-15 02:34 UTC on algo-1" in result.last.reason
    assert result.last.plain_details["share_percent"] < 10.0
    assert result.last.affected_share == result.last.plain_details["share_percent"] / 100.0


def test_recent_window_ends_with_the_newest_counted_minute() -> None:
    healthy, fault, quiet = 240 * 12, starved(25.0, 0.9), 4 * 12
    gpu = np.concatenate([np.full(healthy, BUSY), fault.gpu[:, 0], np.full(12, BUSY), np.zeros(quiet)])
    cpu = np.concatenate([np.full(healthy, COOL), fault.cpu_max, np.full(12 + quiet, HOT)])

    last = judge(series(gpu, cpu=cpu, interval_s=5.0), closed=False).last

    facts = {fact.name: fact for fact in last.facts}
    samples, minutes = facts["samples"], 240 + 25 + 1
    assert (samples.start, samples.end) == (JOB_START + 60.0 * (minutes - 30), JOB_START + 60.0 * minutes)
    assert samples.value == 30 * 12
    assert facts["window"].value == 1_800.0


def test_few_points_after_a_gap_leave_the_recent_window_silent() -> None:
    missing = np.full(40 * 12, np.nan)
    late_gpu = np.tile([0.0, 0.0, 0.0, BUSY], 30)
    gpu = np.concatenate([np.full(120 * 12, BUSY), missing, late_gpu])
    cpu = np.concatenate([np.full(120 * 12, COOL), missing, np.full(120, HOT)])

    result = judge(series(gpu, cpu=cpu, interval_s=5.0))

    assert result.last.plain_details["recent_share_percent"] > 50.0
    assert result.first_fire is None


@pytest.mark.parametrize(("low_gpus", "hits"), [(3, 0), (4, 16)])
def test_half_of_eight_gpus_low_is_a_bottleneck(low_gpus: int, hits: int) -> None:
    gpu = np.full((21, 8), BUSY)
    gpu[1:, :low_gpus] = 0.0
    gpu[5::5, :low_gpus] = BUSY

    assert judge(series(gpu, cpu=HOT, interval_s=60.0)).last.plain_details["bottlenecked"] == hits


def test_never_active_gpus_are_left_out_of_the_fraction() -> None:
    gpu = np.zeros((21, 8))
    gpu[:, :4] = BUSY
    gpu[1:, 0] = 0.0

    assert judge(series(gpu, cpu=HOT, interval_s=60.0)).last.plain_details["bottlenecked"] == 0


def test_disused_gpu_beside_working_ones_is_no_bottleneck() -> None:
    gpu = np.full((600, 2), BUSY)
    gpu[60:, 1] = 0.0

    result = judge(series(gpu, cpu=HOT, interval_s=10.0))

    assert result.first_fire is None
    assert result.last.plain_details["bottlenecked"] == 60


def test_snapshots_without_cpu_or_gpu_samples_are_not_judged() -> None:
    gpu, cpu = np.full(30, BUSY), np.full(30, HOT)
    gpu[10:14] = np.nan
    cpu[20:23] = np.nan

    assert judge(series(gpu, cpu=cpu, interval_s=60.0)).last.plain_details["judged"] == 30 - 4 - 3


def test_gpu_that_appears_later_joins_the_fraction() -> None:
    gpu = np.full((20, 2), 95.0)
    gpu[:10, 1] = np.nan
    gpu[10:, 0] = 0.0

    result = judge(series(gpu, cpu=HOT, interval_s=60.0), CPUBottleneckParameters(gpu_fraction=1.0))

    assert result.last.plain_details["bottlenecked"] == 0
    assert result.last.plain_details["judged"] == 20


def test_node_without_gpus_waits_and_then_does_not_apply() -> None:
    bare = series(np.empty((60, 0)), interval_s=5.0)
    minute = next(iter(node_minutes(bare, closed=False)))

    nothing = replace(minute.view, watermark_s=None, first_sample_at=None)
    assert RULE.judge(RULE.state_type(), nothing, DEFAULTS).status is Status.WAITING_FOR_DATA
    assert judge(bare).last.status is Status.NOT_APPLICABLE


def test_reason_of_a_fire_has_the_numbers_of_the_job() -> None:
    gpu = np.tile([BUSY, 0.0, 0.0, BUSY, 0.0], 40)
    result = judge(series(gpu, cpu=np.where(gpu > 0.0, COOL, 97.0), interval_s=60.0), closed=False)

    assert result.last.reason == (
        "in 119 of 199 points on algo-1 (59.8 %, threshold 50 %) at least 50 % of the GPUs were below 10 % while a "
        "core was above 90 %."
    )


def test_newest_32_bottlenecks_are_listed() -> None:
    result = judge(starved(60.0, 0.6), closed=False)

    listed = result.last.plain_details["bottlenecks"]
    assert len(listed) == 32
    assert [item["time"] for item in listed] == sorted(item["time"] for item in listed)
    assert listed[-1]["time"] > JOB_START + 58 * 60.0
    assert (listed[-1]["gpus_low"], listed[-1]["cpu_max"]) == (1, HOT)


def test_state_of_a_very_long_idle_run_stays_small() -> None:
    result = judge(node((10.0, BUSY, COOL), (200.0, 0.0, HOT)), closed=False)

    assert len(msgspec.msgpack.encode(result.state)) < 2_048


def test_half_of_the_gpus_waiting_waste_only_their_own_time() -> None:
    gpu = np.full((93, 4), BUSY)
    gpu[1:91, :2] = 4.0
    gpu[9:91:9, :2] = BUSY
    cpu = np.where(gpu[:, 0] < BUSY, HOT, COOL)

    result = judge(series(gpu, cpu=cpu, interval_s=60.0), closed=False)

    assert result.last.affected_share == pytest.approx(80 / 93)
    assert result.last.wasted_share == pytest.approx(0.96 * 0.5 * 80 / 93)


def test_waste_after_start_up_is_a_share_of_all_paid_time() -> None:
    result = judge(node((60.0, 0.0, COOL), *[(8.0, 0.0, HOT), (2.0, BUSY, COOL)] * 6), closed=False)

    assert result.last.status is Status.FIRED
    assert result.last.wasted_share == pytest.approx(40.0 / 120.0, abs=1e-3)


def test_episode_ends_after_three_clean_recent_windows() -> None:
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 3 * 30 * 60
    assert RULE.window_points(DEFAULTS, 0.5) == 0


def test_cheap_share_above_a_low_threshold_does_not_fire() -> None:
    waits = np.arange(1_200) % 20 < 2
    node_of_little = series(np.where(waits, 0.0, BUSY)[::-1], cpu=HOT, interval_s=3.0)

    result = judge(node_of_little, CPUBottleneckParameters(threshold=5.0)).last

    assert result.status is Status.OK
    assert result.measured == pytest.approx(9.8, abs=0.1)
    assert result.kind == "waits_cheap"
    assert "The GPUs left 9.8 % of the time undone in it, less than the 15 % from which on it fires." in result.reason


@pytest.mark.parametrize(
    ("good_cpu", "status"), [(COOL, Status.FIRED), (HOT, Status.OK)], ids=["worse while low", "as full while busy"]
)
def test_core_equally_full_while_gpus_work_is_no_cause(good_cpu: float, status: Status) -> None:
    phases = [(10.0, 98.0, good_cpu), (50.0, 0.0, HOT), (2.0, 98.0, good_cpu)]
    waits = node(*phases)
    waits.gpu[120:720:12] = 98.0  # works once a minute, so that this is no pause

    result = judge(waits).last

    assert result.status is status
    if status is Status.OK:
        assert result.kind == "waits_alike"
        assert "A core was above 90 % in 100 % of the points of minutes in which the GPUs worked, at 98 %" in (
            result.reason
        )
        assert result.advice is None
        assert not result.clause


@pytest.mark.parametrize(("interval_s", "samples"), [(10.0, 500), (30.0, 400), (60.0, 300)])
def test_single_busy_readings_are_no_contrast(interval_s: float, samples: int) -> None:
    busy = np.random.default_rng(3).random(samples) < 0.35
    result = judge(series(np.where(busy, 95.0, 0.0), cpu=HOT, interval_s=interval_s)).last

    assert (result.status, result.kind) == (Status.FIRED, "waits")


def test_missing_working_time_leaves_nothing_to_compare() -> None:
    waits = np.arange(360) % 2 == 0
    result = judge(series(np.where(waits, 0.0, BUSY), cpu=HOT, interval_s=5.0), CPUBottleneckParameters(threshold=40.0))

    assert result.last.status is Status.FIRED


def test_facts_of_a_finding_hold_its_evidence() -> None:
    result = judge(starved(20.0, 0.6)).last
    facts = {fact.name: fact for fact in result.facts}

    share = facts["share_of_samples"]
    assert (share.unit, share.threshold, share.node) == ("share", 0.5, "algo-1")
    assert share.value == pytest.approx((result.measured or 0.0) / 100.0)
    assert facts["samples_found"].value == result.plain_details["bottlenecked"]
    assert (facts["gpus_low"].value, facts["low_limit"].value) == (0.5, 10.0)
    assert facts["core_limit"].threshold == 90.0
    assert result.progress is not None
    assert result.progress.seen == result.data_points


def test_costly_waits_beside_a_hot_core_are_told_by_minutes() -> None:
    waits = np.arange(1_200) % 5 < 2
    waiting = judge(series(np.where(waits, 0.0, BUSY)[::-1], cpu=np.where(waits, HOT, COOL)[::-1], interval_s=1.0)).last

    assert (waiting.status, waiting.plain_details["share_percent"]) == (Status.FIRED, pytest.approx(40.0, abs=0.2))
    assert "while a core was full" in waiting.reason


def test_ended_bottleneck_no_longer_holds_once_work_goes_well() -> None:
    bad, good = starved(60.0, 0.6), np.full(100, BUSY)
    cpu = np.concatenate([bad.cpu_max, np.full(100, COOL)])

    result = judge(series(np.concatenate([bad.gpu[:, 0], good]), cpu=cpu, interval_s=5.0), closed=False)

    assert result.results[58].status is Status.FIRED
    assert result.last.status is Status.OK
    assert result.last.reason.endswith("while a core was above 90 %. The newest 3 min were free of it.")


def test_late_bottleneck_says_since_when() -> None:
    healthy, fault = 120.0, starved(30.0, 0.7)
    gpu = np.concatenate([np.full(round(healthy * 12), BUSY), fault.gpu[:, 0], [BUSY] * 6])
    cpu = np.concatenate([np.full(round(healthy * 12), COOL), fault.cpu_max, [COOL] * 6])

    result = judge(series(gpu, cpu=cpu, interval_s=5.0)).last

    assert result.status is Status.FIRED
    assert result.onset is not None
    assert abs(result.onset - JOB_START - healthy * 60.0) <= 180.0


def test_counts_of_a_state_without_slow_minutes_continue() -> None:
    stored = msgspec.msgpack.encode([[900, 500, 600, [[28_333_334, 120, 60]], [[1.7e9, 1, 99.0]], 40_000], [0]])

    state = msgspec.msgpack.decode(stored, type=RULE.state_type)
    for minute in node_minutes(starved(20.0, 0.6), closed=True):
        RULE.observe(state, minute, DEFAULTS)

    assert state.kept.judged > 900
    assert RULE.judge(state, minute.view, DEFAULTS).status is Status.FIRED


def stalls(minutes: float, share: float) -> list[tuple[float, float, float]]:
    """Return phases of so many minutes, in which the GPU waits for a hot core for a share of each 50 s."""
    return [(share * 50.0 / 60.0, 0.0, HOT), ((1.0 - share) * 50.0 / 60.0, BUSY, COOL)] * round(minutes * 60.0 / 50.0)


def test_loss_in_a_running_job_is_compared_with_half_an_hour() -> None:
    short = judge(node((1.0, BUSY, COOL), *stalls(7.0, 0.6), (40.0, BUSY, COOL)), closed=False)
    long = judge(node((1.0, BUSY, COOL), *stalls(15.0, 0.6), (40.0, BUSY, COOL)), closed=False)

    assert short.first_fire is None
    assert long.first_fire is not None


def test_starved_short_job_is_found_despite_a_good_end() -> None:
    result = judge(node((1.0, BUSY, COOL), *stalls(8.0, 0.7), (4.0, BUSY, COOL))).last

    assert result.status is Status.FIRED
    assert result.until is not None
    assert result.until - JOB_START == pytest.approx(9.0 * 60.0, abs=120.0)


def test_early_bottleneck_of_an_ended_job_counts_by_its_share() -> None:
    result = judge(node((1.0, BUSY, COOL), *stalls(8.0, 0.7), (60.0, BUSY, COOL))).last

    assert result.status is Status.OK
