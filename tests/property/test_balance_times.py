"""When a side was behind, by definition: each stretch tried, in plain numbers."""

from itertools import pairwise

import numpy as np
import pytest

from trainguard.rules.load_balancing.times import FineMeans, _best_box

BLOCK_S = 180.0
RUNS = 300
Span = tuple[float | None, float | None]


def mean_of(gaps: list[float], weights: list[float]) -> float:
    return sum(gap * weight for gap, weight in zip(gaps, weights, strict=True)) / sum(weights)


def box_by_definition(gaps: list[float], weights: list[float]) -> tuple[int, int] | None:
    """Try each stretch: the one whose mean is most clearly above that of all outside, the first of equal ones."""
    if not sum(weights):
        return None
    best, chosen = 0.0, (0, len(gaps))
    for first in range(len(gaps)):
        for last in range(first + 1, len(gaps) + 1):
            inside, outside = sum(weights[first:last]), sum(weights[:first] + weights[last:])
            if not inside or not outside:
                continue
            above = mean_of(gaps[first:last], weights[first:last]) - mean_of(
                gaps[:first] + gaps[last:], weights[:first] + weights[last:]
            )
            if above > 0.0 and above * above * inside * outside > best:
                best, chosen = above * above * inside * outside, (first, last)
    return chosen


def stretch_by_definition(
    rows: list[tuple[int, list[float], list[float]]], low: int, others: list[int], least: float, variance: float
) -> Span | None:
    """Judge rows: the number of three minutes, and points and means of each side, a mean of no points being none."""
    gaps, weights, starts = [], [], []
    for number, points, means in rows:
        known = [means[side] for side in others if points[side]]
        if known and points[low]:
            gaps.append(sum(known) / len(known) - means[low])
            weights.append(points[low])
            starts.append(BLOCK_S * number)
    box = box_by_definition(gaps, weights) if gaps else None
    if box is None:
        return None
    first, last = box
    level = mean_of(gaps[first:last], weights[first:last])
    if level < least:
        return None
    begin = None if not first or mean_of(gaps[:first], weights[:first]) >= least else starts[first]
    after = weights[last:]
    if len(after) < 2 or sum(after) < 10.0:
        return begin, None
    fell_by = level - mean_of(gaps[last:], after)
    error = (variance * (2.0 / sum(weights[first:last]) + 2.0 / sum(after))) ** 0.5
    over = mean_of(gaps[last:], after) < least and fell_by >= 4.0 * error
    return begin, starts[last] if over else None


def fine_means(rows: list[tuple[int, list[float], list[float]]]) -> FineMeans:
    points = np.array([points for _, points, _ in rows], dtype=np.float64).reshape(len(rows), -1)
    means = np.array([means for _, _, means in rows], dtype=np.float64).reshape(len(rows), -1)
    return FineMeans.of([number for number, _, _ in rows], points, points * means)


def test_side_is_behind_by_the_definition() -> None:
    random = np.random.default_rng(1)
    seen = []
    for _ in range(RUNS):
        length, sides = int(random.integers(1, 9)), int(random.integers(2, 4))
        numbers = np.cumsum(random.integers(1, 3, length)).tolist()
        level = float(random.choice([40.0, 80.0, 90.0]))
        rows = []
        for number in numbers:
            level = float(random.choice([40.0, 80.0, 90.0])) if random.random() < 0.4 else level
            points = random.choice([0.0, 1.0, 4.0, 5.0, 8.0], sides, p=[0.1, 0.1, 0.2, 0.3, 0.3]).tolist()
            rows.append((number, points, [level, *random.choice([90.0, 90.0, 100.0], sides - 1).tolist()]))
        variance = float(random.choice([0.0, 16.0, 400.0]))
        others = list(range(1, sides))
        expected = stretch_by_definition(rows, 0, others, 10.0, variance)
        assert fine_means(rows).stretch(0, others, 10.0, variance) == expected
        seen.append(expected)
    assert {(span[0] is None, span[1] is None) for span in seen if span} == {
        (first, last) for first in (True, False) for last in (True, False)
    }
    assert None in seen


def rows_of(*spans: tuple[int, float, float]) -> list[tuple[int, list[float], list[float]]]:
    """Return so many stretches each of so many points, in which one side is so far behind another at 90 %."""
    flat = [(points, gap) for count, points, gap in spans for _ in range(count)]
    return [(100 + place, [points, points], [90.0 - gap, 90.0]) for place, (points, gap) in enumerate(flat)]


