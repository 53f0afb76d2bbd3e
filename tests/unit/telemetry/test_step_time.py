"""Where processes say their time went: the same in any order of objects, and no moment of an object counts twice."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import EventTable, StepBatch
from trainguard.formats.profile.snapshots import IntArray
from trainguard.state.step_time import CHECKPOINT, DATA, EVALUATION, PEERS, TRAIN, StepTime
from trainguard.state.time_grid import MOST_STEPS

START_US = 1_700_000_000_000_000
# A phase, its beginning in seconds, and its length.
Stretch = tuple[str, float, float]


def an_object(stretches: list[Stretch], process: str = "algo-1-7", number: int = 0) -> FrameworkEvents:
    """Return the events of one object; TRAIN and EVAL are steps, numbered from ``number``."""
    steps = []
    for mode in ("TRAIN", "EVAL"):
        own = [each for each in stretches if each[0] == mode]
        if own:
            numbers = tuple(str(number + place) for place in range(len(own)))
            starts, durations = _times(own)
            steps.append(StepBatch(process, f"Step:ModeKeys.{mode}", starts, durations, numbers))
    others = [each for each in stretches if each[0] not in {"TRAIN", "EVAL"}]
    phases = tuple(sorted({each[0] for each in others}))
    index = np.array([phases.index(each[0]) for each in others], dtype=np.int64)
    starts, durations = _times(others)
    zeros = np.zeros(len(others), dtype=np.int64)
    table = EventTable(process, "pythontimeline", phases, phases, index, index, starts, durations, zeros, zeros, zeros)
    return FrameworkEvents(tuple(steps), table=table)


def _times(stretches: list[Stretch]) -> tuple[IntArray, IntArray]:
    starts = np.array([START_US + round(1e6 * start) for _, start, _ in stretches], dtype=np.int64)
    return starts, np.array([round(1e6 * length) for _, _, length in stretches], dtype=np.int64)


def seconds(time: StepTime) -> list[float]:
    """Return the seconds of data, checkpoints, evaluation and training steps."""
    return [float(time.grid.column(column).sum()) / 1_000 for column in (DATA, CHECKPOINT, EVALUATION, TRAIN)]


def test_each_moment_of_overlapping_events_counts_once() -> None:
    time = StepTime()
    time.fold(
        an_object(
            [
                ("TRAIN", 0.0, 10.0),
                ("DataLoaderIter", 10.0, 4.0),
                ("DataLoaderIter", 12.0, 4.0),
                ("Evaluation", 20.0, 40.0),
                ("EVAL", 25.0, 5.0),
                ("DataLoaderIter", 30.0, 6.0),
                ("Checkpoint", 55.0, 10.0),
            ]
        )
    )

    assert seconds(time) == [12.0, 10.0, 29.0, 10.0]
    process = time.processes["algo-1-7"]
    assert (process.steps, process.saves, process.evaluates) == (1, True, True)
    assert (process.last_ms - process.first_ms, process.first_number, process.last_number) == (65_000, 0, 0)


def test_given_an_event_of_days_when_folded_then_it_is_left_out() -> None:
    time = StepTime()
    time.fold(an_object([("Checkpoint", -900_000.0, 900_010.0), ("TRAIN", 0.0, 5.0)]))

    assert seconds(time) == [0.0, 0.0, 0.0, 5.0]


def test_waits_for_peers_of_steps_are_kept_with_the_least() -> None:
    time = StepTime()
    steps = [("TRAIN", float(number), 0.9) for number in range(20)]
    waits = [("peer_wait", number + 0.5, 0.01 if number == 3 else 0.2) for number in range(20)]
    time.fold(an_object([*steps, *waits, ("peer_wait", 1.6, 0.05), ("peer_wait", 30.0, 1.0)]))

    process = time.processes["algo-1-7"]
    assert (process.timed, process.waited_us, process.least_us) == (20, 19 * 200_000 + 10_000, 20 * 10_000)
    assert not process.waits_on_gpu
    assert time.grid.column(PEERS).sum() == 19 * 200 + 10 + 1_000


def test_stored_grid_from_before_waits_for_peers_goes_on() -> None:
    stored = [[0, 1, [[1], [2], [3], [4]]], {"a": [0, 1]}]
    assert msgspec.convert(stored, StepTime).grid.columns == [[1], [2], [3], [4], [0]]


stretches = st.tuples(
    st.sampled_from(["TRAIN", "EVAL", "DataLoaderIter", "Checkpoint", "Evaluation", "Other", "peer_wait"]),
    st.floats(0.0, 90_000.0),
    st.floats(0.0, 600.0),
)
objects = st.lists(st.tuples(st.lists(stretches, min_size=1, max_size=12), st.integers(0, 3)), min_size=1, max_size=8)


@given(objects, st.randoms(use_true_random=False))
def test_time_does_not_depend_on_the_object_order(objects, random) -> None:  # type: ignore[no-untyped-def]
    def folded(order: list[tuple[list[Stretch], int]]) -> StepTime:
        time = StepTime()
        for each, process in order:
            time.fold(an_object(each, f"algo-1-{process}"))
        return time

    shuffled = list(objects)
    random.shuffle(shuffled)
    assert msgspec.msgpack.encode(folded(shuffled)) == msgspec.msgpack.encode(folded(objects))
    assert all(len(column) <= MOST_STEPS for column in folded(objects).grid.columns)


@pytest.mark.parametrize("stored", [[[0, 1, [[1]]]], [[0, 1, []], {"a": [0]}], [[0, 1, []], {"a": ["x", 1]}]])
def test_stored_parts_that_do_not_fit_are_refused(stored: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, StepTime)
