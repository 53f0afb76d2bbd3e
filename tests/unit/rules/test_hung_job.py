"""HungJob on its thresholds: what hangs, what only pauses, and which ranks are behind."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.device_minutes import Readings, Rows, replay_devices
from tests.unit.rules.node_replay import JOB_START, NodeSeries, node_minutes
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.hung_job.rule import HungJob, HungJobOverNodes, HungJobParameters
from trainguard.rules.hung_job.state import ProcessProgress, ProgressState, WatchState, behind
from trainguard.rules.hung_job.text import HungKind
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult

WORK_W, HUNG_W, IDLE_W = 400.0, 110.0, 70.0
HANG = 20
PACE_US = 50_000
# Utilization, and power in watts, of each GPU.
Minute = tuple[Sequence[float], Sequence[float]]

WORKS: Minute = ((95.0, 95.0), (WORK_W, WORK_W))
HANGS: Minute = ((100.0, 100.0), (HUNG_W, HUNG_W))
IDLES: Minute = ((0.0, 0.0), (IDLE_W, IDLE_W))
ONE_IDLE: Minute = ((100.0, 0.0), (HUNG_W, IDLE_W))


def watch(
    minutes: Sequence[Minute],
    *,
    memory: float | None = None,
    cores: Callable[[int], float] = lambda _: 10.0,
    written: Callable[[int], float] = lambda _: 1e5,
    limit: float | None = None,
    **parameters: Any,
) -> WatchState:
    """Return what is remembered of a node's minutes; memory is busy at work alone, unless it is given."""
    node = Rows([utilization for utilization, _ in minutes]).series()
    number = (np.arange(len(node.gpu)) // 12).tolist()
    moves = np.array([[40.0 if watts > 300.0 else memory or 0.0 for watts in minutes[at][1]] for at in number])
    cpu = np.array([cores(at) for at in number])
    node = NodeSeries(node.gpu, cpu, moves, node.io_wait_max, node.interval_s)

    def readings(minute: int) -> Readings:
        _, power = minutes[minute]
        return {
            "PowerWatts": {f"gpu{gpu}": [watts] * 12 for gpu, watts in enumerate(power)},
            "WriteThroughputInBytesPerSecond": {"": written(minute)},
            "PowerLimitWatts": {} if limit is None else {"gpu0": limit, "gpu1": limit},
        }

    found = replay_devices(HungJob(), HungJobParameters(**parameters), node, readings).state
    assert isinstance(found, WatchState)
    return found


def over(
    *states: WatchState,
    steps: dict[str, tuple[float, int]] | None = None,
    waiting: int = 0,
    closed: bool = False,
    **parameters: Any,
) -> RuleResult:
    """Judge a job of several nodes; steps are, by process, the minute in which the newest ended, and its number."""
    progress = {
        name: ProcessProgress(round((JOB_START + 60.0 * minute) * 1e6), str(number), number, PACE_US)
        for name, (minute, number) in (steps or {}).items()
    }
    nodes = {}
    for number, state in enumerate(states, 1):
        node = f"algo-{number}"
        own = {name: each for name, each in progress.items() if name.startswith(f"{node}-")}
        nodes[node] = NodeFacts(
            node, collected={"HungJob": ProgressState(own)}, watched={"HungJob": state}, waiting=waiting
        )
    view = JobView(JOB_START, states[0].at, None, bool(steps), bool(steps), closed=closed, nodes=nodes)
    return HungJobOverNodes().judge(view, HungJobParameters(**parameters))


def standing(minutes: int, look: Minute = HANGS, **given: Any) -> WatchState:
    return watch([WORKS] * HANG + [look] * minutes, **given)


STEPS = {"algo-1-rank0": (HANG - 0.1, 500), "algo-1-rank1": (HANG - 0.1, 500)}


def test_given_a_job_that_works_when_judged_then_it_is_ok() -> None:
    said = over(watch([WORKS] * 30), steps=STEPS)
    assert (said.status, said.reason) == (Status.OK, "GPUs of 1 node work, by their utilization or their power.")


@pytest.mark.parametrize(("minutes", "status"), [(2, Status.OK), (3, Status.FIRED)])
def test_waiting_gpus_fire_150_s_after_steps_stopped(minutes: int, status: Status) -> None:
    said = over(standing(minutes, memory=3.0), steps=STEPS)
    assert said.status is status
    if status is Status.FIRED:
        assert "steps have stopped: for " in said.reason
        assert "2 GPUs have looked busy at 110 W each, of 400 W at work" in said.reason
        assert said.kind == HungKind.SPINS
        assert said.onset == pytest.approx(JOB_START + 60.0 * (HANG - 0.1))
        assert said.time_left_s == 0.0
        assert said.gpus == ("algo-1/gpu0", "algo-1/gpu1")


@pytest.mark.parametrize(("minutes", "status"), [(7, Status.OK), (8, Status.FIRED)])
def test_hung_collective_without_steps_fires_after_7_5_minutes(minutes: int, status: Status) -> None:
    assert over(standing(minutes)).status is status


def test_gpus_that_look_hung_do_not_fire_while_steps_go_on() -> None:
    going_on = {"algo-1-rank0": (HANG + 8.0, 700)}
    assert over(standing(9), steps=going_on).status is Status.OK


@pytest.mark.parametrize(("watts", "status"), [(200.0, Status.FIRED), (201.0, Status.OK)])
def test_busy_gpus_hang_up_to_half_of_their_working_power(watts: float, status: Status) -> None:
    assert over(standing(5, ((100.0, 100.0), (watts, watts))), steps=STEPS).status is status


@pytest.mark.parametrize(("memory", "status"), [(5.0, Status.FIRED), (6.0, Status.OK)])
def test_busy_gpus_at_low_power_that_move_memory_work(memory: float, status: Status) -> None:
    assert over(standing(5, memory=memory), steps=STEPS).status is status


def test_one_working_gpu_among_waiting_ones_is_no_hang() -> None:
    assert over(standing(9), watch([WORKS] * 29), steps=STEPS).status is Status.OK


def test_idle_gpu_that_the_others_wait_for_is_named_first() -> None:
    said = over(standing(4, ONE_IDLE), steps=STEPS)
    assert said.status is Status.FIRED
    assert said.worst == "algo-1/gpu1"
    assert "algo-1/gpu1 is idle" in said.reason
    assert (said.advice or "").startswith("Look at algo-1/gpu1 first")


def test_power_that_is_said_is_of_gpus_that_wait_alone() -> None:
    said = over(standing(4), standing(4, IDLES), steps=STEPS)
    assert (
        "2 GPUs have looked busy at 110 W each, of 400 W at work, and algo-2/gpu0, algo-2/gpu1 are idle" in said.reason
    )


def test_ranks_that_are_behind_are_named_first() -> None:
    steps = {"algo-1-rank0": (19.9, 500), "algo-1-rank1": (19.8, 499), "algo-1-rank2": (19.9, 500)}
    said = over(standing(4), steps=steps)
    assert "; behind in steps: algo-1-rank1." in said.reason
    assert said.worst == "algo-1-rank1"


@pytest.mark.parametrize(
    ("processes", "late"),
    [
        ({"n-rank0": (500, 2_000, "TRAIN"), "n-rank1": (495, 2_000, "TRAIN")}, []),
        ({"n-rank0": (500, 2_000, "TRAIN"), "n-rank1": (494, 2_000, "TRAIN")}, ["n-rank1"]),
        ({"n-71": (500, 50_000, "TRAIN"), "n-72": (480, 50_000, "TRAIN")}, []),
        ({"n-71": (5_000, 50_000, "TRAIN"), "n-72": (480, 50_000, "TRAIN")}, ["n-72"]),
        ({"n-rank0": (500, 50_000, "TRAIN"), "n-rank1": (2, 50_000, "EVAL")}, []),
        ({"n-rank0": (500, 0, "TRAIN"), "n-rank1": (2, 0, "TRAIN")}, []),
    ],
)
def test_ranks_with_possibly_unwritten_steps_are_not_named(
    processes: dict[str, tuple[int, int, str]], late: list[str]
) -> None:
    found = {
        name: ProcessProgress(1, str(number), number, pace_us, mode)
        for name, (number, pace_us, mode) in processes.items()
    }
    assert behind(found) == late


def test_waiting_objects_keep_ranks_from_being_called_behind() -> None:
    steps = {"algo-1-rank0": (19.9, 500), "algo-1-rank1": (18.9, 400)}
    assert "behind" not in over(standing(4), steps=steps, waiting=1).reason


def test_node_that_stopped_writing_is_named_while_others_wait() -> None:
    said = over(standing(6), watch([WORKS] * HANG), steps=STEPS)
    assert said.status is Status.FIRED
    assert "no samples any more from algo-2" in said.reason


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"written": lambda minute: 2e8 if minute >= HANG else 1e5}, "a checkpoint is written"),
        ({"cores": lambda minute: 95.0 if minute >= HANG else 10.0}, "the host computes"),
    ],
    ids=["checkpoint", "host"],
)
def test_idle_gpus_on_a_working_host_do_not_fire(given: dict[str, Any], why: str) -> None:
    assert over(standing(12, IDLES, **given), steps=STEPS).status is Status.OK, why


