import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.gpu_loads import counted
from trainguard.formats.profile.snapshots import IntArray
from trainguard.rules.load_balancing.times import (
    MAX_DISTANCE,
    compare_pairs,
    compare_with_rest,
    jensen_shannon,
    two_point_bins,
)

histograms = st.lists(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=6), min_size=2, max_size=6
)


def table(rows: list[list[tuple[int, int]]]) -> IntArray:
    counts = np.zeros((len(rows), 101), dtype=np.int64)
    for index, row in enumerate(rows):
        for value, count in row:
            counts[index, value] += count
    return counts


@given(histograms)
def test_distance_of_histograms_is_as_defined_and_a_metric(
    rows: list[list[tuple[int, int]]],
) -> None:
    counts = table(rows)
    bins = two_point_bins(counts)
    compared = compare_pairs(counts)

    shares = bins / bins.sum(axis=1, keepdims=True)
    for first in range(len(rows)):
        for second in range(len(rows)):
            middle = (shares[first] + shares[second]) / 2.0
            with np.errstate(divide="ignore", invalid="ignore"):
                parts = [np.nansum(share * np.log(share / middle)) for share in (shares[first], shares[second])]
            expected = np.sqrt(max(sum(parts) / 2.0, 0.0))
            assert compared.distances[first, second] == pytest.approx(expected, abs=1e-7)
    d = compared.distances
    assert np.allclose(d, d.T)
    assert np.all(np.diag(d) == 0.0)
    assert d.max() <= MAX_DISTANCE + 1e-12
    assert np.all(d[:, :, np.newaxis] <= d[:, np.newaxis, :] + d[np.newaxis].swapaxes(1, 2) + 1e-6)
    assert bins.sum() == counts.sum()
    assert np.all((compared.unlike >= 0.0) & (compared.unlike <= 1.0))


def test_unlike_share_never_exceeds_one() -> None:
    for seed in range(50):
        counts = np.random.default_rng(seed).integers(1, 1_000, (2, 101))
        counts[0, 50:] = counts[1, :50] = 0
        assert compare_pairs(counts).unlike.max() <= 1.0


@given(histograms)
def test_each_node_is_compared_with_the_sum_of_the_others(
    rows: list[list[tuple[int, int]]],
) -> None:
    counts = table(rows)
    compared = compare_with_rest(counts)

    for index in range(len(rows)):
        others = np.delete(counts, index, axis=0).sum(axis=0)
        pair = compare_pairs(np.stack([counts[index], others]))
        assert compared.distances[index, 0] == pytest.approx(pair.distances[0, 1], abs=1e-12)
        assert compared.others[index, 0] == pytest.approx(pair.means[1])
        assert compared.means[index] == pytest.approx(pair.means[0])


def test_distance_is_unchanged_when_counts_are_multiplied() -> None:
    counts = np.stack([counted(10, 30, 50), counted(30, 90)])

    assert compare_pairs(counts).distances == pytest.approx(compare_pairs(counts * np.array([[1], [977]])).distances)
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(np.sqrt(np.log(2.0)))


def test_worst_is_the_least_busy_distant_side_with_its_furthest() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        counts = np.stack(
            [counted(*random.choice([0, 20, 50, 80, 100], 2).tolist()) for _ in range(int(random.integers(2, 5)))]
        )
        for compared in (compare_pairs(counts), compare_with_rest(counts)):
            distance, gap = float(random.choice([0.2, 0.5, 0.9])), float(random.choice([10.0, 15.0, 30.0]))
            apart = compared.apart(distance, gap)
            rows, columns = (range(size) for size in apart.shape)
            is_apart = {
                (row, column): compared.distances[row, column] > distance
                and abs(compared.means[row] - compared.others[row, column]) >= gap
                for row in rows
                for column in columns
            }
            assert {place: bool(apart[place]) for place in is_apart} == is_apart
            row, column = compared.worst(apart)
            busy = [each for each in rows if any(is_apart[each, other] for other in columns)]
            if busy:
                assert row == min(busy, key=lambda each: compared.means[each])
                of_row = [other for other in columns if is_apart[row, other]]
                assert column == max(of_row, key=lambda other: compared.distances[row, other])
            else:
                others = [place for place in is_apart if len(columns) == 1 or place[0] != place[1]]
                assert compared.distances[row, column] == max(compared.distances[place] for place in others)
                assert (row, column) in others
            most = max(compared.means)
            assert compared.idle_share.tolist() == [1.0 - mean / most if most else 0.0 for mean in compared.means]


def test_idle_sides_have_no_laggard() -> None:
    compared = compare_pairs(np.stack([counted(0), counted(0)]))
    assert compared.idle_share.tolist() == [0.0, 0.0]
    assert compared.worst(compared.apart(0.5, 15.0)) == (0, 1)
    assert compare_pairs(np.stack([counted(0, 1), counted(1, 2)])).unlike[0, 1] == 0.5
