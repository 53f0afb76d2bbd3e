"""The stored item of a node's framework stream stays small, whatever its processes write."""

from typing import Any

import numpy as np
import pytest

from tests.support.framework_traces import START_US, event, read, step
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.framework_session import FrameworkState, FrameworkStream
from trainguard.engine.streams.session import ITEM_CAP_BYTES
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.state.codec import encode_state


def busy_object(process: int, minute: int, *, operators: int, spread: float) -> FrameworkEvents:
    """A minute of steps, operators and fetches of one process; a new name a draw when ``operators`` is large."""
    random = np.random.default_rng([process, minute])
    events: list[Any] = [event("DataLoaderIterInitialize", "init", 0.0, 0.1, pid=905, num_workers=4)]
    at = 60.0 * minute
    for number in range(100):
        duration = min(0.4 * float(np.exp(random.normal(0.0, spread))), 4.0) * (5.0 if random.random() < 0.02 else 1.0)
        events.append(step(minute * 100 + number, at, duration))
        name = int(random.integers(operators))
        events.append(event("cpu_functions", f"aten::op_{name}", at, duration * float(random.random()), tid=1))
        events.append(event("gpu_functions-dev:0", f"kernel_{name}", at, duration * float(random.random()), tid=0))
        events.append(event(f"phase_{name % 40}", "x", at, duration * float(random.random())))
        fetch = 0.01 * float(np.exp(random.normal(0.0, spread)))
        events.append(event("DataLoaderIter", "DataLoaderIter::GetNext", at, fetch, pid=5000 + number % 7))
        at += duration + 0.05
    return read(events, process=f"algo-1-{process}")


@pytest.mark.parametrize(
    ("processes", "minutes", "operators", "spread", "most"),
    [(8, 12, 60, 0.03, 6_000), (8, 12, 60, 0.8, 9_000), (64, 3, 10**9, 1.5, ITEM_CAP_BYTES // 2)],
)
def test_item_of_busy_processes_is_within_its_budget(
    processes: int, minutes: int, operators: int, spread: float, most: int
) -> None:
    stream = FrameworkStream("algo-1", FrameworkState(), FAMILIES.plan(JobRecord("job", "arn", "b", "")))

    for minute in range(minutes):
        for process in range(processes):
            events = busy_object(process, minute, operators=operators, spread=spread)
            stream.apply(events, START_US + 60_000_000 * (minute + 1))

    assert stream.raised == []
    assert len(encode_state(stream.store())) < most


def test_rules_know_the_training_start_of_a_stream_with_steps() -> None:
    plan = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))

    view = FrameworkStream("algo-1", FrameworkState(first_step_us=START_US), plan).view(closed=False)

    assert view.first_step_at == START_US / 1e6
    assert FrameworkStream("algo-1", FrameworkState(), plan).view(closed=False).first_step_at is None