def test_idle_gpus_and_hosts_fire_once_steps_have_stopped() -> None:
    said = over(standing(4, IDLES), steps=STEPS)
    assert said.status is Status.FIRED
    assert "no GPU has worked, and the hosts neither compute, read, write nor send" in said.reason


def test_job_that_paused_before_is_allowed_twice_that_time() -> None:
    calm = [WORKS] * 10 + [IDLES] * 2 + [WORKS] * 8
    assert over(watch(calm + [IDLES] * 4), steps=STEPS).status is Status.OK
    assert over(watch(calm + [IDLES] * 6), steps=STEPS).status is Status.FIRED


def test_hang_after_a_checkpoint_counts_from_its_end() -> None:
    def written(minute: int) -> float:
        return 2e8 if HANG <= minute < HANG + 4 else 1e5

    assert over(standing(6, IDLES, written=written), steps=STEPS).status is Status.OK
    assert over(standing(7, IDLES, written=written), steps=STEPS).status is Status.FIRED


def test_missing_power_makes_the_rule_inapplicable_with_reason() -> None:
    node = Rows([[95.0]] * 10).series()
    said = replay_devices(HungJob(), HungJobParameters(), node, lambda _: {})
    assert said.last.status is Status.NOT_APPLICABLE
    assert "no power of the GPUs was collected" in said.last.reason
    whole = over(said.state)
    assert (whole.status, whole.reason) == (Status.WAITING_FOR_DATA, "no system metrics were written.")


