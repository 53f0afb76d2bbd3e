"""LowGPUUtilization with SM activity: a GPU that looks busy and uses little of itself is under-utilised."""

import numpy as np
import pytest

from tests.unit.rules.device_minutes import DevicesAt, Rows, replay_devices
from tests.unit.rules.node_replay import JOB_START, Replay
from trainguard.core.records import Status
from trainguard.rules.low_gpu_utilization.devices import MOST_MINUTES
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.low_gpu_utilization.usage import MEMORY_P95, SM_P95, TENSOR_P95, WEAK_MEAN, Kind


def judge(activity: DevicesAt, *, busy: float = 98.0, minutes: int = 40, threshold_sm: float = 20.0) -> Replay:
    node = Rows([[busy, busy]] * minutes).series(interval_s=5.0)
    return replay_devices(LowGPUUtilization(), LowGPUUtilizationParameters(threshold_sm=threshold_sm), node, activity)


def steady(first: float, second: float = 85.0) -> DevicesAt:
    return lambda _: {"SMActivityPercent": {"gpu0": [first] * 6, "gpu1": [second] * 6}}


@pytest.mark.parametrize(("activity", "status"), [(19.9, Status.FIRED), (20.0, Status.OK)])
def test_busy_gpu_with_low_sm_activity_fires(activity: float, status: Status) -> None:
    said = judge(steady(activity)).last
    assert said.status is status


def test_gpus_sampled_more_rarely_than_cores_are_judged_too() -> None:
    node = Rows([[98.0, 98.0]] * 40).series(interval_s=5.0)
    node.gpu[1::2] = np.nan
    said = replay_devices(LowGPUUtilization(), LowGPUUtilizationParameters(threshold_sm=20.0), node, steady(5.0)).last
    assert (said.status, said.kind) == (Status.FIRED, Kind.LOW_ACTIVITY)


def test_busy_gpu_at_5_percent_sm_activity_shows_its_cost() -> None:
    said = judge(steady(5.0)).last
    assert said.reason.startswith("gpu0 on algo-1 looks 98 % busy, but 95 % of its last ")
    assert "have SM activity of at most 5 % (threshold 20 %)" in said.reason
    assert (said.measure, said.measured, said.worst, said.gpus) == (SM_P95, 5.0, "gpu0", ("gpu0",))
    assert said.wasted_share == pytest.approx(0.5 * (1.0 - 5.0 / 80.0), abs=0.03)
    assert said.onset == pytest.approx(JOB_START + 60.0, abs=61.0)
    assert "batch size" in (said.advice or "")


def test_hollow_gpu_does_not_fire_before_three_windows() -> None:
    said = judge(lambda minute: steady(5.0 if minute >= 20 else 80.0)(minute))
    fired = [minute for minute, status in enumerate(said.statuses) if status is Status.FIRED]
    assert fired[0] == 20 + 13 - 1


def test_one_minute_of_full_sm_activity_resets_the_time() -> None:
    said = judge(lambda minute: steady(80.0 if minute == 30 else 5.0)(minute))
    assert said.statuses[29] is Status.FIRED
    assert said.last.status is Status.OK


def test_missing_sm_activity_is_not_mentioned() -> None:
    said = judge(lambda _: {}).last
    assert said.status is Status.OK
    assert "SM activity" not in said.reason


def test_gpus_low_by_utilization_show_their_sm_activity() -> None:
    said = judge(steady(9.0, 9.0), busy=30.0).last
    assert said.status is Status.FIRED
    assert said.kind == Kind.UNDER_USED
    assert said.reason.endswith(
        "SM activity of gpu0 was 9 % on average over the last 40 minutes of work in which it was measured."
    )


def test_zero_threshold_never_fires_on_sm_activity() -> None:
    assert judge(steady(0.5), threshold_sm=0.0).last.status is Status.OK


def test_long_job_remembers_a_bounded_number_of_minutes() -> None:
    state = judge(steady(50.0), minutes=MOST_MINUTES + 10).state
    assert {len(held.activity) for held in state.activity.values()} == {MOST_MINUTES}


def tensors(tensor: float, memory: float, power: float, limit: float | None = None) -> DevicesAt:
    """Return the readings that dcgm-exporter has by default: tensor cores, memory and power, without SM activity."""
    readings = {"TensorActivityPercent": tensor, "DRAMActivityPercent": memory, "PowerWatts": power}
    known = readings if limit is None else {**readings, "PowerLimitWatts": limit}
    return lambda _: {name: {"gpu0": value, "gpu1": 60.0} for name, value in known.items()}


