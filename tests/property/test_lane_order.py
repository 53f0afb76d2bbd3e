"""Framework objects of several processes are applied in one order, whatever order their doorbells have."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainguard.engine.lane_order import LaneOrder
from trainguard.telemetry.keys import FrameworkKey, parse_key

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
    def listing(after_us: Any) -> Any:
        if log is not None:
            log.append(after_us)
        parsed = sorted((parsed_key(key).end_us, key) for key in stored)
        return [(key, parsed_key(key), 0.0) for end, key in parsed if after_us is None or end >= after_us]

    return listing


@st.composite
def files(draw: Any) -> Any:
    """Objects of up to three processes that rotate every 61 to 80 s, some of them silent for long."""
    keys = []
    for pid in range(draw(st.integers(1, 3))):
        at = draw(st.floats(60, 120))
        for _ in range(draw(st.integers(1, 8))):
            keys.append((at, key_of(pid, at)))
            at += draw(st.one_of(st.floats(61, 80), st.floats(200, 400)))
    return sorted(keys, key=lambda pair: (parsed_key(pair[1]).end_us, pair[1]))


@given(files(), st.data())
@settings(max_examples=300)
def test_given_any_order_within_the_bound_when_applied_then_in_order_of_time_and_each_once(
    keys: Any, data: Any
) -> None:
    delayed = sorted(keys, key=lambda pair: pair[0] + data.draw(st.floats(0, 119)))
    engine = LaneOrder()
    applied: list[str] = []
    for position, (_, key) in enumerate(delayed):
        engine.announce(key, parsed_key(key))
        if data.draw(st.booleans()):
            engine.announce(key, parsed_key(key))
        applied.extend(each.key for each in engine.ready(listing_of([each for _, each in delayed[: position + 1]])))
    applied.extend(each.key for each in engine.ready(listing_of([each for _, each in keys]), drain=True))
    assert applied == [key for _, key in keys]


def apply(engine: Any, *announced: Any, stored: Any, log: Any = None) -> Any:
    for key in announced:
        engine.announce(key, parsed_key(key))
    return [each.key for each in engine.ready(listing_of(stored, log))]


def test_given_steady_rotation_when_objects_ring_then_s3_is_listed_once_for_the_start_and_never_again() -> None:
    keys = [key_of(7, 60 * index) for index in range(1, 12)]
    engine = LaneOrder()
    log: list[int | None] = []
    applied: list[str] = []
    for position, key in enumerate(keys):
        applied += apply(engine, key, stored=keys[: position + 1], log=log)
    assert applied == keys[:-2]
    assert log == [None]


def test_given_a_doorbell_that_never_rang_when_the_silence_is_jumped_then_s3_gives_the_object() -> None:
    keys = [key_of(7, 60 * index) for index in range(1, 8)]
    engine = LaneOrder()
    applied = apply(engine, *keys[:3], keys[4], keys[5], keys[6], stored=keys)
    assert applied == keys[:5]


def test_given_rotation_by_size_every_20_s_when_a_doorbell_is_lost_then_s3_gives_the_object() -> None:
    keys = [key_of(7, 20 * index) for index in range(1, 20)]
    engine = LaneOrder()
    applied = apply(engine, *keys[:10], stored=keys[:10])
    applied += apply(engine, *keys[:7], *keys[8:], stored=keys)
    assert applied == keys[:13]


def test_given_a_silent_process_that_wakes_when_its_old_object_rings_then_it_is_applied_in_its_own_lane() -> None:
    busy = [key_of(1, 60 * index) for index in range(1, 10)]
    engine = LaneOrder()
    apply(engine, *busy, stored=busy)
    late_riser = key_of(2, 90)
    assert apply(engine, late_riser, stored=[*busy, late_riser]) == [late_riser]
    assert apply(engine, late_riser, stored=[*busy, late_riser]) == []
    assert engine.duplicates == 1


def test_given_a_lane_whose_object_was_due_when_another_lane_is_ahead_then_s3_is_asked_before_it_is_overtaken() -> None:
    both = {(pid, index): key_of(pid, 60 * index + pid) for pid in (1, 2) for index in range(1, 9)}
    lost = both[1, 5]
    rings = [key for (pid, index), key in sorted(both.items(), key=lambda each: each[0][1] * 60 + each[0][0])]
    engine = LaneOrder()
    applied: list[str] = []
    for position, key in enumerate(rings):
        if key != lost:
            applied += apply(engine, key, stored=rings[: position + 1])
    assert applied == rings[: len(applied)]
    assert lost in applied
