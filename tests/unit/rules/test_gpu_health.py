"""GPUHealth on its thresholds: what is a fault of a GPU, and what every healthy one shows."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.device_minutes import DevicesAt, Readings, Rows, replay_devices
from tests.unit.rules.node_replay import JOB_START, Replay, series
from trainguard.core.records import Status
from trainguard.rules.gpu_health.rule import GPUHealth, GPUHealthParameters
from trainguard.rules.rule_result import RuleResult

HEAT, BRAKE, CAP, IDLE = 0x20, 0x80, 0x4, 0x1
GPUS = ("gpu0", "gpu1", "gpu2", "gpu3")


def readings(**changed: Mapping[str, Any]) -> Readings:
    """Return what a healthy node of four GPUs reports in a minute, with some GPUs' values changed."""
    healthy = {
        "SMClockMHz": 1_500.0,
        "SMClockMaximumMHz": 1_980.0,
        "ThrottleReasons": CAP,
        "PCIeLinkWidth": 16.0,
        "PCIeLinkWidthMaximum": 16.0,
        "ECCUncorrectedErrors": 0.0,
        "RemappedRowsFailed": 0.0,
        "XID": 0.0,
        "Lost": 0.0,
    }
    found: dict[str, dict[str, Any]] = {metric: dict.fromkeys(GPUS, value) for metric, value in healthy.items()}
    for metric, values in changed.items():
        found.setdefault(metric, {}).update(values)
    return found


def judge(
    at: DevicesAt | Callable[[int], Readings], *, minutes: int = 20, busy: float = 95.0, **parameters: Any
) -> Replay:
    node = Rows([[busy] * 4] * minutes).series()
    return replay_devices(GPUHealth(), GPUHealthParameters(**parameters), node, at)


def last(at: DevicesAt, **given: Any) -> RuleResult:
    return judge(at, **given).last


def from_minute(begin: int, **changed: Mapping[str, Any]) -> DevicesAt:
    return lambda minute: readings(**changed) if minute >= begin else readings()


def test_healthy_node_at_its_power_limit_is_ok() -> None:
    said = last(lambda _: readings())
    kinds = "XID errors, ECC errors, remapped rows, throttling, PCIe width, lost GPUs"
    assert said.status is Status.OK
    assert said.reason == f"4 GPUs of algo-1 reported no fault in 20 minutes by {kinds}."


@pytest.mark.parametrize(("minutes", "status"), [(2, Status.OK), (3, Status.FIRED)])
def test_gpu_without_driver_answer_for_three_minutes_fires(minutes: int, status: Status) -> None:
    silent = {"gpu2": 1.0}
    said = last(lambda minute: {"Unanswered": silent} if minute >= 20 - minutes else readings(Unanswered={"gpu2": 0.0}))
    assert said.status is status
    if status is Status.FIRED:
        assert said.reason == "the driver has not answered for gpu2 on algo-1 in 3 minutes."
        assert (said.worst, said.gpus) == ("gpu2", ("gpu2",))


def test_gpu_that_answers_again_is_ok() -> None:
    at = lambda minute: readings(Unanswered={"gpu2": float(5 <= minute < 15)})  # noqa: E731
    said = judge(at)
    assert said.results[14].status is Status.FIRED
    assert said.last.status is Status.OK


def test_neuron_device_with_uncorrectable_errors_fires_by_name() -> None:
    def at(minute: int) -> Readings:
        return {"ECCUncorrectedErrors": {"neuron0": 4.0, "neuron1": 6.0 if minute >= 10 else 4.0}}

    said = judge(at)
    assert said.results[9].status is Status.OK
    assert said.results[9].reason == "2 Neuron devices of algo-1 reported no fault in 10 minutes by ECC errors."
    assert said.last.reason == "neuron1 on algo-1 had 2 uncorrectable ECC errors during the job."


def test_neuron_cores_of_an_ended_program_have_not_vanished() -> None:
    def at(minute: int) -> Readings:
        used = {"MemoryUsedBytes": {"gpu0": 1e9}} if minute < 5 else {}
        return {"ECCUncorrectedErrors": {"neuron0": 0.0}, **used}

    node = Rows([[90.0]] * 5 + [[float("nan")]] * 10).series()
    said = replay_devices(GPUHealth(), GPUHealthParameters(), node, at)
    assert {result.status for result in said.results} == {Status.OK}


