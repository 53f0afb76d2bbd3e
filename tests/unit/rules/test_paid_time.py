"""What a finding cost, as a share of the time that was paid for; and what a rule's numbers look like in JSON."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.unit.rules.gpu_loads import counted, nothing, view_of
from trainguard.render.details import Details, Durations, SeriesDetails, plain
from trainguard.rules.rule_inputs import idle_share_of_paid, share_of_paid
from trainguard.state.histogram import DurationHistogram

# 500 s were paid for.
NODE = replace(view_of("algo-1", counted(50)), first_sample_at=100.0, watermark_s=590.0, interval_s=10.0)


@pytest.mark.parametrize(
    ("lost_s", "share"), [(-1.0, 0.0), (0.0, 0.0), (50.0, 0.1), (500.0, 1.0), (501.0, 1.0), (900.0, 1.0)]
)
def test_lost_share_is_of_the_time_from_first_to_last_sample(lost_s: float, share: float) -> None:
    assert share_of_paid(NODE, lost_s) == share


def test_given_no_sample_when_shared_then_nothing_is_known() -> None:
    assert share_of_paid(replace(NODE, watermark_s=None), 1.0) is None
    assert share_of_paid(replace(NODE, first_sample_at=None), 1.0) is None


def idle_share(*gpus: tuple[float, bool], seen: float = 1.0, active: list[bool] | None = None) -> float | None:
    """Return the share of GPUs each at a level for 20 points of 10 s, those that are chosen counting."""
    view = replace(
        NODE,
        gpu_histogram=np.stack([counted(level, points=20) for level, _ in gpus]),
        ever_active=np.array([level >= 10.0 for level, _ in gpus] if active is None else active),
        kept_total=20,
    )
    return idle_share_of_paid(view, np.array([chosen for _, chosen in gpus]), seen)


@pytest.mark.parametrize(
    ("gpus", "seen", "share"),
    [
        ([(30.0, True)], 1.0, 0.7 * 200.0 / 500.0),
        ([(30.0, True), (100.0, False)], 1.0, 0.35 * 200.0 / 500.0),
        ([(30.0, True), (90.0, True)], 1.0, 0.4 * 200.0 / 500.0),
        ([(30.0, True), (0.0, False)], 1.0, 0.7 * 200.0 / 500.0),
        ([(30.0, True), (0.0, True)], 1.0, 200.0 / 500.0),
        ([(30.0, True)], 0.5, 0.5 * 200.0 / 500.0),
        ([(30.0, True)], 0.8, 0.7 * 200.0 / 500.0),
        ([(30.0, True)], 0.0, 0.0),
        ([(30.0, False)], 1.0, None),
        ([(0.0, True)], 1.0, None),
    ],
)
def test_idle_gpu_loss_is_a_share_of_the_gpus_that_worked(
    gpus: list[tuple[float, bool]], seen: float, share: float | None
) -> None:
    assert idle_share(*gpus, seen=seen) == (None if share is None else pytest.approx(share))


def test_undone_share_is_unknown_without_a_kept_point() -> None:
    view = replace(NODE, gpu_histogram=np.stack([nothing()]), ever_active=np.array([True]))
    assert idle_share_of_paid(view, np.array([True])) is None


class Numbers(Details, frozen=True):
    mean: float
    few: dict[str, int] = msgspec.field(default_factory=dict)


class OfSeries(SeriesDetails, frozen=True):
    series: dict[str, Numbers]
    whole: bool = False
    count: int = 0


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        (Numbers(1.5), {"mean": 1.5}),
        (Numbers(1.5, {"a": 1}), {"mean": 1.5, "few": {"a": 1}}),
        (OfSeries({"b": Numbers(1.0), "a": Numbers(2.0)}), {"b": {"mean": 1.0}, "a": {"mean": 2.0}}),
        (OfSeries({"b": Numbers(1.0)}, whole=True), {"b": {"mean": 1.0}, "whole": True}),
        (OfSeries({}, whole=True, count=2), {"whole": True, "count": 2}),
    ],
)
def test_details_are_plain_and_read_back(details: Details, shown: dict[str, Any]) -> None:
    assert list(details.plain()) == list(shown)
    assert details.plain() == plain(details) == shown
    assert type(details).read(shown) == details
    assert plain({"algo-1": details, "algo-2": {"a": 1}}) == {"algo-1": shown, "algo-2": {"a": 1}}


def test_details_of_another_shape_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        Numbers.read({"mean": "many"})
    with pytest.raises(msgspec.ValidationError):
        OfSeries.read({"a": {"mean": "many"}})


def test_bins_of_durations_have_edges_and_counts() -> None:
    histogram = DurationHistogram()
    histogram.add(np.array([1_000, 1_000, 2_000_000], dtype=np.int64))
    shown = Durations.of(histogram)
    lower, upper = histogram.edges()
    assert (shown.lower_us, shown.upper_us, sum(shown.counts)) == (lower.tolist(), upper.tolist(), 3)