def test_hang_is_unknown_before_five_minutes_of_work() -> None:
    assert over(watch([WORKS] * 3 + [HANGS])).status is Status.WARMING_UP


@pytest.mark.parametrize(
    ("minutes", "cores", "reason"),
    [
        ([WORKS] * 8, 10.0, "the GPUs of algo-1 work, by their utilization or their power."),
        ([WORKS] * 8 + [IDLES] * 3, 10.0, "no GPU of algo-1 has worked for 175 s."),
        (
            [WORKS] * 8 + [IDLES] * 3,
            95.0,
            "no GPU of algo-1 has worked for 175 s, and its host computes, reads, writes or sends.",
        ),
    ],
    ids=["at work", "quiet", "the host works"],
)
def test_node_says_how_long_no_gpu_has_worked(minutes: Sequence[Minute], cores: float, reason: str) -> None:
    state = watch(minutes, cores=lambda at: cores if at >= 8 else 10.0)
    node = list(node_minutes(Rows([each for each, _ in minutes]).series(), closed=False))[-1].view
    assert HungJob().judge(state, node, HungJobParameters()).reason == reason


def test_pause_has_no_duration_at_its_first_sample() -> None:
    state = WatchState(at=60.0, power={"gpu0": [WORK_W] * 5}, quiet_since=60.0, paused_since=60.0, minutes=9)
    node = next(node_minutes(Rows([[0.0]]).series(), closed=False)).view
    assert HungJob().judge(state, node, HungJobParameters()).reason == "no GPU of algo-1 works in its newest sample."


