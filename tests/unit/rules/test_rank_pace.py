"""What counts as a process's own work in a step: each edge of a step, and which blocks are kept."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.test_straggler import START_S, event, read
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch
from trainguard.rules.straggler.pace import Pace, PaceState, ProcessPace

BLOCK_S = 300
FORWARD, LOADER, ON_GPU = "Forward-SubModuleInternal", "DataLoaderIter", "GPU-functions-dev:0"


def step(start_ms: int, length_ms: int = 1_000, mode: str = "TRAIN") -> dict[str, Any]:
    return event(f"Step:ModeKeys.{mode}", start_ms, length_ms, step_num=str(start_ms))


def folded(*objects: Sequence[dict[str, Any]], process: str = "algo-1-rank0") -> PaceState:
    state = PaceState()
    for minute, events in enumerate(objects):
        state.fold(read(process, minute, events))
    return state


def own_work(*events: dict[str, Any]) -> tuple[int, int, int]:
    """Return steps, own work and waits, milliseconds, of three steps of a second with such events."""
    whole = folded([*events, step(1_000), step(2_000), step(4_000)]).processes["algo-1-rank0"].whole
    return whole.steps, whole.own_us // 1_000, whole.wait_us // 1_000


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # A pass counts in the step in which it begins, from its first moment on.
        ([event(FORWARD, 1_000, 100)], (1, 100, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 1_700, 40)], (1, 140, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 2_000, 40)], (2, 140, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 999, 40)], (1, 100, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 3_000, 40)], (1, 100, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 3_999, 40)], (1, 100, 0)),
        ([event(FORWARD, 1_500, 100), event(FORWARD, 5_000, 40)], (1, 100, 0)),
        # What ran on the GPU counts where it took longer than the calls, and only what is a pass or the optimizer.
        ([event(FORWARD, 1_100, 100), event(ON_GPU, 1_100, 250, name="forward")], (1, 250, 0)),
        ([event(FORWARD, 1_100, 100), event(ON_GPU, 1_100, 50, name="forward")], (1, 100, 0)),
        ([event(FORWARD, 1_100, 100), event(ON_GPU, 1_100, 250, name="backward")], (1, 100, 0)),
        ([event(ON_GPU, 1_100, 60, name="forward"), event(ON_GPU, 1_200, 50, name="optimizer")], (1, 110, 0)),
        # A wait counts in the step in which it lies, to its last moment; of those before a step the last.
        ([event(LOADER, 1_000, 100)], (1, 100, 100)),
        ([event(LOADER, 1_900, 100)], (1, 100, 100)),
        ([event(LOADER, 1_100, 100), event(LOADER, 1_300, 50)], (1, 150, 150)),
        ([event(LOADER, 900, 101)], (1, 101, 101)),
        ([event(LOADER, 800, 50), event(LOADER, 900, 80)], (1, 80, 80)),
        ([event(LOADER, 900, 80), event(LOADER, 800, 50)], (1, 80, 80)),
        ([event(LOADER, 900, 80), event(LOADER, 1_500, 50)], (1, 130, 130)),
        ([event(LOADER, 3_100, 500), event(LOADER, 4_100, 50)], (1, 550, 550)),
        ([event(LOADER, 1_500, 50), event(LOADER, 5_000, 70)], (1, 50, 50)),
        ([event(LOADER, 900, 80), event(FORWARD, 1_100, 100), event(ON_GPU, 1_100, 120, name="forward")], (1, 200, 80)),
    ],
)
def test_events_at_step_edges_count_in_their_own_step(
    events: Sequence[dict[str, Any]], expected: tuple[int, int, int]
) -> None:
    assert own_work(*events) == expected


def test_optimizer_is_work_of_its_step_and_evaluation_is_no_step() -> None:
    heads = [event(FORWARD, 1_100, 100), event(FORWARD, 2_100, 300), step(1_000), step(2_000, mode="EVAL")]
    state = folded(heads)
    assert state.processes["algo-1-rank0"].whole == Pace(1, 1_000_000, 100_000, 0)


def test_long_step_after_a_short_one_has_only_its_own_work() -> None:
    events = [event(FORWARD, 1_100, 100), event(FORWARD, 2_100, 200), step(1_000), step(2_000, 5_000)]
    assert folded(events).processes["algo-1-rank0"].whole == Pace(2, 6_000_000, 300_000, 0, beyond_us=100_000)
    alone = [event(FORWARD, 1_100, 100), step(1_000), step(2_000, 5_000)]
    assert folded(alone).processes["algo-1-rank0"].whole == Pace(1, 1_000_000, 100_000, 0)


def test_object_without_steps_or_work_is_not_remembered() -> None:
    assert folded([event(FORWARD, 1_000, 100)], [step(1_000)], [event(FORWARD, 9_000, 1), step(1_000)]) == PaceState()
    only_steps = StepBatch("algo-1-rank0", "Step:ModeKeys.TRAIN", np.array([0]), np.array([1]), ("0",))
    state = PaceState()
    state.fold(FrameworkEvents((only_steps,)))
    assert state == PaceState()


def at_minutes(objects: Mapping[int, Sequence[dict[str, Any]]]) -> ProcessPace:
    state = PaceState()
    for minute, events in objects.items():
        state.fold(read("algo-1-rank0", minute, events))
    return state.processes["algo-1-rank0"]


def test_steps_count_in_the_block_in_which_they_end() -> None:
    at = 1_000 * BLOCK_S
    events = [event(FORWARD, at - 2_000, 100), step(at - 2_001), event(FORWARD, at - 900, 200), step(at - 1_000)]
    block = START_S // BLOCK_S
    assert at_minutes({5: events, 6: events}) == ProcessPace(
        Pace(4, 4_000_000, 600_000, 0),
        {
            block: Pace(2, 2_000_000, 200_000, 0),
            block + 1: Pace(2, 2_000_000, 400_000, 0),
        },
    )


def test_newest_twelve_blocks_of_over_an_hour_are_kept() -> None:
    objects = {
        5 * block: [event(FORWARD, 300_000 * block, 100), step(300_000 * block)] for block in (0, 1, 2, 11, 12, 13)
    }
    first = START_S // BLOCK_S
    assert list(at_minutes(objects).blocks) == [first + block for block in (2, 11, 12, 13)]
    assert at_minutes(objects).whole.steps == 6


def test_first_processes_by_name_are_kept() -> None:
    state = PaceState()
    for number in [*range(1, 257), 0]:
        state.fold(read(f"algo-1-rank{number:03}", 0, [event(FORWARD, 1_000, 100), step(1_000)]))
    assert list(state.processes) == [f"algo-1-rank{number:03}" for number in range(256)]
    assert {pace.whole.steps for pace in state.processes.values()} == {1}


def test_given_a_wait_before_a_step_then_the_step_has_its_time() -> None:
    events = [event(LOADER, 800, 150), event(LOADER, 1_500, 50), step(1_000)]
    whole = folded(events).processes["algo-1-rank0"].whole
    assert (whole.total_us, whole.own_us, whole.wait_us) == (1_150_000, 200_000, 200_000)
