"""Framework objects of several processes are applied in one order, whatever order their messages have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.ordering.partition_order import MOST_PARTITIONS, PartitionOrder
from trainguard.formats.profile.keys import FrameworkKey, parse_key

START_US = 1_795_248_000_000_000
SECOND = 1_000_000


def key_of(pid: Any, at_s: Any) -> Any:
    end = START_US + int(at_s * SECOND)
    return f"job/profiler-output/framework/pevents/2026112108/{end}_{pid}-algo-1_pythontimeline.json"


def parsed_key(key: str) -> FrameworkKey:
    parsed = parse_key(key)
    assert isinstance(parsed, FrameworkKey)
    return parsed


def listing_of(stored: Any, log: Any = None) -> Any:
    def listing(from_us: Any, to_us: Any, having: Any) -> Any:
        if log is not None:
            log.append(from_us)
        parsed = sorted((parsed_key(key).end_us, key) for key in stored)
        assert set(having or ()) <= set(stored)
        return [
            (key, parsed_key(key), 0.0)
            for end, key in parsed
            if (from_us is None or end >= from_us) and (to_us is None or end <= to_us)
        ]

    return listing


@st.composite
def files(draw: Any) -> Any:
    """Objects of up to three processes that rotate every 61 to 80 s or early, some of them silent for long."""
    keys = []
    for pid in range(draw(st.integers(1, 3))):
        at = draw(st.floats(60, 120))
        for _ in range(draw(st.integers(1, 8))):
            keys.append((at, key_of(pid, at)))
            at += draw(st.one_of(st.floats(61, 80), st.floats(1, 60), st.floats(200, 400)))
    return sorted(keys, key=lambda pair: (parsed_key(pair[1]).end_us, pair[1]))


@given(files(), st.data())
def test_any_order_within_the_bound_applies_each_once_in_order(keys: Any, data: Any) -> None:
    delayed = sorted(keys, key=lambda pair: pair[0] + data.draw(st.floats(0, 119)))
    engine = PartitionOrder()
    applied: list[str] = []
    for position, (_, key) in enumerate(delayed):
        engine.announce(key, parsed_key(key))
        if data.draw(st.booleans()):
            engine.announce(key, parsed_key(key))
        applied.extend(each.key for each in engine.ready(listing_of([each for _, each in delayed[: position + 1]])))
    applied.extend(each.key for each in engine.ready(listing_of([each for _, each in keys]), drain=True))
    assert applied == [key for _, key in keys]


@given(files(), st.data())
def test_late_or_lost_messages_apply_each_once_in_order(keys: Any, data: Any) -> None:
    delay = st.one_of(st.just(0.5), st.floats(0, 119), st.floats(119, 2_000), st.none())
    announced = [(at + late, key) for at, key in keys if (late := data.draw(delay)) is not None]
    engine = PartitionOrder()
    applied: list[str] = []
    for now, key in sorted(announced):
        engine.announce(key, parsed_key(key))
        stored = [each for at, each in keys if at <= now]
        if data.draw(st.integers(0, 4)) == 0:
            applied.extend(each.key for each in engine.ready(listing_of(stored), modified_before=-1.0))
        else:
            applied.extend(each.key for each in engine.ready(listing_of(stored)))
        engine = written_and_read(engine)
    applied.extend(each.key for each in engine.ready(listing_of([each for _, each in keys]), drain=True))
    assert applied == [key for _, key in keys]


def written_and_read(engine: PartitionOrder) -> PartitionOrder:
    """Return the order as the next evaluator has it from the node's item."""
    engine.forget_partitions()
    read = PartitionOrder(
        cursors=dict(engine.cursors),
        max_seen=engine.max_seen,
        listed=engine.applied,
        floor=engine.floor,
    )
    read.restore((key, parsed_key(key)) for key in engine.stored)
    return read


def apply(engine: Any, *announced: Any, stored: Any, log: Any = None, **how: Any) -> Any:
    for key in announced:
        engine.announce(key, parsed_key(key))
    return [each.key for each in engine.ready(listing_of(stored, log), **how)]


def delivered(keys: Any, *, lost: Any = (), log: Any = None) -> Any:
    """Return what is applied, in order, as one object after the other appears; those ``lost`` are never announced."""
    engine = PartitionOrder()
    applied: list[str] = []
    for position, key in enumerate(keys):
        if key not in lost:
            applied += apply(engine, key, stored=keys[: position + 1], log=log)
    return applied


def test_rotating_process_lists_s3_once_a_rotation() -> None:
    keys = [key_of(7, 60 * index) for index in range(1, 12)]
    log: list[int | None] = []
    assert delivered(keys, log=log) == keys[:-2]
    assert log == [None, *(START_US + 60 * index * SECOND for index in range(1, 9))]


def test_many_processes_list_s3_once_in_50_s() -> None:
    ends = sorted(60 * index + 60 * pid / 16 for pid in range(16) for index in range(1, 31))
    keys = [key_of(index % 16, at) for index, at in enumerate(ends)]
    log: list[int | None] = []
    applied = delivered(keys, log=log)
    assert applied == keys[: len(applied)]
    assert len(keys) - len(applied) <= (120 + 50 + 4) / 60 * 16
    assert len(log) <= (ends[-1] - ends[0]) / 50 + 1


