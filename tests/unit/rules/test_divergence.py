import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.gpu_loads import counted
from trainguard.rules.divergence import MAX_DISTANCE, compare_pairs, compare_with_rest, jensen_shannon, two_point_bins
from trainguard.telemetry.snapshots import IntArray

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
def test_given_any_histograms_when_compared_then_the_distance_is_that_of_its_definition_and_a_metric(
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


def test_given_loads_without_a_common_value_when_compared_then_the_unlike_share_is_no_more_than_all() -> None:
    for seed in range(50):
        counts = np.random.default_rng(seed).integers(1, 1_000, (2, 101))
        counts[0, 50:] = counts[1, :50] = 0
        assert compare_pairs(counts).unlike.max() <= 1.0


@given(histograms)
def test_given_any_nodes_when_one_is_left_out_then_it_is_compared_with_the_sum_of_the_others(
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


def test_given_counts_of_any_size_when_multiplied_then_the_distance_stays() -> None:
    counts = np.stack([counted(10, 30, 50), counted(30, 90)])

    assert compare_pairs(counts).distances == pytest.approx(compare_pairs(counts * np.array([[1], [977]])).distances)
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(np.sqrt(np.log(2.0)))
