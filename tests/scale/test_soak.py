"""A day of a job through the real engine in memory, where nothing grows but what tests keep; of `make thorough`."""

import gc
import tracemalloc

import pytest

from tests.scale.replay import Bodies, Replay

HOUR = 60
WARM_HOURS, HOURS = 6, 24
SMALL_NODE = {"cores": 2, "gpus": 1, "interval_ms": 10_000}
ENGINE = (tracemalloc.Filter(True, "*/trainguard/*"), tracemalloc.Filter(False, "*/adapters/memory/*"))
"""What the engine allocates itself: the twins of the stores keep what tests ask for."""


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_given_a_day_of_a_job_when_it_is_evaluated_then_items_memory_and_log_lines_do_not_grow() -> None:
    replay = Replay(1, Bodies(**SMALL_NODE))
    tracemalloc.start()
    try:
        replay.run(WARM_HOURS * HOUR)
        held = held_bytes()
        found = replay.run((HOURS - WARM_HOURS) * HOUR)
        grown = held_bytes() - held
    finally:
        tracemalloc.stop()
    warm, end = WARM_HOURS * HOUR - 1, HOURS * HOUR - 1
    assert found.items[end] == found.items[warm]
    assert found.item_bytes[end] <= 1.05 * found.item_bytes[warm]
    a_day, first_hours = found.lines[end], found.lines[warm]
    assert a_day - first_hours <= 1.05 * first_hours * (HOURS - WARM_HOURS) / WARM_HOURS
    assert grown < 64 * 1_024


def held_bytes() -> int:
    gc.collect()
    kept = tracemalloc.take_snapshot().filter_traces(ENGINE)
    return sum(each.size for each in kept.statistics("filename"))