def test_managed_profile_makes_the_rule_inapplicable_and_why() -> None:
    said = last(lambda _: {})
    assert said.status is Status.NOT_APPLICABLE
    assert "trainguard-collector writes them" in said.reason


def test_node_without_gpus_makes_the_rule_inapplicable() -> None:
    node = series(np.empty((24, 0)), interval_s=5.0)
    said = replay_devices(GPUHealth(), GPUHealthParameters(), node, lambda _: {}).last
    assert (said.status, said.reason) == (
        Status.NOT_APPLICABLE,
        "no utilization of GPUs was recorded on algo-1: it has none, or they were not measured.",
    )


@pytest.mark.parametrize(
    ("changed", "sentence", "advice"),
    [
        ({"Lost": {"gpu2": 1.0}}, "gpu2 on algo-1 is lost", "Replace algo-1"),
        ({"XID": {"gpu2": 79.0}}, "gpu2 on algo-1 reported XID 79, the GPU has fallen off the bus", "Replace algo-1"),
        ({"XID": {"gpu2": 94.0}}, "reported XID 94, a contained uncorrectable ECC error", "Reset "),
        ({"ECCUncorrectedErrors": {"gpu2": 3.0}}, "had 3 uncorrectable ECC errors during the job", "Go on"),
        ({"RemappedRowsFailed": {"gpu2": 1.0}}, "could not remap a faulty memory row", "Replace algo-1"),
    ],
    ids=["lost", "xid-79", "xid-94", "ecc", "rows"],
)
def test_hardware_fault_fires_at_once_and_names_the_gpu(
    changed: dict[str, Mapping[str, Any]], sentence: str, advice: str
) -> None:
    said = judge(from_minute(12, **changed))
    assert said.statuses[11:13] == (Status.OK, Status.FIRED)
    assert sentence in said.last.reason
    assert advice in (said.last.advice or "")
    assert (said.last.worst, said.last.gpus) == ("gpu2", ("gpu2",))
    assert said.last.onset == pytest.approx(said.results[12].onset)


@pytest.mark.parametrize(
    ("metric", "name"),
    [("Lost", "lost_since"), ("RemappedRowsFailed", "remapping_failed_since"), ("Unanswered", "unanswered_minutes")],
)
def test_a_mark_is_set_since_its_first_sample_in_a_minute(metric: str, name: str) -> None:
    def at(minute: int) -> Readings:
        marks = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0] if minute == 12 else [float(minute > 12)] * 6
        return readings(**{metric: {"gpu2": marks}})

    fact = next(each for each in last(at).facts if each.name == name)
    since = fact.start if name == "unanswered_minutes" else fact.value
    assert since == JOB_START + 12 * 60.0 + 35.0


@pytest.mark.parametrize("code", [13, 31, 43, 45, 999])
def test_xid_of_a_program_is_shown_without_firing(code: int) -> None:
    said = last(from_minute(12, XID={"gpu1": float(code)}))
    assert said.status is Status.OK
    assert f"XID {code}" in said.reason


def test_xid_followed_by_another_keeps_both() -> None:
    def at(minute: int) -> Readings:
        newest = 0.0 if minute < 5 else 79.0 if minute == 5 else 45.0
        return readings(XID={"gpu1": newest})

    assert "XID 79" in last(at).reason


def test_counted_xid_that_was_never_the_newest_is_found() -> None:
    def at(minute: int) -> Readings:
        counts = {} if minute < 5 else {"XIDCount74": {"gpu1": float(minute - 4)}, "XIDCount45": {"gpu1": 9.0}}
        return readings(XID={"gpu1": 45.0 if minute >= 5 else 0.0}, **counts)

    assert "XID 74, an NVLink error, 15 times" in last(at).reason


def test_errors_from_before_the_job_are_ignored() -> None:
    assert last(lambda _: readings(ECCUncorrectedErrors={"gpu2": 7.0})).status is Status.OK


