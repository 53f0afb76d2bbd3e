"""Two values of a tensor beside each other: what counts as the same, and how far apart they are."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.steps import Run, Step
from trainguard.core.errors import TensorMissingError
from trainguard.rules.training.readings import Closeness, change_of, furthest, paired

NAN, INF = math.nan, math.inf
# Up to a quarter, and half of the other value, counts as the same.
HALF = Closeness(0.5, 0.25, equal_nan=False)

KINDS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")


def step_of(saved: Any) -> Step:
    """Return a step whose tensor ``t`` has these entries, or these reductions alone."""
    reductions = {"t": saved} if isinstance(saved, Mapping) else {}
    shapes = {"t": saved["shape"]} if isinstance(saved, Mapping) and "shape" in saved else {}
    return Run().add(3, {} if reductions else {"t": saved}, reductions=reductions, shapes=shapes)


def same(one: Any, other: Any, close: Closeness = HALF) -> bool | None:
    """Return whether two are the same; None where that cannot be said."""
    try:
        return close.tensors(step_of(one), step_of(other), "t")
    except TensorMissingError:
        return None


LONG = [1.0] * 20


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.75], [1.0], True),
        ([1.7501], [1.0], False),
        ([0.25], [0.0], True),
        ([0.25], [-0.001], False),
        ([1.0], [1.0, 1.0], False),
        ([[1.0]], [1.0], False),
        ([NAN], [NAN], False),
        ([INF], [INF], True),
        ([True], [True], True),
        ([True], [False], False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        (np.array(["a"], object), [1.0], False),
        ([1.0], np.array(["a"], object), False),
        (LONG, [*LONG[:19], 9.0], False),
        (LONG, [*LONG[:19], 1.5], True),
        ({"mean": 1.75}, {"mean": 1.0}, None),
        ({"mean": 1.7501}, {"mean": 1.0}, False),
        ({"mean": 0.2499}, {"mean": -1.0}, False),
        ({"mean": 0.25}, {"mean": 0.0}, None),
        ({"mean": 1.0, "l2": 1.0}, {"l2": 9.0}, False),
        ({"mean": 1.0, "l2": 9.0}, {"mean": 1.0}, None),
        ({"max": INF}, {"max": INF}, None),
        ({"max": INF}, {"max": -INF}, False),
        ({"max": INF}, {"max": 1.0}, False),
        ({"max": 1.0}, {"max": INF}, False),
        ({"max": NAN}, {"max": NAN}, False),
        ({"max": NAN}, {"max": 1.0}, False),
        ({"mean": 1.0}, [1.0], None),
        ([1.0], {"mean": 1.0}, None),
        ({"mean": 1.0, "shape": (2,)}, {"mean": 1.0, "shape": (3,)}, False),
        ({"mean": 1.0, "shape": (2,)}, {"mean": 1.0, "shape": (2,)}, None),
        ({"mean": 1.0, "shape": (2,)}, {"mean": 1.0}, None),
        ({"mean": 1.0}, {"mean": 1.0, "shape": (2,)}, None),
    ],
)
def test_values_within_the_tolerance_are_equal(one: Any, other: Any, expected: bool | None) -> None:
    assert same(one, other) is expected


@pytest.mark.parametrize(("other", "expected"), [(NAN, None), (1.0, False), (INF, False)])
def test_equal_nan_reductions_match_only_nan(other: float, expected: bool | None) -> None:
    close = Closeness(0.5, 0.25, equal_nan=True)
    for one, two in ((NAN, other), (other, NAN)):
        assert same({"max": one}, {"max": two}, close) is expected
        assert same([one], [two], close) is (expected is None)


@pytest.mark.parametrize("kind", [f"{prefix}{kind}" for prefix in ("", "abs_") for kind in KINDS])
def test_tensors_differ_if_any_reduction_differs(kind: str) -> None:
    close, alike = Closeness(0.5, 0.25, equal_nan=False), dict.fromkeys(KINDS, 1.0)
    for _ in range(2):
        assert same(alike | {kind: 1.0}, alike | {kind: 9.0}, close) is False
        assert same(alike, alike, close) is None
        assert same(alike | {"mean": 9.0}, alike, close) is False


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0], [1.0], (0.0, 0.75)),
        ([1.0, 3.0, 5.0], [1.0, 1.0, 4.0], (2.0, 0.75)),
        ([1.0, 0.75, 5.0], [1.0, 0.0, 2.0], (0.75, 0.25)),
        ([2.0, 3.0], [1.0, 2.0], (1.0, 0.75)),
        ([3.0, 2.0], [2.0, 1.0], (1.0, 0.75)),
        ([2.0, -3.0], [1.0, -1.0], (2.0, 0.75)),
        ([*LONG, 3.0, *LONG, 2.0], [*LONG, 1.0, *LONG, 1.0], (2.0, 0.75)),
        ([*LONG, 2.0, *LONG, 3.0], [*LONG, 1.0, *LONG, 1.0], (2.0, 0.75)),
        ([2.0, *LONG, 4.0], [1.0, *LONG, 3.0], (1.0, 0.75)),
        ([INF, 2.0], [1.0, 1.0], (1.0, 0.75)),
        ([NAN], [1.0], None),
        ([1.0], [1.0, 1.0], None),
        (np.array(["a"], object), np.array(["b"], object), None),
        ([1.0], np.array(["b"], object), None),
        (np.array(["a"], object), [1.0], None),
        ({"mean": 3.0, "max": 3.0, "l2": 1.0}, {"mean": 1.0, "max": 2.0, "l1": 9.0}, (2.0, 0.75)),
        ({"mean": 3.0}, [1.0], None),
        ([1.0], {"mean": 3.0}, None),
        ({"abs_max": 3.0}, {"max": 1.0, "abs_max": 1.0}, (2.0, 0.75)),
    ],
)
def test_entry_furthest_over_its_tolerance_is_found(one: Any, other: Any, expected: tuple[float, float] | None) -> None:
    assert furthest(HALF, step_of(one), step_of(other), "t") == expected


def test_reductions_are_used_if_one_step_has_no_entries() -> None:
    full, reduced = Run().add(3, {"t": [9.0]}, reductions={"t": {"mean": 9.0}}), step_of({"mean": 1.0})
    for one, other, allowed in ((full, reduced, 0.75), (reduced, full, 4.75)):
        assert HALF.tensors(one, other, "t") is False
        assert furthest(HALF, one, other, "t") == (8.0, allowed)


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        ([3.0, 4.0], [0.0, 0.0], (5.0, 0.0)),
        ([3.0, 4.0], [3.0, 4.0], (0.0, 5.0)),
        ([6.0, 8.0], [3.0, 4.0], (5.0, 5.0)),
        ([[1.0] * 8] * 2, [[2.0] * 8] * 2, (4.0, 8.0)),
        ([-1.0, 2.0], [3.0, -1.0], (5.0, math.sqrt(10.0))),
        (np.array([3, 0], np.uint8), np.array([0, 4], np.uint8), (5.0, 4.0)),
        ([1.0], np.array(["a"], object), None),
        (np.array(["a"], object), [1.0], None),
        (np.empty(0), np.empty(0), (0.0, 0.0)),
    ],
)
def test_norms_of_change_and_value_of_two_steps_are_found(
    now: Any, before: Any, expected: tuple[float, float] | None
) -> None:
    assert change_of(step_of(now), step_of(before), "t") == expected


@pytest.mark.parametrize(("cuts", "others"), [([], []), ([1], [5]), ([2, 5], [2, 5]), ([3], [1, 2, 3, 4]), ([5], [])])
def test_entries_are_paired_across_blocks_of_any_sizes(cuts: list[int], others: list[int]) -> None:
    entries = np.arange(6.0)
    pairs = list(paired(iter(np.split(entries, cuts)), iter(np.split(entries, others))))
    assert np.concatenate([one for one, _ in pairs]).tolist() == entries.tolist()
    assert np.concatenate([other for _, other in pairs]).tolist() == entries.tolist()
    assert all(one.size == other.size > 0 for one, other in pairs)
    assert len(pairs) == len({*cuts, *others}) + 1


def test_given_no_blocks_when_paired_then_there_is_no_pair() -> None:
    assert list(paired(iter([]), iter([]))) == []
