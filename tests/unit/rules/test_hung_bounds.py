"""HungJob on its bounds: what a quiet host is, who is named, and what is said where nobody can judge."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.device_minutes import devices
from tests.unit.rules.node_replay import JOB_START, node_minutes, series
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.hung_job.rule import (
    HungJob,
    HungJobOverNodes,
    HungJobParameters,
    facts_of_standstill,
    standing_fact,
)
from trainguard.rules.hung_job.state import ProgressState, WatchState
from trainguard.rules.hung_job.text import HungKind, text
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeMinute
from trainguard.rules.rule_result import FactSheet, RuleResult

RULE = HungJobOverNodes()
DEFAULTS = HungJobParameters()
NAN = float("nan")
VIEW = next(node_minutes(series(np.full((4, 3), 95.0), interval_s=15.0), closed=False)).view
GPUS = VIEW.gpu_names
HANGS = "as in a collective that does not end, or a kernel that only spins"
STOPPED = "for 90 s no GPU has worked, and the hosts neither compute, read, write nor send"


def idling(waiting: int, full: Sequence[float], network: Sequence[float], disk: float | None) -> NodeMinute:
    """Return a minute in which the first GPUs wait in a kernel, and the others are idle."""
    times = JOB_START + 15.0 * np.arange(4, dtype=np.float64)
    gpu = np.tile([100.0] * waiting + [0.0] * (3 - waiting), (4, 1))
    readings = {"PowerWatts": dict.fromkeys(GPUS, [80.0] * 4)}
    return NodeMinute(
        snapshots=node_snapshots(
            times, gpu, gpu_memory=np.zeros_like(gpu), cores_full=full, network=np.array(network), gpu_names=GPUS
        ),
        active=np.full(4, waiting > 0),
        started=np.full(4, True),
        fresh=4,
        view=VIEW,
        devices=devices(0, readings if disk is None else {**readings, "ReadThroughputInBytesPerSecond": {"": disk}}),
    )


@pytest.mark.parametrize(
    ("waiting", "full", "network", "disk", "calm"),
    [
        (0, [0.5], [0.0], None, True),
        (0, [0.625], [0.0], None, False),
        (0, [1.0], [0.0], None, False),
        (1, [0.5], [0.0], None, True),
        (1, [1.0], [0.0], None, True),
        (1, [1.5], [0.0], None, True),
        (1, [1.625], [0.0], None, False),
        (1, [2.0], [0.0], None, False),
        (2, [0.5], [0.0], None, True),
        (2, [1.0], [0.0], None, False),
        (2, [1.5], [0.0], None, True),
        (2, [2.5], [0.0], None, True),
        (2, [3.0], [0.0], None, False),
        (0, [NAN], [0.0], None, True),
        (0, [1.0, 0.0, NAN, NAN], [0.0], None, True),
        (0, [0.0], [10e6], None, True),
        (0, [0.0], [10e6 + 4.0], None, False),
        (0, [0.0], [NAN, NAN, 20e6, 2.0], None, False),
        (0, [0.0], [NAN], None, True),
        (0, [0.0], [0.0], 10e6, True),
        (0, [0.0], [0.0], 10e6 + 4.0, False),
        (0, [NAN], [20e6], None, False),
    ],
)
def test_idle_gpus_on_a_calm_host_stopped_when_the_minutes_began(
    waiting: int, full: list[float], network: list[float], disk: float | None, calm: bool
) -> None:
    state = WatchState(power=dict.fromkeys(GPUS, [400.0] * 5))
    four = [each * 4 if len(each) == 1 else each for each in (full, network)]
    state.fold(idling(waiting, four[0], four[1], disk), 0.5)
    assert state.paused_since == JOB_START
    assert state.quiet_since == (JOB_START if calm else JOB_START + 45.0)


def test_gpus_waiting_in_a_kernel_stopped_though_host_computes() -> None:
    state = WatchState(power=dict.fromkeys(GPUS, [400.0] * 5))
    state.fold(idling(3, [9.0] * 4, [0.0] * 4, None), 0.5)
    assert (state.quiet_since, state.waiting, state.idle) == (JOB_START, list(GPUS), [])


def reading(utilization: Sequence[float], memory: float = 0.0, power: Sequence[float] = (80.0,) * 10) -> WatchState:
    """Return the state of a node of one GPU, at 400 W at work, after a minute of ten readings."""
    times = JOB_START + 6.0 * np.arange(10, dtype=np.float64)
    gpu = np.array(utilization)[:, np.newaxis]
    minute = NodeMinute(
        node_snapshots(times, gpu, gpu_memory=np.full_like(gpu, memory)),
        active=np.full(10, True),
        started=np.full(10, True),
        fresh=10,
        view=replace(VIEW, gpu_names=("gpu0",), ever_active=np.array([True])),
        devices=devices(0, {"PowerWatts": {"gpu0": power}}),
    )
    state = WatchState(power={"gpu0": [400.0] * 5})
    state.fold(minute, 0.5)
    return state


@pytest.mark.parametrize(
    ("state", "works"),
    [
        (reading([9.875] * 10), False),
        (reading([10.0] * 10), True),
        (reading([89.875] * 10), True),
        (reading([90.0] * 10, 5.0), False),
        (reading([90.0] * 10, 5.125), True),
        (reading([0.0] * 10, 9.0), False),
        (reading([100.0] * 10, power=[200.0] * 10), False),
        (reading([100.0] * 10, power=[200.5] * 10), True),
        (reading([50.0, *[100.0] * 9]), False),
        (reading([*[100.0] * 8, 50.0, 50.0]), True),
        (reading([*[100.0] * 9, 50.0]), False),
        (reading([100.0] * 10, power=[*[80.0] * 9, 400.0]), False),
        (reading([100.0] * 10, power=[*[80.0] * 8, 400.0, 400.0]), True),
    ],
)
def test_gpu_works_if_over_a_tenth_of_a_minute_shows_work(state: WatchState, works: bool) -> None:
    assert (state.paused_since is None) is works


@pytest.mark.parametrize(("newest", "idle"), [(9.875, True), (10.0, False)])
def test_standing_gpu_below_10_percent_at_the_end_is_idle(newest: float, idle: bool) -> None:
    state = reading([*[0.0] * 9, newest], power=[*[80.0] * 9, 80.25])
    assert (state.idle, state.waiting) == ((["gpu0"], []) if idle else ([], ["gpu0"]))
    assert state.drawn == {"gpu0": 80.2}


def standing(
    waiting: int, idle: int, *, behind: Sequence[str] = (), silent: Sequence[str] = ()
) -> tuple[HungKind, tuple[Fact, ...]]:
    gpus = [f"gpu{number}" for number in range(waiting + idle)]
    node = WatchState(
        power=dict.fromkeys(gpus, [400.0] * 5),
        waiting=gpus[:waiting],
        idle=gpus[waiting:],
        drawn=dict.fromkeys(gpus, 110.0),
    )
    stood = standing_fact(0.0, 90.0, 90.0)
    return facts_of_standstill({"n": node}, stood, silent=silent, last_step_end=None, behind=behind)


@pytest.mark.parametrize(
    ("found", "sentence", "first"),
    [
        (
            standing(1, 0),
            f"for 90 s 1 GPU has looked busy at 110 W, of 400 W at work, {HANGS}",
            "Take stack traces of all ranks (py-spy dump) first",
        ),
        (
            standing(2, 0),
            f"for 90 s 2 GPUs have looked busy at 110 W each, of 400 W at work, {HANGS}",
            "Take stack traces of all ranks (py-spy dump) first",
        ),
        (
            standing(1, 1),
            "for 90 s 1 GPU has looked busy at 110 W, of 400 W at work, and n/gpu1 is idle",
            "Look at n/gpu1 first",
        ),
        (
            standing(2, 2),
            "for 90 s 2 GPUs have looked busy at 110 W each, of 400 W at work, and n/gpu2, n/gpu3 are idle",
            "Look at n/gpu2, n/gpu3 first",
        ),
        (
            standing(1, 2),
            "for 90 s 1 GPU has looked busy at 110 W, of 400 W at work, and n/gpu1, n/gpu2 are idle",
            "Take stack traces of all ranks (py-spy dump) first",
        ),
        (
            standing(0, 1, silent=["m"]),
            f"{STOPPED}; no samples any more from m",
            "Look at m first",
        ),
        (
            standing(0, 1, silent=["m"], behind=["n-r1"]),
            f"{STOPPED}; behind in steps: n-r1; no samples any more from m",
            "Look at n-r1 first",
        ),
    ],
)
def test_standstill_names_whom_the_others_wait_for(
    found: tuple[HungKind, tuple[Fact, ...]], sentence: str, first: str
) -> None:
    kind, facts = found
    words = text(FactSheet(Status.FIRED, kind, facts))
    assert words.reason == f"{sentence}."
    assert (words.advice or "").startswith(f"{first}. Stop the job")
    assert words.clause == "the job hung"
    assert len(facts) <= 12


def judged(*views: NodeFacts, through: float | None = JOB_START) -> RuleResult:
    nodes = {each.node: each for each in views}
    return RULE.judge(JobView(JOB_START, through, None, False, False, False, nodes), DEFAULTS)


def test_nodes_that_cannot_be_watched_give_the_reason() -> None:
    plain = NodeFacts("algo-1", VIEW, watched={"HungJob": WatchState()})
    parted = NodeFacts("algo-2", replace(VIEW, node="algo-2", gpu_names=(), mig_names=("gpu0.mig0",)))
    assert judged(plain, through=None).status is Status.WAITING_FOR_DATA
    assert judged(plain).reason.startswith("no power of the GPUs was collected, which the rule needs: ")
    assert judged(plain, NodeFacts("algo-3")).reason.startswith("no power of the GPUs was collected")
    said = judged(plain, parted)
    assert said.status is Status.NOT_APPLICABLE
    assert said.reason == "the GPUs of algo-2 are partitioned (MIG), so utilization is not measured."
    alone = HungJob().judge(WatchState(), replace(VIEW, gpu_names=()), DEFAULTS)
    assert (alone.status, alone.reason) == (
        Status.NOT_APPLICABLE,
        "no utilization of GPUs was recorded on algo-1: it has none, or they were not measured.",
    )
    assert HungJob().judge(WatchState(), replace(VIEW, watermark_s=None), DEFAULTS).status is Status.WAITING_FOR_DATA


def test_partitioned_node_beside_others_does_not_count() -> None:
    known = dict.fromkeys(GPUS, [400.0] * 5)
    hangs = WatchState(at=600.0, power=known, quiet_since=100.0, waiting=["gpu0"], drawn={"gpu0": 90.0}, minutes=9)
    works = WatchState(at=600.0, power=known, minutes=9)
    first = NodeFacts("algo-1", VIEW, watched={"HungJob": hangs})
    parted = NodeFacts("algo-2", replace(VIEW, gpu_names=(), mig_names=("gpu0.mig0",)), watched={"HungJob": works})
    mixed = NodeFacts("algo-2", replace(VIEW, mig_names=("gpu0.mig0",)), watched={"HungJob": works})
    assert judged(first, parted).status is Status.FIRED
    assert judged(first, mixed).status is Status.OK


@pytest.mark.parametrize(("newest", "pace_us"), [(31, 40_000), (32, 10_000), (33, 10_000)])
def test_pace_of_accelerated_steps_is_that_of_the_newest_64(newest: int, pace_us: int) -> None:
    gaps = np.array([40_000] * (100 - newest) + [10_000] * newest, dtype=np.int64)
    ends = 1_700_000_000_000_000 + np.concatenate([[0], np.cumsum(gaps)])
    state = ProgressState()
    durations = 100 * np.arange(101, dtype=np.int64)
    batch = StepBatch("n-rank0", "TRAIN", ends - durations, durations, tuple(map(str, range(101))))
    state.fold(FrameworkEvents((batch,)))
    assert state.processes["n-rank0"].pace_us == pace_us
