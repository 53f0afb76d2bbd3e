"""Objects of several workers, named by their training step, are applied in the order of steps."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.ordering.partition_order import PartitionOrder

# In steps: workers write every 10 to 14 steps, or early, or after a pause of up to 80.
LATENESS, FORGOTTEN = 20, 1_000
of_steps = partial(PartitionOrder, lateness=LATENESS, list_every=8, silent=100, forgotten=FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Written:
    """An object of a worker, and when it was uploaded; time runs one unit a step."""

    position: int
    partition: str
    uploaded: int

    @property
    def key(self) -> str:
        """The object's key."""
        return f"job/steps/{self.position:09d}_{self.partition}"


def in_order(written: Iterable[Written]) -> list[Written]:
    return sorted(written, key=lambda each: (each.position, each.key))


def in_order_of_upload(written: Iterable[Written]) -> list[Written]:
    return sorted(written, key=lambda each: (each.uploaded, each.key))


@st.composite
def jobs(draw: st.DrawFn) -> list[Written]:
    """Return the objects of up to three workers; each is some steps behind the fastest, but never the lateness."""
    written = []
    for number in range(draw(st.integers(1, 3))):
        step, behind = draw(st.integers(0, 20)), draw(st.integers(0, LATENESS - 1))
        for _ in range(draw(st.integers(1, 8))):
            written.append(Written(step, f"worker-{number}", step + behind))
            step += draw(st.one_of(st.integers(10, 14), st.integers(1, 9), st.integers(40, 80)))
    return in_order(written)


def listing(written: Sequence[Written], now: float) -> Callable[..., list[tuple[str, Written, float]]]:
    """Return what S3 lists at a time."""

    def listed(start: int | None, end: int | None, having: Collection[str] | None) -> list[tuple[str, Written, float]]:
        there = [each for each in written if each.uploaded <= now]
        assert set(having or ()) <= {each.key for each in there}
        return [
            (each.key, each, 0.0)
            for each in there
            if (start is None or each.position >= start) and (end is None or each.position <= end)
        ]

    return listed


def read_back(order: PartitionOrder, written: Sequence[Written]) -> PartitionOrder:
    """Return the order as the next evaluator has it from the worker's item."""
    order.forget_partitions()
    by_key = {each.key: each for each in written}
    read = of_steps(cursors=dict(order.cursors), max_seen=order.max_seen, listed=order.applied, floor=order.floor)
    read.restore((key, by_key[key]) for key in order.stored)
    return read


@given(jobs(), st.data())
def test_steps_of_any_late_or_lost_messages_apply_once_in_order(written: list[Written], data: st.DataObject) -> None:
    delay = st.one_of(st.just(0), st.integers(0, 19), st.integers(20, 400), st.none())
    announced = [(each.uploaded + late, each) for each in written if (late := data.draw(delay)) is not None]
    order = of_steps()
    applied: list[str] = []
    for now, each in sorted(announced, key=lambda pair: (pair[0], pair[1].key)):
        order.announce(each.key, each)
        if data.draw(st.booleans()):
            order.announce(each.key, each)
        applied.extend(arrival.key for arrival in order.ready(listing(written, now)))
        order = read_back(order, written)
    applied.extend(arrival.key for arrival in order.ready(listing(written, 1e9), drain=True))
    assert applied == [each.key for each in written]


def test_single_worker_applies_steps_behind_the_lateness() -> None:
    written = [Written(step, "worker-0", step) for step in range(0, 101, 10)]
    order = of_steps()
    applied: list[int] = []
    for each in written:
        order.announce(each.key, each)
        applied.extend(arrival.position for arrival in order.ready(listing(written, each.uploaded)))
    assert applied == list(range(0, 81, 10))


def test_worker_far_behind_is_forgotten_by_steps() -> None:
    fast = [Written(step, "worker-0", step) for step in (1_000, 1_001 + FORGOTTEN)]
    slow = Written(1_000, "worker-1", 1_000)
    order = of_steps()
    for each in (*fast, slow):
        order.announce(each.key, each)
    assert len(list(order.ready(listing([*fast, slow], 1e9), drain=True))) == 3
    assert order.forget_partitions() == 0
    assert (set(order.cursors), order.floor) == ({"worker-0"}, 1_000)


def test_lost_first_object_of_a_late_worker_comes_with_its_next() -> None:
    fast = [Written(step, "worker-0", step) for step in range(0, 201, 10)]
    lost, told = Written(120, "worker-1", 180), Written(150, "worker-1", 181)
    order = of_steps()
    applied: list[tuple[str, int]] = []
    for each in in_order_of_upload([*fast, told]):
        order.announce(each.key, each)
        ready = order.ready(listing([*fast, lost, told], each.uploaded))
        applied.extend((arrival.partition, arrival.position) for arrival in ready)
    assert [step for worker, step in applied if worker == "worker-0"] == list(range(0, 181, 10))
    assert [step for worker, step in applied if worker == "worker-1"] == [120, 150]


def test_known_worker_far_behind_is_listed_from_its_cursor() -> None:
    fast = [Written(step, "worker-0", step) for step in range(0, 301, 10)]
    first, lost, told = (Written(0, "worker-1", 0), Written(20, "worker-1", 250), Written(230, "worker-1", 251))
    order = of_steps()
    applied: list[int] = []
    for each in in_order_of_upload([*fast, first, told]):
        order.announce(each.key, each)
        ready = order.ready(listing([*fast, first, lost, told], each.uploaded))
        applied.extend(arrival.position for arrival in ready if arrival.partition == "worker-1")
    assert applied == [0, 20, 230]