def gauge(code: float, until: int = 99) -> DevicesAt:
    """Return what dcgm-exporter writes of a node whose gpu2 shows a code, and is there for some minutes."""

    def at(minute: int) -> Readings:
        there = [gpu for gpu in GPUS if gpu != "gpu2" or minute < until]
        return {"XID": dict.fromkeys(GPUS, 0.0) | {"gpu2": code}, "PowerWatts": dict.fromkeys(there, 300.0)}

    return at


@pytest.mark.parametrize("code", [79.0, 31.0])
def test_xid_set_before_the_job_is_named_and_no_fault(code: float) -> None:
    said = last(gauge(code))
    assert said.status is Status.OK
    assert said.reason.endswith(f"XID {code:.0f} of gpu2 was set before its first sample: it is none of the job.")


def test_xid_that_changes_during_the_job_fires() -> None:
    said = last(lambda minute: gauge(79.0 if minute < 5 else 48.0)(minute))
    assert said.status is Status.FIRED
    assert "gpu2 on algo-1 reported XID 48" in said.reason


def test_xid_that_changes_within_the_first_minute_fires() -> None:
    codes = {"XID": {"gpu0": [0.0, 79.0], "gpu1": [0.0, 0.0]}}
    assert "gpu0 on algo-1 reported XID 79" in last(lambda _: codes).reason


def test_xid_that_was_reset_and_comes_back_fires() -> None:
    assert last(lambda minute: gauge(0.0 if minute == 5 else 79.0)(minute)).status is Status.FIRED


def test_gpu_with_an_old_xid_that_is_lost_has_vanished() -> None:
    node = Rows([[95.0, 95.0, 95.0 if minute < 10 else np.nan, 95.0] for minute in range(20)]).series()
    said = replay_devices(GPUHealth(), GPUHealthParameters(), node, gauge(79.0, until=10)).last
    assert said.status is Status.FIRED
    assert said.reason.startswith("gpu2 on algo-1 has vanished")


def test_restarted_collector_ends_earlier_xids() -> None:
    said = judge(lambda minute: readings(XID={"gpu2": 79.0 if 5 <= minute < 9 else 0.0}))
    assert (said.statuses[8], said.statuses[9]) == (Status.FIRED, Status.OK)


def test_gpu_without_samples_has_vanished_in_the_third_minute() -> None:
    def at(minute: int) -> Readings:
        full = readings()
        if minute < 10:
            return full
        return {metric: {gpu: values[gpu] for gpu in GPUS[:3]} for metric, values in full.items()}

    rows = [[95.0] * 4] * 10 + [[95.0, 95.0, 95.0, float("nan")]] * 5
    said = replay_devices(GPUHealth(), GPUHealthParameters(), Rows(rows).series(), at)
    assert said.statuses[11:13] == (Status.OK, Status.FIRED)
    assert "gpu3 on algo-1 has vanished" in said.last.reason
    assert said.last.time_left_s == 0.0


def test_gpu_with_some_missing_series_has_not_vanished() -> None:
    def at(minute: int) -> Readings:
        full = readings()
        return full if minute < 10 else {metric: {"gpu0": values["gpu0"]} for metric, values in full.items()}

    assert last(at).status is Status.OK


def throttled(clock: float, reasons: int) -> dict[str, Mapping[str, Any]]:
    return {"SMClockMHz": {"gpu1": clock}, "ThrottleReasons": {"gpu1": float(reasons)}}


@pytest.mark.parametrize(
    ("clock", "status"), [(1_350.0, Status.FIRED), (1_351.0, Status.OK)], ids=["at-10-percent", "just-above"]
)
def test_hot_gpu_with_a_clock_below_its_peers_fires(clock: float, status: Status) -> None:
    said = last(from_minute(10, **throttled(clock, HEAT)))
    assert said.status is status
    if status is Status.FIRED:
        assert said.measured == pytest.approx(10.0)
        assert "throttled by heat: its clock under load is 1,350 MHz, 10 % lower than without" in said.reason
        assert "cooling" in (said.advice or "")


def test_hot_gpu_fires_in_the_fifth_minute_and_not_before() -> None:
    said = judge(from_minute(10, **throttled(900.0, BRAKE)))
    assert said.statuses[13:15] == (Status.OK, Status.FIRED)
    assert "a slowdown that its hardware demands" in said.last.reason


