"""The arithmetic of intervals against sets of nanoseconds."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainguard.kernels.columns import Ints
from trainguard.kernels.times.intervals import Spans, clipped, difference, gaps, intersection, merged, union

stretches = st.lists(st.tuples(st.integers(-40, 40), st.integers(-3, 15)).map(lambda pair: (pair[0], sum(pair))))


def spans(found: list[tuple[int, int]]) -> Spans:
    return merged(column(found, 0), column(found, 1))


def column(found: list[tuple[int, int]], place: int) -> Ints:
    return np.array([each[place] for each in found], dtype=np.int64)


def moments(found: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in found for moment in range(start, end)}


def held(found: Spans) -> set[int]:
    pairs = list(zip(found.start.tolist(), found.end.tolist(), strict=True))
    assert all(start < end for start, end in pairs)
    assert all(one[1] < other[0] for one, other in pairwise(pairs)), "sorted, disjoint, not touching"
    assert found.total == len(moments(pairs))
    return moments(pairs)


@given(stretches)
def test_union_of_one_list(found: list[tuple[int, int]]) -> None:
    assert held(spans(found)) == moments(found)


@given(stretches, stretches)
def test_two_lists(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert held(union(spans(one), spans(other))) == moments(one) | moments(other)
    assert held(intersection(spans(one), spans(other))) == moments(one) & moments(other)
    assert held(difference(spans(one), spans(other))) == moments(one) - moments(other)


@given(stretches, st.integers(-50, 50), st.integers(0, 60))
def test_a_window(found: list[tuple[int, int]], start: int, length: int) -> None:
    window = set(range(start, start + length))
    assert held(clipped(spans(found), start, start + length)) == moments(found) & window
    assert held(gaps(spans(found), start, start + length)) == window - moments(found)
    within = spans(found).within(np.array([start]), np.array([start + length]))
    assert within.tolist() == [len(moments(found) & window)]
