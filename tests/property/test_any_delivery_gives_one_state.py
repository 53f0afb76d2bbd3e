"""Any permutation within the lateness bound, any duplication and any crash point: one state, one effect a fire."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.delivery import Network, final_state
from tests.support.small_job import MINUTES, START, describe, uploads
from trainguard.records import JobStatus, Status

UPLOADS = uploads()
END = UPLOADS[-1].at
LATEST_S = 119.0


def play(delays: Any, repeats: Any, crash_points: Any, batch_s: Any, ticks: Any) -> Any:
    """Put every object when it appears, ring ``delays`` later, and return the network at the end."""
    network = Network()
    happenings: list[tuple[float, int, Any, Any]] = [(upload.at, 0, upload, None) for upload in UPLOADS]
    happenings += [(upload.at + delay, 1, upload, None) for upload, delay in zip(UPLOADS, delays, strict=True)]
    happenings += [(UPLOADS[index].at + LATEST_S + delay, 1, UPLOADS[index], None) for index, delay in repeats]
    happenings += [(START + 60.0 * minute, 2, None, None) for minute in ticks]
    happenings += [(START + 60.0 * MINUTES * share, 3, None, calls) for share, calls in crash_points]
    for at, kind, upload, calls in sorted(happenings, key=lambda each: each[:2]):
        network.run_until(at, batch_s=batch_s)
        if kind == 0:
            network.put(upload)
        elif kind == 1:
            network.ring(upload, at)
        elif kind == 2:
            network.tick()
        else:
            network.doomed.append(calls)
    network.run_until(END + 4_000.0, batch_s=batch_s)
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    for minute in range(70, 90):
        network.tick()
        network.run_until(END + 60.0 * minute, batch_s=batch_s)
    return network


DELAYS = st.lists(st.one_of(st.just(0.5), st.floats(0.0, LATEST_S)), min_size=len(UPLOADS), max_size=len(UPLOADS))
REPEATS = st.lists(st.tuples(st.integers(0, len(UPLOADS) - 1), st.floats(0.0, 600.0)), max_size=6)
CRASHES = st.lists(st.tuples(st.floats(0.0, 1.2), st.integers(0, 40)), max_size=4)
TICKS = st.sets(st.integers(1, MINUTES + 3), max_size=8)


@pytest.fixture(scope="module")
def reference() -> Any:
    """The state after every doorbell rang once, in order and in time."""
    network = play([0.5] * len(UPLOADS), [], [], 0.0, set(range(1, MINUTES + 3)))
    assert network.crashes == 0
    return final_state(network.world)


def test_given_the_job_delivered_plainly_when_it_ends_then_each_fault_has_fired_once(reference: Any) -> None:
    assert reference["executions"] == [("LowGPUUtilization", 0), ("StepOutlier", 0)]
    assert reference["LowGPUUtilization#algo-1"][0] is Status.FIRED
    assert reference["LowGPUUtilization#algo-2"][0] is Status.OK
    assert reference["StepOutlier#algo-2"][0] is Status.FIRED
    assert reference["MaxInitializationTime"][0] is Status.OK


def check(reference: Any, delays: Any, repeats: Any, crashes: Any, batch_s: Any, ticks: Any) -> None:
    network = play(delays, repeats, crashes, batch_s, ticks)
    state = final_state(network.world)
    assert state.keys() == reference.keys()
    for name, value in state.items():
        assert value == reference[name], name
    assert network.job().active is False
    assert network.queue == []


def explored(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    arguments = (DELAYS, REPEATS, CRASHES, st.sampled_from([0.0, 5.0, 20.0]), TICKS)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return settings(max_examples=examples, deadline=None)(given(*arguments)(test))

    return decorate


@explored(500)
def test_given_any_delivery_when_the_job_ends_then_state_verdicts_and_effects_are_the_same(
    reference: Any, delays: Any, repeats: Any, crashes: Any, batch_s: Any, ticks: Any
) -> None:
    check(reference, delays, repeats, crashes, batch_s, ticks)


@pytest.mark.thorough
@explored(10_000)
def test_given_ten_thousand_deliveries_when_the_job_ends_then_state_verdicts_and_effects_are_the_same(
    reference: Any, delays: Any, repeats: Any, crashes: Any, batch_s: Any, ticks: Any
) -> None:
    check(reference, delays, repeats, crashes, batch_s, ticks)