def test_calm_hosts_out_of_step_are_not_said_to_compute() -> None:
    behind_at, ahead = WatchState(at=100.0, quiet_since=40.0, paused_since=40.0), standing(1, IDLES)
    ahead.at, ahead.quiet_since, ahead.paused_since = 160.0, 110.0, 110.0
    behind_at.power, behind_at.minutes = ahead.power, 9
    said = over(behind_at, ahead, steps=STEPS)
    assert (said.status, said.reason) == (Status.OK, "no GPU has worked for 50 s.")


BARRIER: Minute = ((0.0, 100.0), (IDLE_W, HUNG_W))
START_HANG: Minute = ((100.0, 100.0), (HUNG_W, HUNG_W))


@pytest.mark.parametrize(("minutes", "status"), [(1, Status.OK), (2, Status.FIRED)])
def test_gpus_that_all_spin_without_a_step_fire_after_a_minute(minutes: int, status: Status) -> None:
    said = over(standing(minutes), steps=STEPS)
    assert said.status is status


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"memory": 2.0}, "memory moves"),
        ({"cores": lambda minute: 95.0 if minute >= HANG else 10.0}, "many cores compute"),
        ({"written": lambda minute: 2e8 if minute >= HANG else 1e5}, "a checkpoint is written"),
    ],
    ids=["memory", "host", "checkpoint"],
)
def test_waiting_gpus_are_allowed_longer_while_something_moves(given: dict[str, Any], why: str) -> None:
    assert over(standing(2, **given), steps=STEPS).status is Status.OK, why


def test_spinning_gpus_are_allowed_five_slow_steps() -> None:
    state = standing(2)
    progress = ProcessProgress(round((JOB_START + 60.0 * HANG) * 1e6), "9", 9, 25_000_000)
    node = NodeFacts("algo-1", collected={"HungJob": ProgressState({"r": progress})}, watched={"HungJob": state})
    view = JobView(JOB_START, state.at, None, True, True, closed=False, nodes={"algo-1": node})
    assert HungJobOverNodes().judge(view, HungJobParameters()).status is Status.OK


def short(at: Sequence[Minute], **given: Any) -> WatchState:
    """Return a node whose GPUs were limited to 700 W."""
    return watch(at, limit=700.0, **given)


def test_short_job_with_a_spinning_kernel_hangs_by_power_limit() -> None:
    said = over(short([WORKS, HANGS, HANGS]), steps={"algo-1-rank0": (0.95, 40)})
    assert (said.status, said.kind) == (Status.FIRED, HungKind.SPINS)
    assert "2 GPUs have looked busy at 110 W each, of a limit of 700 W" in said.reason
    assert said.onset == pytest.approx(JOB_START + 57.0)


@pytest.mark.parametrize(("minutes", "status"), [(15, Status.OK), (16, Status.FIRED)])
def test_gpus_spinning_from_the_start_fire_after_15_min(minutes: int, status: Status) -> None:
    assert over(short([IDLES, IDLES] + [START_HANG] * minutes)).status is status


def test_gpus_waiting_for_one_that_still_loads_do_not_fire() -> None:
    said = over(short([BARRIER] * 30, written=lambda _: 2e8))
    assert said.status is not Status.FIRED