@pytest.mark.parametrize(
    ("readings", "status"),
    [
        (tensors(0.0, 1.0, 110.0), Status.FIRED),
        (tensors(0.0, 1.0, 250.0, 700.0), Status.FIRED),
        (tensors(0.0, 1.0, 300.0), Status.OK),
        (tensors(0.0, 1.0, 60.0, 70.0), Status.OK),
        (tensors(0.0, 30.0, 110.0), Status.OK),
        (tensors(40.0, 1.0, 110.0), Status.OK),
    ],
    ids=["nothing", "little of the limit", "power", "power of a small GPU", "memory", "tensor cores"],
)
def test_busy_gpu_without_work_by_any_measure_is_hollow(readings: DevicesAt, status: Status) -> None:
    assert judge(readings).last.status is status


def test_hollow_gpu_by_tensor_cores_names_the_measure() -> None:
    said = judge(tensors(0.0, 1.0, 110.0)).last
    assert "activity of tensor cores and memory of at most 1 % (threshold 5 %), at 110 W" in said.reason
    assert (said.measure, said.plain_details["measure"]) == (TENSOR_P95, "activity of tensor cores and memory")
    assert judge(steady(5.0)).last.plain_details["measure"] == "SM activity"


@pytest.mark.parametrize(
    ("memory", "power", "status"),
    [(0.9, 110.0, Status.FIRED), (1.0, 110.0, Status.OK), (0.9, 300.0, Status.OK)],
    ids=["neither", "memory", "power"],
)
def test_busy_gpu_without_memory_use_and_at_low_power_is_hollow(memory: float, power: float, status: Status) -> None:
    said = judge(lambda _: {"DRAMActivityPercent": {"gpu0": memory}, "PowerWatts": {"gpu0": power}}).last

    assert said.status is status
    if status is Status.FIRED:
        facts = {fact.name: fact.value for fact in said.facts}
        assert (said.kind, said.measure, said.gpus) == (Kind.LOW_ACTIVITY, MEMORY_P95, ("gpu0",))
        assert (facts["p95_activity_at_work"], facts["mean_utilization_at_work"], facts["power"]) == (0.9, 98.0, 110.0)
        assert said.wasted_share is None


def idle(readings: DevicesAt, busy: float) -> Replay:
    """Replay ten minutes of work and half an hour at ``busy`` percent."""
    node = Rows([[95.0, 95.0]] * 10 + [[busy, busy]] * 30).series(interval_s=5.0)
    return replay_devices(LowGPUUtilization(), LowGPUUtilizationParameters(), node, readings)


@pytest.mark.parametrize(
    ("readings", "busy", "works"),
    [
        (lambda _: {"SMActivityPercent": {"gpu0": 12.0}}, 0.0, True),
        (lambda _: {"SMActivityPercent": {"gpu0": 1.0}}, 0.0, False),
        (lambda minute: {"PowerWatts": {"gpu0": 300.0 if minute < 10 else 280.0}}, 3.0, True),
        (lambda minute: {"PowerWatts": {"gpu0": 300.0 if minute < 10 else 70.0}}, 3.0, False),
        (lambda _: {"PowerWatts": {"gpu0": 300.0}}, 0.0, False),
        (lambda _: {"PowerWatts": {"gpu0": 95.0}}, 3.0, False),
        (lambda _: {}, 9.0, True),
        (lambda _: {}, 4.0, False),
    ],
    ids=["SM activity", "none", "power", "less power", "power alone", "little at work", "utilization", "little"],
)
def test_working_gpus_below_10_percent_are_under_used_not_idle(readings: DevicesAt, busy: float, works: bool) -> None:
    said = idle(readings, busy).last
    assert said.status is Status.FIRED
    assert (said.measure == WEAK_MEAN, said.idle_node is None) == (works, works)
    if works:
        assert said.wasted_share == pytest.approx((1.0 - busy / 100.0) * 30.0 / 40.0, abs=0.02)


def test_steady_9_percent_counts_as_used_and_91_percent_wasted() -> None:
    node = Rows([[9.0, 9.0]] * 30).series(interval_s=5.0)
    said = replay_devices(LowGPUUtilization(), LowGPUUtilizationParameters(), node, lambda _: {}).last
    assert said.reason.startswith(
        "under-used: for 30 min since its first sample no GPU of algo-1 had a GPU utilization"
    )
    assert said.idle_node is None
    assert said.wasted_share == pytest.approx(0.91)
