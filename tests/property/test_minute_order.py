"""Minutes are applied in one order, whatever order their messages have."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.ordering.grid_order import LATENESS_S, GridOrder

FIRST = 1_795_248_000


def minute(index: Any) -> Any:
    return FIRST + 60 * index


def listing_of(stored: Any) -> Any:
    def listing(cursor: Any) -> Any:
        return [(f"k{each}", each, 0.0) for each in sorted(stored) if cursor is None or each > cursor]

    return listing


@st.composite
def deliveries(draw: Any) -> Any:
    """Which minutes exist, and an order of messages in which none is later than the lateness bound."""
    count = draw(st.integers(1, 25))
    exists = [index for index in range(count) if draw(st.integers(0, 9))] or [0]
    delayed = sorted(exists, key=lambda index: index * 60 + draw(st.floats(0, LATENESS_S - 1)))
    repeats = draw(st.lists(st.integers(0, 24), max_size=5))
    return [minute(index) for index in exists], [minute(index) for index in delayed], repeats


@given(deliveries())
def test_any_order_within_the_bound_applies_ascending_and_once(case: Any) -> None:
    exists, order, repeats = case
    engine = GridOrder()
    applied: list[Any] = []
    for position, each in enumerate(order):
        engine.announce(f"k{each}", each)
        applied.extend(engine.ready(listing_of(order[: position + 1])))
        if position < len(repeats):
            again = order[min(repeats[position], position)]
            engine.announce(f"k{again}", again)
    applied.extend(engine.ready(listing_of(exists), drain=True))
    assert [each for each, _ in applied] == exists
    assert engine.gaps == (exists[-1] - exists[0]) // 60 + 1 - len(exists)
    assert engine.late == 0


@given(st.permutations(list(range(30))))
def test_backlog_complete_in_s3_has_nothing_late_and_no_gap(order: Any) -> None:
    stored = {minute(index) for index in range(30)}
    engine = GridOrder()
    applied: list[Any] = []
    for index in order:
        engine.announce(f"k{minute(index)}", minute(index))
        applied.extend(each for each, _ in engine.ready(listing_of(stored)))
    applied.extend(each for each, _ in engine.ready(listing_of(stored), drain=True))
    assert applied == sorted(stored)
    assert (engine.gaps, engine.late) == (0, 0)


def run(engine: Any, *announced: Any, stored: Any = ()) -> Any:
    for index in announced:
        engine.announce(f"k{minute(index)}", minute(index))
    return [(each - FIRST) // 60 for each, _ in engine.ready(listing_of({minute(index) for index in stored}))]


def test_first_minute_of_a_new_node_waits_for_the_lateness_bound() -> None:
    engine = GridOrder()
    assert run(engine, 1) == []
    assert run(engine, 2) == []
    assert run(engine, 3, stored=[0, 1, 2, 3]) == [0, 1, 2, 3]


def test_next_minute_is_applied_at_once_without_s3() -> None:
    engine = GridOrder(cursor=minute(4))
    engine.announce("k", minute(5))

    def refuse(_: int | None) -> list[tuple[str, int, float]]:
        raise AssertionError("listed without need")

    assert [key for _, key in engine.ready(refuse)] == ["k"]


def test_gap_past_the_bound_is_counted_and_its_minute_is_late() -> None:
    engine = GridOrder(cursor=minute(0))
    assert run(engine, 2) == []
    assert run(engine, 4, stored=[2, 4]) == [2]
    assert run(engine, 1) == []
    assert (engine.gaps, engine.late, engine.duplicates) == (1, 1, 0)
    assert run(engine, 2) == []
    assert (engine.late, engine.duplicates) == (1, 1)


def test_flushed_silent_node_applies_what_s3_has_had_for_long() -> Any:
    engine = GridOrder(cursor=minute(0))
    engine.announce("k2", minute(2))
    engine.announce("k4", minute(4))

    def listing(_: Any) -> Any:
        return [("k2", minute(2), 100.0), ("k4", minute(4), 900.0)]

    assert [key for _, key in engine.ready(listing, modified_before=500.0)] == ["k2"]
    assert [key for _, key in engine.ready(listing, modified_before=1_000.0)] == ["k4"]
    assert engine.gaps == 2


def test_gap_of_years_keeps_the_state_small() -> None:
    engine = GridOrder(cursor=1_420_070_400)
    engine.announce("k", FIRST)
    assert len(list(engine.ready(listing_of({FIRST}), drain=True))) == 1
    assert engine.gaps == (FIRST - 1_420_070_400) // 60 - 1
    assert len(engine.skipped) == 64
