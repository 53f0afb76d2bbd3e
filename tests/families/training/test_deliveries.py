"""However messages about debug-output come, or not, and wherever evaluators die: one state, one effect a fire."""

from dataclasses import dataclass
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.families.training.runs import (
    FAMILIES,
    debug_item,
    fires_of,
    network_of,
    rows_of,
    run_files,
    uploads_of,
    wakes,
)
from tests.support.delivery import Network
from tests.support.small_job import START, Upload, describe
from trainguard.core.records import JobStatus
from trainguard.engine.streams.session import DELIVERY_COUNTERS, state_of
from trainguard.engine.training.debug_session import DebugState

WORKERS, STEPS = 3, 8
LOSSES = [1.0, 1.0, 200.0, 300.0, 1.0, 500.0, 1.0, 1.0]
# Steps that a worker does not save.
SKIPPED = {(3, 2), (6, 1)}


@cache
def uploads() -> tuple[Upload, ...]:
    """Return a run of three workers of which two skip a step."""
    files = run_files(LOSSES, workers=WORKERS, ended=True)
    for step, rank in SKIPPED:
        del files[f"index/000000000/{step:012d}_worker_{rank}.json"]
    return tuple(uploads_of(files))


@dataclass(frozen=True)
class Delivery:
    """Seconds after which each object's message comes, None for never; repeats; port calls until functions die."""

    delays: tuple[float | None, ...]
    repeats: tuple[int, ...] = ()
    doomed: tuple[int, ...] = ()
    batch_s: float = 0.0
    ticks: bool = True


def play(delivery: Delivery) -> Network:
    network = Network(families=FAMILIES)
    network.doomed = list(delivery.doomed)
    happenings: list[tuple[float, int, Upload]] = []
    for upload, delay in zip(uploads(), delivery.delays, strict=True):
        happenings.append((upload.at, 0, upload))
        if wakes(upload) and delay is not None:
            happenings.append((upload.at + delay, 1, upload))
    happenings += [(uploads()[index].at + 700.0, 1, uploads()[index]) for index in delivery.repeats]
    for at, kind, upload in sorted(happenings, key=lambda each: each[:2]):
        network.run_until(at, batch_s=delivery.batch_s)
        if kind == 0:
            network.put(upload)
        elif wakes(upload):
            network.announce(upload, at)
        if delivery.ticks and kind == 0 and upload.key.endswith("worker_0.json"):
            network.run_scheduler()
    network.run_until(START + 8_000.0, batch_s=delivery.batch_s)
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    for minute in range(0, 30, 3):
        network.now = START + 8_000.0 + 60.0 * minute
        network.run_scheduler()
        network.run_until(network.now + 30.0, batch_s=delivery.batch_s)
    return network


def outcome(network: Network) -> object:
    """Return all that must not depend on delivery."""
    item = debug_item(network)
    state = msgspec.structs.replace(state_of(item, DebugState), ended=False)
    for stored in state.stored_rules.values():
        stored.published = stored.published_at = None
    counters = {name: count for name, count in item.counters.items() if name not in DELIVERY_COUNTERS}
    rows = {
        name: (row.status, row.finding.reason, row.finding.measured, row.violations, row.times_fired, row.data_points)
        for name, row in rows_of(network).items()
        if name.startswith("training/")
    }
    return (
        msgspec.json.encode(state),
        dict(item.cursors),
        dict(item.pending),
        counters,
        rows,
        sorted(map(str, fires_of(network))),
    )


@cache
def expected() -> object:
    return outcome(play(Delivery(tuple(0.5 for _ in uploads()), ticks=False)))


def test_plain_delivery_fires_each_episode_once() -> None:
    network = play(Delivery(tuple(0.5 for _ in uploads())))
    assert [value for _, _, value in fires_of(network)] == [200.0, 500.0]
    assert debug_item(network).cursors == {"step": 7, "newest": 7}
    assert debug_item(network).counters == {}


@pytest.mark.parametrize("calls", range(1, 30, 2))
def test_function_crash_at_any_call_changes_nothing(calls: int) -> None:
    network = play(Delivery(tuple(0.5 for _ in uploads()), doomed=(0, calls, calls, 30 - calls), ticks=False))
    assert outcome(network) == expected()


DELAYS = st.one_of(st.just(0.5), st.floats(0.1, 60.0), st.floats(60.0, 900.0), st.none())


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    count = len(uploads())
    return Delivery(
        delays=tuple(draw(DELAYS) for _ in range(count)),
        repeats=tuple(draw(st.lists(st.integers(0, count - 1), max_size=5))),
        doomed=tuple(draw(st.lists(st.integers(1, 25), max_size=4))),
        batch_s=draw(st.sampled_from([0.0, 5.0, 60.0])),
        ticks=False,
    )


@given(deliveries())
def test_any_delivery_gives_the_same_state_rows_and_fires(delivery: Delivery) -> None:
    assert outcome(play(delivery)) == expected()


def test_worker_writing_between_listing_pages_loses_no_step() -> None:
    """S3 shows a page as it is when it is asked for: a step of a worker comes after the page that would show it."""
    every = uploads_of(run_files([1.0, 1.0, 1.0], workers=2))
    slow = [each for each in every if "_worker_0." in each.key and "/000000000000_" not in each.key]
    network = network_of(each for each in every if each not in slow)
    network.world.objects._page_size = 1

    def write() -> None:
        for upload in slow:
            network.put(upload)

    network.world.faults.interleave("ReadableObjects.list", write, nth=2)
    network.announce(every[-1], START + 110.0)
    network.run_until(START + 111.0, batch_s=0.0)
    history = state_of(debug_item(network), DebugState).history
    assert [len(history.workers_of(past)) for past in history.steps] == [2, 2, 2]
