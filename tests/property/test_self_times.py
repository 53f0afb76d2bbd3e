"""Self time of nested intervals: what a plain walk over every microsecond says."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainguard.formats.profile.events import self_times


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Properly nested intervals (lane, start, duration) of up to three lanes, in any order."""

    def inside(start: int, end: int, depth: int) -> list[tuple[int, int]]:
        found, at = [], start
        while depth and at < end and draw(st.booleans()):
            begin = draw(st.integers(at, end))
            finish = draw(st.integers(begin, end))
            found += [(begin, finish - begin), *inside(begin, finish, depth - 1)]
            at = finish
        return found

    intervals = [(partition, *pair) for partition in range(draw(st.integers(1, 3))) for pair in inside(0, 40, 4)]
    return draw(st.permutations(intervals))


@given(nested())
def test_nested_intervals_belong_to_the_innermost(
    intervals: list[tuple[int, int, int]],
) -> None:
    partitions, starts, durations = (
        np.array(column, dtype=np.int64) for column in zip(*intervals or [(0, 0, 0)], strict=True)
    )

    times = self_times(partitions, starts, durations)

    expected: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    for partition in range(3):
        for at in range(40):
            open_ones = [each for each in intervals if each[0] == partition and each[1] <= at < each[1] + each[2]]
            if open_ones:
                expected[min(open_ones, key=lambda each: each[2])] += 1
    actual: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    for interval, time in zip(intervals, times.tolist(), strict=False):
        actual[interval] += time
    assert {key: value for key, value in actual.items() if value} == dict(expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=30))
def test_overlapping_intervals_sum_to_the_length_of_their_union(
    intervals: list[tuple[int, int, int]],
) -> None:
    partitions, starts, durations = (np.array(column, dtype=np.int64) for column in zip(*intervals, strict=True))

    times = self_times(partitions, starts, durations)

    assert (times >= 0).all()
    for partition in range(3):
        covered = {at for each, start, length in intervals if each == partition for at in range(start, start + length)}
        assert times[partitions == partition].sum() == len(covered)
