import math

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainguard.state.histogram import EDGES, LARGEST, MAX_DURATION_US, DurationHistogram, _edges

durations = st.one_of(
    st.integers(0, 300), st.integers(0, 10_000_000), st.floats(0.0, 11.0).map(lambda power: int(10.0**power))
)
samples = st.lists(durations, max_size=200)
non_empty = st.lists(durations, min_size=1, max_size=200)


def histogram(values: list[int], max_bins: int | None = None) -> DurationHistogram:
    built = DurationHistogram()
    built.add(np.array(values, dtype=np.int64))
    if max_bins is not None:
        built.limit(max_bins)
    return built


def encoded(value: DurationHistogram) -> bytes:
    return msgspec.msgpack.encode(value)


def test_bins_are_one_microsecond_or_at_most_1_percent_wide() -> None:
    widths = np.diff(EDGES)

    assert (widths[EDGES[:-1] < 200] == 1).all()
    assert (widths <= np.maximum(1.0, EDGES[:-1] * 0.01)).all()
    assert EDGES[0] == 0
    assert EDGES[-1] > MAX_DURATION_US


def test_edges_of_the_recurrence_match_stored_histograms() -> None:
    edge = 0
    for found in _edges().tolist():
        assert found == edge
        edge = max(edge + 1, edge * 101 // 100)
    assert EDGES[-2] <= LARGEST < EDGES[-1]
    assert (EDGES.size, EDGES[1_000], EDGES[-1]) == (2_473, 439_316, 1_008_771_731_668)


@given(values=non_empty)
def test_every_duration_lies_in_its_bin(values: list[int]) -> None:
    built = histogram(values)
    lower, upper = built.edges()

    for low, high, count in zip(lower, upper, built.counts, strict=True):
        assert sum(low <= min(value, MAX_DURATION_US) <= high for value in values) == count
    assert built.total == len(values)


@given(first=samples, second=samples, max_bins=st.sampled_from([None, 3, 16]))
def test_merged_parts_in_either_order_have_the_same_bytes(
    first: list[int], second: list[int], max_bins: int | None
) -> None:
    whole = histogram([*first, *second], max_bins)

    for one, other in ((first, second), (second, first)):
        merged = histogram(one, max_bins)
        merged.merge(histogram(other, max_bins))
        if max_bins is not None:
            merged.limit(max_bins)
        assert encoded(merged) == encoded(whole)


@given(values=non_empty, max_bins=st.integers(1, 20), cut=st.integers(0, 200))
def test_level_within_a_budget_depends_only_on_the_durations(values: list[int], max_bins: int, cut: int) -> None:
    parts = DurationHistogram()
    for part in (values[:cut], values[cut:]):
        parts.add(np.array(part, dtype=np.int64))
        parts.limit(max_bins)

    assert encoded(parts) == encoded(histogram(sorted(values), max_bins))
    assert len(parts.bins) <= max_bins
    assert parts.total == len(values)


@given(values=non_empty, quantile=st.floats(0.0, 1.0))
def test_quantile_is_within_half_a_percent(values: list[int], quantile: float) -> None:
    exact = float(np.quantile(np.array(values, dtype=np.float64), quantile))

    assert math.isclose(histogram(values).quantile(quantile), exact, rel_tol=0.005, abs_tol=1e-6)


def test_quantile_of_nothing_is_nan() -> None:
    assert math.isnan(DurationHistogram().quantile(0.5))


@given(values=non_empty, threshold=durations, max_bins=st.sampled_from([None, 8]))
def test_no_duration_within_a_threshold_is_counted(values: list[int], threshold: int, max_bins: int | None) -> None:
    built = histogram(values, max_bins)

    assert built.count_above(threshold) <= sum(value > threshold for value in values)
    assert built.count_below(threshold) <= sum(value < threshold for value in values)
    assert built.excess_above(threshold, threshold / 2.0) <= sum(
        value - threshold / 2.0 for value in values if value > threshold
    )


@given(values=non_empty, threshold=durations)
def test_durations_over_1_percent_beyond_a_threshold_are_counted(values: list[int], threshold: int) -> None:
    built = histogram(values)

    assert built.count_above(threshold) >= sum(value > threshold * 1.01 + 1 for value in values)
    assert built.count_below(threshold) >= sum(value < threshold * 0.99 - 1 for value in values)


@given(values=samples, max_bins=st.sampled_from([None, 8]))
def test_stored_histogram_round_trips(values: list[int], max_bins: int | None) -> None:
    built = histogram(values, max_bins)

    assert msgspec.msgpack.decode(encoded(built), type=DurationHistogram) == built
