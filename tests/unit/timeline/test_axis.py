"""The axis of a job: the finest that people read and that a report has room for."""

import pytest

from trainguard.report.timeline.series import (
    BUCKETS_S,
    FINER,
    FINER_CELLS,
    MAX_BUCKETS,
    MAX_CELLS,
    NODE_CELLS,
    axis_for,
    shown_axis,
)

START = 1_795_248_017.25
HOUR_S, DAY_S = 3_600.0, 86_400.0


@pytest.mark.parametrize(
    ("hours", "gpus", "nodes", "bucket_s"),
    [
        (0.5, 8, 1, 1),
        (1.0, 8, 1, 2),
        (8.0, 16, 2, 10),
        (24.0, 16, 2, 30),
        (72.0, 1_024, 128, 900),
        (28 * 24.0, 1, 1, 900),
        (0.5, 0, 128, 5),
    ],
)
def test_bucket_is_as_fine_as_there_is_room(hours: float, gpus: int, nodes: int, bucket_s: int) -> None:
    axis = shown_axis(axis_for(START, START + hours * HOUR_S, gpus, nodes), gpus, nodes)
    assert axis.bucket_s == bucket_s
    assert axis.buckets <= MAX_BUCKETS
    assert axis.buckets * (gpus + NODE_CELLS * nodes) <= MAX_CELLS


@pytest.mark.parametrize(
    ("hours", "gpus", "nodes", "bucket_s"),
    [
        (0.5, 8, 1, 1),
        (1.0, 8, 1, 1),
        (6.0, 16, 2, 2),
        (24.0, 16, 2, 5),
        (24.0, 1_024, 128, 60),
        (72.0, 1_024, 128, 300),
    ],
)
def test_digest_buckets_divide_the_shown_ones_within_the_room(
    hours: float, gpus: int, nodes: int, bucket_s: int
) -> None:
    axis = axis_for(START, START + hours * HOUR_S, gpus, nodes)
    shown = shown_axis(axis, gpus, nodes)
    assert axis.bucket_s == bucket_s
    assert (shown.start, shown.bucket_s % axis.bucket_s) == (axis.start, 0.0)
    assert shown.buckets * shown.bucket_s == axis.buckets * axis.bucket_s
    assert axis.buckets <= FINER * MAX_BUCKETS
    assert axis.buckets * (gpus + NODE_CELLS * nodes) <= FINER_CELLS * MAX_CELLS


def test_unexpected_gpus_join_buckets_of_the_digest() -> None:
    axis = axis_for(START, START + 6 * HOUR_S, 8)
    shown = shown_axis(axis, 1_024, 128)
    assert shown.buckets * (1_024 + NODE_CELLS * 128) <= MAX_CELLS
    assert (shown.bucket_s % axis.bucket_s, shown.start % shown.bucket_s) == (0.0, 0.0)
    assert shown.start <= axis.start
    end = axis.start + axis.buckets * axis.bucket_s
    assert shown.start + shown.buckets * shown.bucket_s >= end


def test_axis_begins_on_the_grid_and_includes_both_ends() -> None:
    axis = shown_axis(axis_for(START, START + HOUR_S, 8), 8)
    assert axis.start % axis.bucket_s == 0
    assert axis.start <= START < axis.start + axis.bucket_s
    last = axis.start + (axis.buckets - 1) * axis.bucket_s
    assert last <= START + HOUR_S < last + axis.bucket_s


@pytest.mark.parametrize(("interval_s", "bucket_s"), [(0.1, 1), (0.5, 1), (1.0, 2), (5.0, 10), (60.0, 120)])
def test_bucket_holds_two_samples(interval_s: float, bucket_s: int) -> None:
    assert axis_for(START, START + 600, 8, interval_s=interval_s).bucket_s == bucket_s


def test_bucket_lengths_divide_days_on_the_grid() -> None:
    assert all(DAY_S % bucket_s == 0 for bucket_s in BUCKETS_S)


@pytest.mark.parametrize("years", [10, 250])
@pytest.mark.parametrize("gpus", [1, 10_000, 10_000_000])
def test_axis_of_hostile_times_or_sizes_is_bounded(years: int, gpus: int) -> None:
    end = START + years * 365 * DAY_S
    axis = axis_for(START, end, gpus)
    assert axis.buckets <= max(2, min(MAX_BUCKETS, MAX_CELLS // gpus))
    assert axis.start + axis.buckets * axis.bucket_s > end
    assert axis.bucket_s % DAY_S == 0


def test_end_before_the_start_has_the_bucket_of_the_start() -> None:
    axis = axis_for(START, START - 100, 8)
    assert (axis.buckets, axis.bucket_s) == (1, 1)
