"""A day of a job through the real engine in memory, of `make thorough`; and minutes of what `make soak` runs."""

import gc
import multiprocessing
import sys
import tracemalloc
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
from aws_lambda_powertools import Metrics

from tests.scale.replay import Bodies, Replay
from tests.scale.soak import Hour, grown, two_short_hours
from tests.support.held_memory import held_bytes as held_by_modules
from trainguard.core import layout

HOUR = 60
WARM_HOURS, HOURS = 6, 24
LEAKS = 1_000
SMALL_NODE = {"cores": 2, "gpus": 1, "interval_ms": 10_000}
# What the engine allocates itself: the twins of the stores keep what tests ask for.
ENGINE = (tracemalloc.Filter(True, "*/trainguard/*"), tracemalloc.Filter(False, "*/testing/memory.py"))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_day_of_a_job_grows_no_items_memory_or_log_lines() -> None:
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


def test_each_function_runs_and_its_output_is_counted() -> None:
    """In a process of its own: to walk through what earlier tests left in memory takes longer than the hours."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        (first, second), kept = process.submit(two_short_hours).result()
    assert kept == 3
    assert abs(second.held_bytes - first.held_bytes) < 16 * 1_024
    assert first.held_bytes > 1_000_000
    assert first.invocations["scheduler"] == second.invocations["scheduler"] == 4
    assert second.invocations["evaluate_objects"] >= 4
    assert second.log_bytes["evaluate_objects"] > 0
    assert (second.items, second.item_bytes > 0) == (first.items, True)


class Holder:
    """Something of TrainGuard that holds others."""

    __module__ = "trainguard.holder"
    __slots__ = ("part",)

    def __init__(self, part: list[str]) -> None:
        self.part = part


def test_memory_of_a_module_counts_whoever_allocated_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memo = lru_cache(None)(str.upper)
    metrics = Metrics(namespace="TrainGuard", service="held")
    holder = Holder([])
    monkeypatch.setattr(layout, "held_in_a_test", [memo, metrics, holder], raising=False)
    held = [held_by_modules([layout])]
    list(map(memo, (f"memo {number:06d}" for number in range(LEAKS))))
    held.append(held_by_modules([layout]))
    # All metrics of a process share their dimensions, those of later tests, too: these go with this test.
    for number in range(LEAKS):
        monkeypatch.setitem(metrics.default_dimensions, f"keys {number:06d}", "")
    held.append(held_by_modules([layout]))
    holder.part.extend(f"list {number:06d}" for number in range(LEAKS))
    held.append(held_by_modules([layout]))
    assert all(later - earlier > LEAKS * sys.getsizeof("list 000000") for earlier, later in pairwise(held))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"items": 4}, ["items: 3 after the warm-up, 4 at the end"]),
        ({"item_bytes": 1_100}, ["bytes of items: 1,000 after the warm-up, 1,100 at the end"]),
        ({"held_bytes": 70_000}, ["memory: 0 bytes after the warm-up, 70,000 at the end"]),
        ({"log_bytes": Counter(scheduler=600)}, ["log bytes an hour: 500 in the warm-up, 600 after it"]),
    ],
)
def test_given_hours_when_something_grows_then_it_is_named(change: dict[str, Any], said: list[str]) -> None:
    hour = Hour(3, 1_000, 0, 80.0, Counter(scheduler=500), Counter(scheduler=60))
    assert grown([hour, hour, replace(hour, **change)], 2) == said
