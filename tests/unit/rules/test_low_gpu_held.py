"""LowGPUUtilization with memory in use: idle GPUs that hold memory are a finding of their own."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.rules.device_minutes import DevicesAt, Readings, Rows, replay_devices
from tests.unit.rules.node_replay import Replay, node_minutes
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.rules.low_gpu_utilization.devices import (
    MOST_GPUS,
    Held,
    HeldMemory,
    held_memory,
    held_while_idle,
    is_known,
)
from trainguard.rules.low_gpu_utilization.node import memory_facts
from trainguard.rules.low_gpu_utilization.results import LowGPUUtilizationState
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization, LowGPUUtilizationParameters
from trainguard.rules.low_gpu_utilization.text import text
from trainguard.rules.low_gpu_utilization.usage import HELD_TIME, IDLE_TIME, QUIET_MEAN, Kind
from trainguard.rules.rule_inputs import NodeView
from trainguard.rules.rule_result import FactSheet

GB = 1e9
TOTAL = 80 * GB


def holding(first: float, second: float | None = None, total: float | None = TOTAL) -> Readings:
    """Return memory in use of two GPUs, bytes."""
    used = {"gpu0": first, "gpu1": first if second is None else second}
    return {"MemoryUsedBytes": used, **({} if total is None else {"MemoryTotalBytes": dict.fromkeys(used, total)})}


def judge(utilization: list[float], held: DevicesAt, *, second: list[float] | None = None, **settings: Any) -> Replay:
    """Judge a node of two GPUs by minutes of their utilization."""
    rows = Rows([[one, other] for one, other in zip(utilization, second or utilization, strict=True)])
    return replay_devices(LowGPUUtilization(), LowGPUUtilizationParameters(**settings), rows.series(), held)


def test_stopped_node_holding_memory_says_so_after_20_minutes() -> None:
    said = judge([95.0] * 30 + [0.0] * 20, lambda _: holding(40 * GB))

    assert said.statuses[-2:] == (Status.OK, Status.FIRED)
    assert said.last.reason == (
        "idle, memory held: every GPU of algo-1 has been idle for 20 min (allowed 20 min), and 2 of 2 GPUs hold "
        "80.0 GB of 160.0 GB (50 %) of memory."
    )
    assert (said.last.measure, said.last.measured, said.last.threshold) == (HELD_TIME, 20.0, 20.0)
    assert (said.last.idle_node, said.last.gpus) == ("idle", ("gpu0", "gpu1"))
    assert said.last.wasted_share == pytest.approx(20.0 / 50.0)
    assert said.last.plain_details["finding"] == "idle, memory held"
    advice = said.last.advice or ""
    assert advice.startswith("Save what is needed, then end the processes on algo-1 or stop the job: ")


def test_memory_known_as_a_share_alone_is_held_all_the_same() -> None:
    said = judge([95.0] * 30 + [0.0] * 20, lambda _: {"MemoryUsedPercent": {"gpu0": 61.0, "gpu1": 41.0}})

    assert said.last.measure == HELD_TIME
    assert "and 2 of 2 GPUs hold 51 % of memory." in said.last.reason
    free = judge([95.0] * 30 + [0.0] * 20, lambda _: {"MemoryUsedPercent": {"gpu0": 1.0, "gpu1": 1.0}})
    assert free.last.measure == IDLE_TIME


@pytest.mark.parametrize("idle", [0.0, 2.0], ids=["unused", "nearly idle"])
def test_server_waiting_from_the_start_holds_memory(idle: float) -> None:
    loading = judge([idle] * 25, lambda minute: holding(0.0 if minute < 4 else 30 * GB))

    fired = [result for result in loading.results if result.status is Status.FIRED]
    assert {result.measure for result in fired} == {HELD_TIME}
    assert fired[0].reason.startswith("never used, memory held: no GPU of algo-1 was used in the 20 min")
    assert fired[0].idle_node == "never used"


def test_nearly_idle_node_holding_memory_measures_the_time() -> None:
    flickering = [95.0] * 5 + [0.0, 0.0, 0.0, 12.0] * 10
    held = judge(flickering, lambda _: holding(40 * GB)).last
    free = judge(flickering, lambda _: holding(0.1 * GB)).last

    assert (held.measure, held.reason.partition(":")[0]) == (HELD_TIME, "nearly idle, memory held")
    assert (free.measure, free.reason.partition(":")[0]) == (QUIET_MEAN, "nearly idle")


@pytest.mark.parametrize(
    ("used", "total", "is_held"),
    [(8.0, TOTAL, True), (7.99, TOTAL, False), (2.0, None, True), (1.99, None, False)],
    ids=["on 10 %", "below 10 %", "on 2 GB, size unknown", "below 2 GB, size unknown"],
)
def test_memory_at_the_threshold_is_held_and_not_below(used: float, total: float | None, is_held: bool) -> None:
    said = judge([95.0] * 30 + [0.0] * 25, lambda _: holding(used * GB, total=total)).last

    assert said.status is Status.FIRED
    assert said.measure == (HELD_TIME if is_held else IDLE_TIME)
    assert said.plain_details["memory"] == ("held" if is_held else "free")


def test_given_another_threshold_when_judged_then_that_counts() -> None:
    held = judge([0.0] * 25, lambda _: holding(8 * GB), threshold_memory=11.0).last
    assert held.measure == IDLE_TIME


@pytest.mark.parametrize("minutes", [3, 19], ids=["an evaluation", "a long pause"])
def test_pause_with_memory_held_does_not_fire(minutes: int) -> None:
    said = judge([95.0] * 30 + [0.0] * minutes + [95.0] * 30, lambda _: holding(60 * GB))
    assert Status.FIRED not in said.statuses


def test_uncollected_memory_of_an_idle_node_is_unknown() -> None:
    said = judge([95.0] * 30 + [0.0] * 25, lambda _: {}).last
    assert (said.status, said.measure) == (Status.FIRED, IDLE_TIME)
    assert said.reason == "idle: every GPU of algo-1 has been idle for 25 min (allowed 20 min)."
    assert said.plain_details["memory"] == "not collected"


def test_memory_no_longer_collected_is_not_mentioned() -> None:
    said = judge([95.0] * 30 + [0.0] * 25, lambda minute: holding(60 * GB) if minute < 50 else {}).last
    assert (said.measure, said.plain_details["memory"]) == (IDLE_TIME, "not collected")


@pytest.mark.parametrize(("again", "is_held"), [(40, True), (41, False)])
def test_memory_released_in_between_resets_its_time(again: int, is_held: bool) -> None:
    said = judge([95.0] * 30 + [0.0] * 25, lambda minute: holding(60 * GB if minute >= again else 0.0)).last
    assert (said.measure == HELD_TIME) is is_held


def test_stopped_gpu_holding_memory_is_named_beside_working_ones() -> None:
    stopped = [95.0] * 30 + [0.0] * 40
    held = judge([95.0] * 70, lambda _: holding(60 * GB), second=stopped).last
    free = judge([95.0] * 70, lambda _: holding(60 * GB, 0.0), second=stopped).last

    assert held.status is free.status is Status.FIRED
    assert held.gpus == free.gpus == ("gpu1",)
    assert held.wasted_share == free.wasted_share
    assert held.idle_node is None
    assert held.reason == (
        "idle, memory held: gpu1 on algo-1 has been idle for 40 min (allowed 20 min), and holds 60.0 GB of 80.0 GB "
        "(75 %) of memory."
    )
    assert "end the process on gpu1 of algo-1" in (held.advice or "")
    assert free.kind == Kind.UNDER_USED


@pytest.mark.parametrize(
    ("used", "minutes", "kind"),
    [
        pytest.param(60 * GB, 70, Kind.GPU_TAKEN, id="taken"),
        pytest.param(0.0, 70, Kind.FINE, id="free"),
        pytest.param(60 * GB, 19, Kind.FINE, id="not for long enough"),
    ],
)
def test_a_gpu_that_never_works_and_holds_memory_is_taken(used: float, minutes: int, kind: Kind) -> None:
    said = judge([95.0] * minutes, lambda _: holding(30 * GB, used), second=[0.0] * minutes).last

    assert said.kind == kind
    assert (said.status is Status.FIRED, said.gpus) == (kind == Kind.GPU_TAKEN, ("gpu1",) * (kind == Kind.GPU_TAKEN))


def test_slightly_working_gpu_holding_memory_is_low_not_idle() -> None:
    slow = judge([95.0] * 70, lambda _: holding(60 * GB), second=[30.0] * 70).last
    assert slow.status is Status.FIRED
    assert "memory held" not in slow.reason


def test_bounded_number_of_devices_is_remembered() -> None:
    rows = Rows([[0.0] * (MOST_GPUS + 4)] * 2)
    used = {f"gpu{number}": 9 * GB for number in range(MOST_GPUS + 4)}
    rule = LowGPUUtilization()
    said = replay_devices(rule, LowGPUUtilizationParameters(), rows.series(), lambda _: {"MemoryUsedBytes": used})
    assert len(said.state.held) == MOST_GPUS


def test_state_of_an_earlier_version_knows_nothing_of_memory() -> None:
    earlier = msgspec.msgpack.encode([{}, 3, 2, {}, {}])
    assert msgspec.msgpack.decode(earlier, type=LowGPUUtilizationState).held == {}
    now = LowGPUUtilizationState(held={"gpu0": HeldMemory(at=5, used=3, since=2)})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(now), type=LowGPUUtilizationState) == now


GPU, MINUTES = "gpu0", 3
VIEW = list(node_minutes(Rows([[0.0]] * MINUTES).series(interval_s=60.0), closed=False))[-1].view


@pytest.mark.parametrize(
    ("held_s", "idle_s", "age_s", "is_held", "idle_for"),
    [
        (840.0, 1_140.0, 0.0, True, 1_200.0),
        (840.0, 1_139.0, 0.0, True, None),
        (839.0, 1_140.0, 0.0, False, None),
        (840.0, None, 0.0, True, None),
        (None, 1_140.0, 0.0, False, None),
        (900.0, 1_200.0, 180.0, True, 1_260.0),
        (900.0, 1_200.0, 181.0, False, None),
    ],
)
def test_memory_needs_15_minutes_and_idleness_20_to_be_known(
    held_s: float | None, idle_s: float | None, age_s: float, is_held: bool, idle_for: float | None
) -> None:
    now = VIEW.watermark_s or 0.0
    since, idle_since = (None if each is None else round(now - each) for each in (held_s, idle_s))
    held = {GPU: HeldMemory(round(now - age_s), 40_000, 80_000, since, idle_since)}
    assert (held_memory(held, VIEW) is not None) is is_held
    assert is_known(held, VIEW) is (age_s <= 180.0)
    found = held_while_idle(held, VIEW, GPU, 1_200.0)
    assert (None if found is None else found[1]) == idle_for
    assert held_while_idle(held, VIEW, "gpu9", 1_200.0) is None


def test_gpu_of_unknown_size_shows_only_the_memory_in_use() -> None:
    now = round(VIEW.watermark_s or 0.0)
    held = {
        gpu: HeldMemory(now, used, total, now - 1_200)
        for gpu, used, total in [("gpu10", 2_000, 80_000), ("gpu2", 1_500, 0), ("gpu9", 500, 80_000)]
    }
    found = held_memory(held, VIEW)
    assert found is not None
    assert (found.gpus, found.used, found.total) == (("gpu2", "gpu9", "gpu10"), 4e9, 0.0)
    four = replace(VIEW, gpu_names=tuple("abcd"))
    assert node_holds(found, four).endswith(", and 3 of 4 GPUs hold 4.0 GB of memory.")
    one = held_memory({"gpu9": held["gpu9"]}, VIEW)
    assert one is not None
    amount = "0.5 GB of 80.0 GB (0.6 %) of memory"
    assert node_holds(one, four).endswith(f", and 1 of 4 GPUs holds {amount}.")
    assert node_holds(one, VIEW).endswith(f", and its GPU holds {amount}.")


def node_holds(held: Held, view: NodeView) -> str:
    """Return the sentence on a node that has stopped, and holds memory."""
    idle = Fact(name="idle_time", value=1_200.0, unit="s", node="algo-1", threshold=1_200.0)
    gpus = Fact(name="gpus", value=len(view.gpu_names))
    facts = (idle, gpus, Fact(name="idle_as", value=Kind.STOPPED), *memory_facts(view, held))
    return text(FactSheet(Status.FIRED, Kind.HOLDS_MEMORY, facts)).reason