def test_start_barrier_before_work_does_not_extend_later_waits() -> None:
    state = short([START_HANG] * 8 + [WORKS] * 12)
    assert (state.longest_s, state.quiet_since, state.known["gpu0"]) == (0.0, None, WORK_W)


def test_small_training_with_varying_power_does_not_spin() -> None:
    wavers = [((100.0, 100.0), (watts, watts)) for watts in (110.0, 140.0) * 10]
    assert over(short(wavers)).status is not Status.FIRED


def test_final_step_cut_off_while_spinning_did_not_end() -> None:
    state = standing(2)
    cut_at = round((state.through - 0.5) * 1e6)
    begun = round((JOB_START + 60.0 * HANG - 1.0) * 1e6)
    cut = ProcessProgress(cut_at, "501", 501, PACE_US, "TRAIN", begun, begun)
    node = NodeFacts("algo-1", collected={"HungJob": ProgressState({"r": cut})}, watched={"HungJob": state})
    said = [
        HungJobOverNodes().judge(
            JobView(JOB_START, state.at, None, True, True, closed=closed, nodes={"algo-1": node}), HungJobParameters()
        )
        for closed in (True, False)
    ]
    assert [each.status for each in said] == [Status.FIRED, Status.OK]
    assert said[0].onset == begun / 1e6


def test_facts_of_a_standstill_hold_its_numbers() -> None:
    said = over(standing(4, ONE_IDLE), steps=STEPS)
    facts = {fact.name: fact for fact in said.facts}
    assert said.kind == HungKind.WAITS_FOR_IDLE
    assert (facts["gpus_waiting"].value, facts["gpus_idle"].value, facts["idle_gpu"].value) == (1, 1, "algo-1/gpu1")
    assert (facts["power"].value, facts["power_at_work"].value) == (HUNG_W, WORK_W)
    assert facts["standstill_time"].value == (said.measured or 0.0) * 60.0
    assert said.progress is not None
    assert (said.progress.needed, said.progress.counts) == (150, "seconds")


@pytest.mark.parametrize(("strays", "status"), [(1, Status.FIRED), (3, Status.OK)])
def test_a_gpu_goes_on_spinning_where_few_readings_stray(strays: int, status: Status) -> None:
    look, rows = (HUNG_W, HUNG_W), 12 * 18
    node = Rows([(100.0, 100.0)] * 18).series()
    node.gpu[12 * 9 : 12 * 9 + strays, 0] = 92.0
    node = NodeSeries(node.gpu, np.full(rows, 10.0), np.zeros((rows, 2)), node.io_wait_max, node.interval_s)
    readings: Readings = {
        "PowerWatts": {f"gpu{gpu}": [watts] * 12 for gpu, watts in enumerate(look)},
        "PowerLimitWatts": {"gpu0": 700.0, "gpu1": 700.0},
    }
    state = replay_devices(HungJob(), HungJobParameters(), node, lambda _: readings).state
    assert isinstance(state, WatchState)
    assert over(state).status is status


def test_steps_that_come_late_are_before_the_one_that_was_cut() -> None:
    state = ProgressState()
    for begun_s, lasted_s, number in [(0, 1, "1"), (600, 900, "601"), (598, 1, "600")]:
        times = np.array([begun_s * 1_000_000], dtype=np.int64), np.array([lasted_s * 1_000_000], dtype=np.int64)
        state.fold(FrameworkEvents((StepBatch("n-rank0", "TRAIN", *times, (number,)),)))
    assert state.processes["n-rank0"].ended_by(601.0, 1_499.0) == 599.0


@pytest.mark.parametrize(("known_min", "onset_min"), [(HANG - 0.1, HANG - 0.1), (HANG - 3, HANG)])
def test_a_hang_begins_after_the_last_work(known_min: float, onset_min: float) -> None:
    said = over(standing(4), steps={"algo-1-rank0": (known_min, 500)})
    assert said.onset == pytest.approx(JOB_START + 60.0 * onset_min, abs=6.0)
