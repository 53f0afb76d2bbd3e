"""Nodes with more devices, codes and processes than are remembered: the first of them count."""

from typing import Any

import numpy as np
import pytest

from tests.unit.rules.device_minutes import Readings, Rows, replay_devices
from tests.unit.rules.node_replay import Replay
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.gpu_health.faults import MOST_GPUS, MOST_XIDS
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.rules.hung_job import state as hung_watch
from trainguard.rules.hung_job.rule import MOST_STEPS, HungJob, details_of, facts_of_standstill, standing_fact
from trainguard.rules.hung_job.state import MOST_PROCESSES, ProgressState, WatchState
from trainguard.rules.hung_job.text import text
from trainguard.rules.low_gpu_utilization import devices as low_gpu_devices
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.rule_result import FactSheet


def seen(rule: AnySystemRule, metric: str) -> Replay:
    """Show a rule a node of more GPUs than are remembered, all busy for six minutes."""
    gpus = [f"gpu{number}" for number in range(MOST_GPUS + 2)]
    readings: Readings = {metric: dict.fromkeys(gpus, 7.0)}
    node = Rows([[95.0] * len(gpus)] * 6).series(interval_s=60.0)
    return replay_devices(rule, rule.parameters_type(), node, lambda _: readings)


@pytest.mark.parametrize(
    ("rule", "metric", "kept", "most"),
    [
        (LowGPUUtilization(), "SMActivityPercent", "activity", low_gpu_devices.MOST_GPUS),
        (LowGPUUtilization(), "SMActivityPercent", "signs", low_gpu_devices.MOST_GPUS),
        (LowGPUUtilization(), "MemoryUsedBytes", "held", low_gpu_devices.MOST_GPUS),
        (HungJob(), "PowerWatts", "power", hung_watch.MOST_GPUS),
        (GPUHealth(), "SMClockMHz", "gpus", MOST_GPUS),
    ],
)
def test_first_gpus_keep_counting_beyond_the_remembered_limit(
    rule: AnySystemRule, metric: str, kept: str, most: int
) -> None:
    assert getattr(seen(rule, metric).state, kept).keys() == {f"gpu{number}" for number in range(most)}


@pytest.mark.parametrize(
    ("codes", "kept"),
    [
        (range(200, 200 + MOST_XIDS + 1), set(range(200, 200 + MOST_XIDS))),
        ([*range(200, 200 + MOST_XIDS), 79], {*range(201, 200 + MOST_XIDS), 79}),
        ([*range(200, 200 + MOST_XIDS), 200], set(range(200, 200 + MOST_XIDS))),
    ],
    ids=["of programs", "of hardware after them", "one again"],
)
def test_hardware_xid_replaces_one_of_a_program_at_the_limit(codes: Any, kept: set[int]) -> None:
    after = [0, *codes]  # a code in the first sample is of before the job
    node = Rows([[95.0]] * len(after)).series(interval_s=60.0)
    said = replay_devices(
        GPUHealth(), GPUHealth().parameters_type(), node, lambda minute: {"XID": {"gpu0": float(after[minute])}}
    )
    assert said.state.gpus["gpu0"].xids.keys() == kept


def test_first_processes_by_name_are_kept_and_shown() -> None:
    state = ProgressState()
    names = [f"algo-1-rank{number:03}" for number in range(MOST_PROCESSES + 1)]
    one = np.array([1], dtype=np.int64)
    state.fold(FrameworkEvents(tuple(StepBatch(name, "TRAIN", one, one, ("7",)) for name in reversed(names))))
    assert list(state.processes) == names[:-1]
    shown = details_of({}, dict.fromkeys(names, "7"))
    assert list(shown.steps) == names[:MOST_STEPS]


@pytest.mark.parametrize(("count", "end"), [(1, "n-rank0"), (4, "n-rank3"), (5, "n-rank3 and 1 more")])
def test_given_many_ranks_behind_when_said_then_four_are_named(count: int, end: str) -> None:
    ranks = [f"n-rank{number}" for number in range(count)]
    node, stood = WatchState(idle=["gpu0"], drawn={"gpu0": 70.0}), standing_fact(0.0, 90.0, 90.0)
    kind, facts = facts_of_standstill({"n": node}, stood, silent=[], last_step_end=0.0, behind=ranks)
    assert text(FactSheet(Status.FIRED, kind, facts)).reason.endswith(f"{end}.")
