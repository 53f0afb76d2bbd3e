"""A map of layers over steps stays small, reads ever fewer steps, and keeps what stands out."""

import math

from trainguard.report.training.heat_map import MOST_COLUMNS, MOST_ROWS, HeatMap


def filled(steps: int, *, spike: int | None = None, bad: int | None = None, keeps: str = "largest") -> HeatMap:
    held = HeatMap(measure="abs_mean", keeps=keeps)  # type: ignore[arg-type]
    for step in range(steps):
        if not held.is_next():
            continue
        held.begin(step)
        held.rows_of(["a", "b"])
        held.put("a", math.nan if step == bad else 9.0 if step == spike else 1.0)
        held.put("b", float(step))
    return held


def test_given_few_steps_when_put_then_each_is_a_column() -> None:
    held = filled(3)
    assert (held.steps, held.values) == ([0, 1, 2], [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])


def test_few_of_very_many_steps_are_read_and_all_are_covered() -> None:
    held = filled(100_000)
    assert MOST_COLUMNS / 2 <= len(held.steps) <= MOST_COLUMNS
    assert held.seen == 100_000
    assert held.read < 1_000
    assert held.steps[0] == 0
    assert held.steps[-1] > 98_000
    assert all(len(row) == len(held.steps) for row in held.values)


def test_outlier_is_kept_when_columns_are_joined() -> None:
    held = filled(MOST_COLUMNS + 10, spike=3, bad=5)
    assert held.values[0][1] == 9.0
    assert held.undefined == [(0, 2)]
    assert held.values[0][2] == 1.0


def test_later_value_is_kept_in_joined_newest_value_columns() -> None:
    assert filled(MOST_COLUMNS + 1, keeps="newest").values[1][:2] == [1.0, 3.0]
    assert filled(MOST_COLUMNS + 1).values[1][:2] == [1.0, 3.0]


def test_named_and_evenly_chosen_layers_are_shown_of_too_many() -> None:
    names = [f"layer{number:05d}" for number in range(10_000)]
    held = HeatMap(measure="abs_mean")
    held.begin(0)
    shown = held.rows_of(names, {"layer07777", "unknown"})
    assert len(shown) == len(held.rows) == MOST_ROWS
    assert "layer07777" in shown
    assert shown == sorted(shown)
    assert min(shown) < "layer00200"
    assert max(shown) > "layer09700"
    assert len(held.rows_left_out) == 100
    assert held.rows_of(names) == shown


def test_late_layer_has_empty_columns_before() -> None:
    held = HeatMap(measure="abs_mean")
    held.begin(0)
    held.rows_of(["a"])
    held.begin(5)
    held.rows_of(["b"])
    held.put("b", 2.0)
    assert held.values == [[None, None], [None, 2.0]]
    assert (held.last_of("a"), held.last_of("b")) == (None, 2.0)


def test_endless_name_is_left_out() -> None:
    held = HeatMap(measure="abs_mean")
    held.begin(0)
    assert held.rows_of(["n" * 10_000, "a"]) == ["a"]
    assert [len(name) for name in held.rows_left_out] == [300]