@pytest.mark.parametrize("cuts", [[305], [303, 304, 306, 309], [330], [359]])
def test_lost_early_closed_files_are_applied_in_order(cuts: Any) -> None:
    steady = [60 * index for index in range(1, 6)]
    ends = [*steady, *cuts, *(cuts[-1] + 60 * index for index in range(1, 8))]
    keys = [key_of(7, at) for at in ends]
    applied = delivered(keys, lost=[key_of(7, at) for at in cuts])
    assert applied == keys[:-2]


def test_early_file_message_200_s_late_is_a_duplicate() -> None:
    keys = [key_of(7, at) for at in (60, 120, 180, 240, 300, 305, 365, 425, 485)]
    engine = PartitionOrder()
    early = keys[5]
    applied = [each for key in keys if key != early for each in apply(engine, key, stored=keys)]
    assert apply(engine, early, stored=keys) == []
    assert applied == keys[:-2]
    assert engine.duplicates == 1


def test_woken_process_applies_its_old_object_in_its_lane() -> None:
    busy = [key_of(1, 60 * index) for index in range(1, 10)]
    engine = PartitionOrder()
    apply(engine, *busy, stored=busy)
    late_riser = key_of(2, 90)
    assert apply(engine, late_riser, stored=[*busy, late_riser]) == [late_riser]
    assert apply(engine, late_riser, stored=[*busy, late_riser]) == []
    assert engine.duplicates == 1


def test_lost_old_object_of_a_woken_process_comes_with_the_next() -> None:
    busy = [key_of(1, 60 * index) for index in range(1, 15)]
    engine = PartitionOrder()
    apply(engine, *busy[:2], key_of(2, 70), stored=[*busy[:2], key_of(2, 70)])
    apply(engine, *busy[:9], stored=[*busy[:9], key_of(2, 70)])
    old, new = key_of(2, 130), key_of(2, 600)
    stored = sorted([*busy, key_of(2, 70), old, new])
    applied = apply(engine, *busy, new, stored=stored)
    assert applied == [old, *busy[7:10], new, *busy[10:12]]


def test_lost_first_object_of_a_new_process_comes_with_its_next() -> None:
    busy = [key_of(1, 60 * index) for index in range(1, 15)]
    engine = PartitionOrder()
    apply(engine, *busy[:9], stored=busy[:9])
    old, new = key_of(2, 130), key_of(2, 600)
    applied = apply(engine, *busy, new, stored=sorted([*busy, old, new]))
    assert applied == [old, *busy[7:10], new, *busy[10:12]]


def test_flushed_silent_node_applies_what_s3_has_had_for_long() -> None:
    first, second, third, fourth = (key_of(pid, at) for pid, at in ((1, 60), (2, 70), (1, 80), (1, 90)))
    engine = PartitionOrder()
    engine.announce(third, parsed_key(third))

    def listing(*_: Any) -> Any:
        put = {first: 100.0, second: 300.0, third: 150.0, fourth: 301.0}
        return [(key, parsed_key(key), at) for key, at in put.items()]

    assert [each.key for each in engine.ready(listing, modified_before=200.0)] == [first, second, third]
    assert engine.stored == {fourth: parsed_key(fourth).end_us}
    assert engine.applied == parsed_key(third).end_us


def test_end_applies_an_unannounced_object_of_a_recent_lane() -> None:
    busy = [key_of(1, 60 * index) for index in range(1, 10)]
    engine = PartitionOrder()
    apply(engine, *busy, key_of(2, 90), stored=[*busy, key_of(2, 90)])
    late = key_of(2, 100)
    assert late in apply(engine, stored=[*busy, key_of(2, 90), late], drain=True)


def test_old_objects_of_a_forgotten_lane_count_as_applied() -> None:
    old, new = key_of(1, 60), [key_of(2, at) for at in (3_700, 3_760, 3_820, 3_880)]
    engine = PartitionOrder()
    apply(engine, old, *new, stored=[old, *new], drain=True)
    assert engine.forget_partitions() == 0
    assert list(engine.cursors) == ["2/pythontimeline"]
    assert engine.floor == parsed_key(old).end_us
    assert apply(engine, old, stored=[old, *new]) == []
    assert apply(engine, key_of(1, 3_700), stored=[old, key_of(1, 3_700), *new]) == [key_of(1, 3_700)]


def test_oldest_lanes_are_forgotten_and_others_stay_in_order() -> None:
    first = [key_of(pid, 60 + pid / 100) for pid in range(MOST_PARTITIONS + 50)]
    second = [key_of(pid, 160 + pid / 100) for pid in range(MOST_PARTITIONS + 50)]
    last = key_of(1, 400)
    engine = PartitionOrder()
    assert apply(engine, *first, key_of(1, 200), stored=first) == first
    assert engine.forget_partitions() == 50
    assert len(engine.cursors) == MOST_PARTITIONS
    engine = written_and_read(engine)
    assert apply(engine, *first, stored=first) == []
    stored = sorted([*first, *second, key_of(1, 200), last])
    assert apply(engine, *second[:3], last, stored=stored) == [*second, key_of(1, 200)]