@pytest.mark.parametrize(
    ("spans", "variance", "expected"),
    [
        # Begun where it was less before; not behind at all where it is less than the least.
        (((3, 8.0, 0.0), (5, 8.0, 10.0)), 0.0, (103 * 180.0, None)),
        (((3, 8.0, 0.0), (5, 8.0, 9.5)), 0.0, None),
        (((3, 8.0, 10.0), (5, 8.0, 40.0)), 0.0, (None, None)),
        (((3, 8.0, 9.5), (5, 8.0, 40.0)), 0.0, (103 * 180.0, None)),
        # Over after two stretches of ten points.
        (((5, 8.0, 40.0), (1, 16.0, 0.0)), 0.0, (None, None)),
        (((5, 8.0, 40.0), (2, 5.0, 0.0)), 0.0, (None, 105 * 180.0)),
        (((5, 8.0, 40.0), (2, 4.5, 0.0)), 0.0, (None, None)),
        (((5, 8.0, 40.0), (2, 8.0, 10.0)), 0.0, (None, None)),
        (((5, 8.0, 40.0), (2, 8.0, 9.5)), 0.0, (None, 105 * 180.0)),
        # Four errors: 16 points each, so that the error is half of the deviation.
        (((2, 8.0, 40.0), (2, 8.0, 0.0)), 400.0, (None, 102 * 180.0)),
        (((2, 8.0, 40.0), (2, 8.0, 0.0)), 401.0, (None, None)),
    ],
)
def test_gap_on_a_bound_counts_only_if_it_reaches_it(
    spans: tuple[tuple[int, float, float], ...], variance: float, expected: Span | None
) -> None:
    assert fine_means(rows_of(*spans)).stretch(0, [1], 10.0, variance) == expected


@pytest.mark.parametrize(
    ("levels", "begin", "end", "silent"),
    [
        ([0.0] * 7, 0, None, True),
        ([0.0] * 6, 0, None, True),
        ([0.0] * 5, 0, None, False),
        ([0.5] * 7, 0, None, True),
        ([1.0] * 7, 0, None, False),
        ([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 0, None, False),
        # The stretches in which it begins and ends are not looked at.
        ([90.0, *[0.0] * 6], 0, None, True),
        ([90.0, 90.0, *[0.0] * 6], 0, None, False),
        ([90.0, 90.0, *[0.0] * 6], 1, None, True),
        ([*[0.0] * 6, 90.0, 90.0], 0, 7, True),
        ([*[0.0] * 6, 90.0, 90.0], 0, 8, False),
        ([*[0.0] * 6, 90.0, 90.0], 0, 6, False),
        ([0.0, 0.0, np.nan, 0.0, 0.0, 0.0, 0.0], 0, None, True),
        ([0.0, 0.0, np.nan, 0.0, 0.0, 0.0], 0, None, False),
    ],
)
def test_side_is_silent_after_15_minutes_below_one_percent(
    levels: list[float], begin: int, end: int | None, silent: bool
) -> None:
    low = np.array(levels)
    points = np.where(np.isnan(low), 0.0, 18.0)
    sums = points * np.nan_to_num(low)
    fine = FineMeans.of(
        range(len(levels)), np.column_stack([points + 1.0, points]), np.column_stack([points + 90.0, sums])
    )
    until = None if end is None else BLOCK_S * end
    assert fine.is_silent(1, BLOCK_S * begin, until) is silent


def test_side_without_points_does_not_count() -> None:
    rows = [(number, [8.0, 0.0, 8.0], [80.5, 0.0, 90.0]) for number in range(5)]
    assert fine_means(rows).stretch(0, [1, 2], 10.0, 0.0) is None
    assert fine_means(rows).stretch(0, [1, 2], 9.5, 0.0) == (None, None)


def test_box_is_the_gap_that_differs_most_clearly() -> None:
    random = np.random.default_rng(2)
    for _ in range(RUNS):
        length = int(random.integers(0, 8))
        gaps = random.choice([-20.0, 0.0, 10.0, 40.0], length)
        weights = random.choice([0.0, 1.0, 2.0, 8.0], length)
        assert _best_box(gaps, weights) == (box_by_definition(gaps.tolist(), weights.tolist()) if length else None)


def test_stretch_without_samples_begins_at_its_own_time() -> None:
    rows = [(number, [6.0, 6.0], [90.0 if number < 30 else 40.0, 90.0]) for number in (10, 11, 20, 30, 31, 40)]
    assert fine_means(rows).stretch(0, [1], 10.0, 0.0) == (30 * BLOCK_S, None)
    assert all(second > first for first, second in pairwise(fine_means(rows).starts.tolist()))