def test_hot_gpu_that_keeps_its_clock_is_ok() -> None:
    assert last(from_minute(10, **throttled(1_500.0, HEAT))).status is Status.OK


def test_low_clock_of_a_hot_idle_gpu_is_no_fault() -> None:
    assert last(lambda _: readings(**throttled(300.0, HEAT | IDLE)), busy=20.0).status is Status.OK


def test_gpus_all_slowed_by_heat_are_compared_with_their_past() -> None:
    hot = {"SMClockMHz": dict.fromkeys(GPUS, 1_200.0), "ThrottleReasons": dict.fromkeys(GPUS, float(HEAT | CAP))}
    said = last(from_minute(10, **hot))
    assert said.status is Status.FIRED
    assert said.measured == pytest.approx(20.0)
    assert said.wasted_share == pytest.approx(0.1, abs=0.01)
    assert said.gpus == GPUS


def test_a_clock_that_is_higher_later_is_no_measure_of_before() -> None:
    hot = {"SMClockMHz": dict.fromkeys(GPUS, 1_200.0), "ThrottleReasons": dict.fromkeys(GPUS, float(HEAT | CAP))}
    said = judge(lambda minute: readings(**hot) if minute < 8 else readings())
    assert set(said.statuses) == {Status.OK}


def test_a_gpu_that_is_gone_has_been_so_up_to_the_newest_point() -> None:
    without = {
        metric: {gpu: at for gpu, at in values.items() if gpu != "gpu3"} for metric, values in readings().items()
    }
    rows = [[95.0] * 4] * 10 + [[95.0, 95.0, 95.0, float("nan")]] * 5
    node = Rows(rows).series()
    said = replay_devices(GPUHealth(), GPUHealthParameters(), node, lambda at: readings() if at < 10 else without)
    gone = said.last.facts[0]
    assert (gone.name, gone.value) == ("silent_minutes", 5)
    assert (gone.start, gone.end) == (JOB_START + 10 * 60.0 - 5.0, JOB_START + 15 * 60.0 - 5.0)


def test_gpu_with_a_lower_power_limit_than_its_peers_fires() -> None:
    said = last(lambda _: readings(**throttled(1_200.0, CAP)))
    assert said.status is Status.FIRED
    assert "throttled by its power limit" in said.reason
    assert last(lambda _: readings(**throttled(1_290.0, CAP))).status is Status.OK


def test_slots_that_all_have_half_of_the_lanes_are_no_fault() -> None:
    half = dict.fromkeys(GPUS, 8.0)
    assert last(lambda _: readings(PCIeLinkWidth=half)).status is Status.OK


@pytest.mark.parametrize("begin", [0, 10], ids=["always", "since-minute-10"])
def test_link_narrower_than_the_others_fires(begin: int) -> None:
    said = last(from_minute(begin, PCIeLinkWidth={"gpu3": 4.0}))
    assert said.status is Status.FIRED
    assert "the PCIe link of gpu3 on algo-1 has 4 lanes under load" in said.reason


def test_most_severe_problem_leads_and_the_others_are_named() -> None:
    said = last(from_minute(5, XID={"gpu3": 79.0}, PCIeLinkWidth={"gpu1": 1.0}))
    assert said.worst == "gpu3"
    assert said.gpus == ("gpu3", "gpu1")
    assert "1 other GPU of the node, gpu1, too" in said.reason


@pytest.mark.parametrize("metric", ["MemoryUsedBytes", "PowerWatts", "SMClockMHz", "TemperatureCelsius"])
def test_series_that_say_nothing_of_health_are_no_all_clear(metric: str) -> None:
    said = last(lambda _: {metric: {"gpu0": 1.0, "gpu1": 1.0}})
    assert said.status is Status.NOT_APPLICABLE
    assert "no series of GPU health" in said.reason


def test_single_kind_of_health_series_is_named() -> None:
    assert last(lambda _: {"XID": {"gpu0": 0.0, "gpu1": 0.0}}).reason.endswith("minutes by XID errors.")


def test_clock_loss_of_zero_does_not_fire_without_throttling() -> None:
    assert last(lambda _: readings(ThrottleReasons=dict.fromkeys(GPUS, 0.0)), clock_loss=0.0).status is Status.OK
