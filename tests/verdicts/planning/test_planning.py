"""Forecasts of MLPerf's jobs reach their goals: at another size, and of the end at half time."""

import numpy as np
import pytest

from tests.verdicts.planning.finishing import forecasts, logged, runs, warned_at
from tests.verdicts.planning.scaling import fitted, judged, sizes, sorts
from trainguard.planning.scaling import MEASURED

WITHIN, HELD = 0.9, 0.8
MEDIAN_ERROR = 0.05


@pytest.mark.verdicts
def test_forecasts_of_other_sizes_are_near_and_intervals_hold() -> None:
    found = [each for each in judged() if each.pair.gpus != 1.0]
    assert len(found) >= 70
    assert np.median([abs(each.error) for each in found]) <= MEDIAN_ERROR
    assert np.mean([each.held for each in found]) >= HELD


@pytest.mark.verdicts
def test_intervals_of_other_gpus_hold_benchmarks_left_out() -> None:
    found = [each for each in judged() if each.pair.gpus == 1.0]
    assert len(found) >= 30
    assert np.mean([each.held for each in found]) >= HELD


@pytest.mark.verdicts
def test_ends_forecast_at_half_time_are_near_and_intervals_hold() -> None:
    found = [each for each in forecasts(runs(), 0.5) if each.error is not None]
    assert len(found) >= 100
    assert np.mean([abs(each.error or 0.0) <= 0.1 for each in found]) >= WITHIN
    assert np.mean([each.held for each in found]) >= HELD


@pytest.mark.verdicts
@pytest.mark.parametrize(
    ("limit", "least", "most"), [(0.8, 0.9, 1.0), (0.9, 0.9, 1.0), (1.05, 0.0, 0.05), (1.1, 0.0, 0.0)]
)
def test_warnings_come_early_and_hardly_ever_falsely(limit: float, least: float, most: float) -> None:
    found = [warned_at(run, limit) for run in logged()]
    early = [at for at in found if at is not None and at <= limit - 0.04]
    assert len(early) >= least * len(found)
    assert limit < 1.0 or sum(at is not None for at in found) <= most * len(found)


def test_exponents_are_those_that_are_fitted_to_all_jobs() -> None:
    found = fitted(sizes(), sorts())
    for name in ("samples", "gpus", "spread", "sorts_spread"):
        assert getattr(MEASURED, name) == pytest.approx(getattr(found, name), abs=6e-4), name
