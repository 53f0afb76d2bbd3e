"""From where S3 is listed, what is remembered of partitions, and what is forgotten."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from trainguard.engine.ordering.partition_order import FORGOTTEN_US, MOST_PARTITIONS, SILENT_US, PartitionOrder
from trainguard.formats.profile.keys import FrameworkKey, FrameworkName, parse_key

SECOND = 1_000_000
START_US = 1_795_248_000 * SECOND


def name(process: int, at_s: float) -> str:
    end_us = START_US + round(at_s * SECOND)
    return f"job/profiler-output/framework/pevents/2026112108/{end_us}_{process}-algo-1_pythontimeline.json"


def parsed(key: str) -> FrameworkKey:
    read = parse_key(key)
    assert isinstance(read, FrameworkKey)
    return read


@dataclass
class Bucket:
    """Objects of one node, and from where they were listed, in seconds after the start."""

    keys: Sequence[str]
    listed_from: list[float | None] = field(default_factory=list)

    def __call__(
        self, from_us: int | None, to_us: int | None, having: Collection[str] | None
    ) -> Iterable[FrameworkName]:
        self.listed_from.append(None if from_us is None else (from_us - START_US) / SECOND)
        for key in self.keys:
            end_us = parsed(key).end_us
            if (from_us is None or end_us >= from_us) and (to_us is None or end_us <= to_us):
                yield key, parsed(key), 0.0


def order(*cursors: tuple[int, float], listed_s: float, floor_s: float | None = None) -> PartitionOrder:
    """Return an order whose processes have been applied up to their cursors, in seconds after the start."""
    return PartitionOrder(
        cursors={f"{process}/pythontimeline": START_US + round(at * SECOND) for process, at in cursors},
        listed=START_US + round(listed_s * SECOND),
        floor=-1 if floor_s is None else START_US + round(floor_s * SECOND),
    )


def announce(engine: PartitionOrder, *keys: str) -> None:
    for key in keys:
        engine.announce(key, parsed(key))


def applied(engine: PartitionOrder, bucket: Bucket, *, drain: bool = False) -> list[str]:
    return [arrival.key for arrival in engine.ready(bucket, drain=drain)]


def test_unknown_process_is_listed_from_the_forgotten_floor_on() -> None:
    new, far = name(7, 5_000.0), name(1, 5_400.0)
    engine = order((1, 5_000.0), listed_s=5_000.0, floor_s=4_900.0)
    announce(engine, new, far)
    bucket = Bucket([new, far])
    assert applied(engine, bucket) == [new]
    assert bucket.listed_from[0] == 4_900.0


def test_listing_ever_earlier_processes_leaves_nothing_out() -> None:
    """Each listing begins at the partition that it moves, and finds there an object of one that stands further back."""
    first, second, third = name(1, 2_000.0), name(2, 1_450.0), name(3, 900.0)
    bucket = Bucket([third, second, first, name(1, 2_400.0)])
    engine = order((1, 1_990.0), listed_s=1_990.0)
    announce(engine, first, bucket.keys[-1])
    # Process 1 stands at 1,990 s; an unknown process may have begun ten minutes before its first known object.
    engine.cursors["1/pythontimeline"] = START_US + 1_400 * SECOND
    assert applied(engine, bucket) == [third, second, first]
    assert bucket.listed_from == [1_400.0, 850.0, 300.0]


def test_final_listing_begins_at_the_oldest_process_not_silent() -> None:
    silent_s, live_s, newest_s = 4_000.0, 9_700.0, 10_000.0
    engine = order((1, silent_s), (2, live_s), (3, newest_s), listed_s=newest_s)
    engine.max_seen = START_US + round(newest_s * SECOND)
    bucket = Bucket([])
    applied(engine, bucket, drain=True)
    assert bucket.listed_from == [live_s]
    assert newest_s - live_s < SILENT_US / SECOND < newest_s - silent_s


def test_silent_process_with_a_waiting_object_is_not_forgotten() -> None:
    newest_s = 10_000.0
    silent_s = newest_s - FORGOTTEN_US / SECOND - 1.0
    engine = order((1, silent_s), (2, silent_s), (3, newest_s), listed_s=newest_s)
    announce(engine, name(1, newest_s + 10.0))
    assert engine.forget_partitions() == 0
    assert sorted(engine.cursors) == ["1/pythontimeline", "3/pythontimeline"]
    assert engine.floor == START_US + round(silent_s * SECOND)


def test_excess_processes_ahead_of_the_applied_time_are_kept() -> None:
    """The floor must not pass an object that is still to come: what lies at or below it counts as applied."""
    behind, ahead = 100.0, 200.0
    cursors = [(process, ahead if process else behind) for process in range(MOST_PARTITIONS + 3)]
    engine = order(*cursors, listed_s=150.0)
    assert engine.forget_partitions() == 1
    assert "0/pythontimeline" not in engine.cursors
    assert len(engine.cursors) == MOST_PARTITIONS + 2
    assert engine.floor == START_US + round(behind * SECOND)


def test_applied_time_ends_just_before_a_waiting_object() -> None:
    engine = order((1, 100.0), listed_s=300.0)
    waits = name(1, 250.0)
    announce(engine, waits)
    assert engine.applied == parsed(waits).end_us - 1
