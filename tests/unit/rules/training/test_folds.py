"""Folds over blocks give what numpy gives over the whole, whatever the blocks are."""

import numpy as np
import pytest

from tests.support.steps import Run, Step, fired
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.readings import (
    abs_mean,
    change_of,
    mean,
    moments_of,
    not_finite,
    paired,
    scalar,
    variance,
    zeros,
)
from trainguard.rules.training.tensors.activations import inactive_percent


def step_of(values: object) -> Step:
    return Run().add(0, {"t": values})


@pytest.mark.parametrize("seed", range(20))
def test_folded_tensors_match_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    kind = random.choice(["float16", "float32", "float64", "int32", "uint8"])
    values = (
        random.normal(random.choice([0.0, 50.0]), 3.0, size=tuple(random.integers(1, 9, 3))) // 0.25 * 0.25
    ).astype(kind)
    step, exact = step_of(values), values.astype(np.float64)
    assert abs_mean(step, "t") == pytest.approx(np.abs(exact).mean(), rel=1e-12)
    assert mean(step, "t") == pytest.approx(exact.mean(), rel=1e-12)
    assert variance(step, "t") == pytest.approx(exact.var(), rel=1e-9, abs=1e-12)
    assert zeros(step, "t") == 100.0 * int((values == 0).sum()) / values.size
    for threshold in (20.0, 50.0, 80.0):
        shares = 100.0 * (exact.reshape(len(exact), -1) > 0).sum(axis=0) / len(exact)
        assert inactive_percent(step, "t", lambda each: each > 0, threshold) == pytest.approx(
            100.0 * (shares < threshold).mean()
        )


def test_variance_of_a_high_mean_has_no_cancellation() -> None:
    values = 1e9 + np.tile([0.0, 1.0], 50)
    moments = moments_of(step_of(values), "t")
    assert moments is not None
    assert moments[1] == pytest.approx(0.25, rel=1e-6)


def test_infinite_and_undefined_entries_are_counted_by_kind() -> None:
    assert not_finite(step_of([1.0, np.nan, np.inf, -np.inf] * 5), "t") == (20, 5, 10)


@pytest.mark.parametrize("values", [np.array(["a"], object), np.array([True]), np.array([1j])])
def test_given_no_numbers_when_folded_then_there_is_no_result(values: object) -> None:
    step = step_of(values)
    assert (abs_mean(step, "t"), variance(step, "t"), scalar(step, "t")) == (None, None, None)


def test_paired_blocks_of_different_sizes_cover_equal_entries() -> None:
    entries = np.arange(20.0)
    pairs = list(paired(iter(np.split(entries, [3, 11])), iter(np.split(entries, [7, 8, 15]))))
    assert all(np.array_equal(one, other) for one, other in pairs)
    assert np.array_equal(np.concatenate([one for one, _ in pairs]), entries)


def test_change_and_norm_of_two_steps_match_numpy() -> None:
    run, random = Run(), np.random.default_rng(0)
    before, now = random.normal(size=(2, 5, 9))
    steps = [run.add(step, {"w": values}) for step, values in enumerate((before, now))]
    found = change_of(steps[1], steps[0], "w")
    assert found == pytest.approx((np.linalg.norm(now - before), np.linalg.norm(before)))


def test_equal_nan_in_both_runs_counts_as_similar() -> None:
    run = Run(others={"other": Run()})
    for each in (run, run.others["other"]):
        each.add(0, {"t": [1.0, np.nan]})
    assert fired("SimilarAcrossRuns", run, other_trial="other") == []
    run.others["other"].steps[0].tensors["t"] = np.array([1.0, 2.0])
    assert fired("SimilarAcrossRuns", run, other_trial="other") == [0]


@pytest.mark.parametrize(("change", "fires"), [(0.25, False), (0.2, True)])
def test_weight_update_ratio_on_lower_threshold_does_not_fire(change: float, fires: bool) -> None:
    run = Run()
    for step, value in enumerate((1.0, 1.0 + change)):
        run.add(step, {"w": [value]}, collections={"weights": ["w"]})
    assert bool(fired("WeightUpdateRatio", run, epsilon=0, small_threshold=0.25)) is fires


def test_overfit_forgets_the_training_of_phases_before() -> None:
    run = Run()
    phases = [(Mode.TRAIN, 9.0), (Mode.EVAL, 9.0), (Mode.TRAIN, 1.0), (Mode.EVAL, 2.0), (Mode.TRAIN, 1.0)]
    for step, (mode, loss) in enumerate(phases):
        run.add(step, {"loss": [loss]}, collections={"losses": ["loss"]}, mode=mode)
    assert fired("Overfit", run) == [4]
