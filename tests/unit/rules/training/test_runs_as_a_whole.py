"""Conditions of NotLearning and TrainingDiverged over a whole run: what fires, what does not, and the threshold."""

import math
from collections.abc import Sequence

import pytest

from tests.support.steps import Outcome, Run, observed
from tests.unit.rules.training.series_runs import series_of
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.learned_nothing import NotLearningParameters, validation_never_better
from trainguard.rules.training.run_series import RunSeries

NAN = math.nan
FALLS = [2.0 * 0.8**step for step in range(20)]
LEARNS = [min(0.2 + 0.05 * step, 1.0) for step in range(20)]


def run_of(
    *, validation: Sequence[float] = (), validation_score: Sequence[float] = (), **train: Sequence[float]
) -> Run:
    """Build a run of losses and scores, each step of training followed by one of validation where there is any."""
    run = Run()
    collections = {"losses": ["loss", "val_loss"], "metrics": ["accuracy", "val_accuracy"]}
    for place in range(max(len(values) for values in train.values())):
        of_step = {name: [values[place]] for name, values in train.items()}
        run.add(2 * place, of_step, mode=Mode.TRAIN, collections=collections)
        held_out = {"val_loss": validation[place : place + 1], "val_accuracy": validation_score[place : place + 1]}
        held_out = {name: values for name, values in held_out.items() if values}
        if held_out:
            run.add(2 * place + 1, held_out, mode=Mode.EVAL, collections=collections)
    return run


def judged(rule: str, run: Run) -> Outcome:
    return observed(rule, run)


def test_always_nan_validation_loss_puts_no_rule_in_error() -> None:
    run = run_of(loss=FALLS, accuracy=LEARNS, validation=[NAN] * 20, validation_score=[0.3] * 20)
    assert judged("NotLearning", run).result.status is Status.OK
    assert judged("Plateau", run).result.status is Status.OK
    assert judged("TrainingDiverged", run).result.status is Status.FIRED


@pytest.mark.parametrize(
    ("losses", "scores"),
    [
        ([1_000.0 + 5_000.0 * 0.9**step for step in range(20)], [0.0] * 20),
        ([2_000.0] * 2 + [1_000.0] * 18, [0.3] + [0.9] * 19),
    ],
)
def test_loss_of_thousands_beside_a_score_is_judged(losses: list[float], scores: list[float]) -> None:
    run = run_of(loss=losses, accuracy=scores, validation=losses, validation_score=scores)
    assert judged("NotLearning", run).result.status is Status.OK


@pytest.mark.parametrize("rule", ["NotLearning", "Plateau", "TrainingDiverged"])
def test_loss_decides_if_the_score_is_always_nan(rule: str) -> None:
    run = run_of(loss=FALLS, accuracy=[NAN] * 20, validation=FALLS, validation_score=[NAN] * 20)
    assert judged(rule, run).result.status is Status.OK


@pytest.mark.parametrize(
    ("level", "found"),
    [(math.log(6), True), (math.log(6) * 1.005, True), (math.log(6) * 1.006, False), (math.log(11), False)],
)
def test_fallen_loss_standing_at_a_logarithm_is_a_guess(level: float, found: bool) -> None:
    losses = [9_000.0, 40.0, 3.0, *[level * (1.0 - 1e-7 * (step % 2)) for step in range(29)]]
    result = judged("NotLearning", run_of(loss=losses)).result
    assert (result.status is Status.FIRED) is found
    if found:
        assert "is the cross entropy of a guess among 6 classes" in (result.reason or "")


@pytest.mark.parametrize(("share", "found"), [(0.19, True), (0.21, False), (0.9, False)])
def test_loss_at_guess_level_with_a_better_score_is_no_guess(share: float, found: bool) -> None:
    losses = [9.0, 4.0, 3.0, *[math.log(6)] * 29]
    scores = [0.1, *[share] * 31]
    assert (judged("NotLearning", run_of(loss=losses, accuracy=scores)).result.status is Status.FIRED) is found


def test_loss_that_falls_past_guess_level_is_no_guess() -> None:
    losses = [9.0, 4.0, *[math.log(6) * (1.004 - 0.0003 * step) for step in range(28)]]
    assert judged("NotLearning", run_of(loss=losses)).result.status is Status.OK


@pytest.mark.parametrize(
    ("validation", "score", "found"),
    [
        ([2.5] * 20, [0.3] * 20, True),
        ([2.4] * 20, [0.3] * 20, False),
        ([5.0, 4.76, *[4.76] * 18], [0.3] * 20, True),
        ([5.0, 4.7, *[4.7] * 18], [0.3] * 20, False),
        ([5.0] * 20, [0.3, *[0.36] * 19], False),
        ([2.2] * 20, [0.3, *[0.19] * 19], True),
        ([2.2] * 20, [0.3, *[0.21] * 19], False),
    ],
)
def test_validation_never_better_than_its_start_is_named(
    validation: list[float], score: list[float], found: bool
) -> None:
    run = run_of(loss=FALLS, accuracy=LEARNS, validation=validation, validation_score=score)
    result = judged("NotLearning", run).result
    assert (result.status is Status.FIRED) is found
    if found:
        assert "both are prepared in the same way" in (result.advice or "")


@pytest.mark.parametrize(
    ("validation", "found"),
    [
        ([5.0 + 0.1 * step for step in range(20)], True),
        ([5.0 + 0.01 * step for step in range(20)], False),
        ([2.0 + 0.1 * step for step in range(20)], False),
        ([5.0, 4.0, *[4.0 + 0.2 * step for step in range(18)]], False),
    ],
)
def test_validation_that_only_rises_beside_learning_is_named(validation: list[float], found: bool) -> None:
    run = run_of(loss=[5.0 * 0.7**step for step in range(20)], validation=validation)
    assert (judged("NotLearning", run).result.kind == "unseen") is found


@pytest.mark.parametrize(("name", "last", "found"), [("rmse", 5.5, True), ("rmse", 5.4, False), ("mse", 5.5, False)])
def test_rise_of_a_root_of_squares_is_clear_sooner(name: str, last: float, found: bool) -> None:
    train = series_of([5.0 * 0.7**step for step in range(20)])
    held_out = series_of([5.0, *[last - 0.001 * step for step in range(18, -1, -1)]])
    run = RunSeries(losses={Mode.TRAIN: {f"train-{name}": train}, Mode.EVAL: {f"validation-{name}": held_out}})
    check = validation_never_better(run, NotLearningParameters())
    assert (check is not None) is found


@pytest.mark.parametrize(("share", "fall", "found"), [(0.2, 0.8, False), (0.04, 0.8, False), (0.2, 1.0, True)])
def test_tiny_constant_score_with_a_halved_loss_is_a_regression(share: float, fall: float, found: bool) -> None:
    losses = [1e4 * fall**step for step in range(20)]
    assert (judged("NotLearning", run_of(loss=losses, accuracy=[share] * 20)).result.status is Status.FIRED) is found


@pytest.mark.parametrize(
    ("left", "share", "found"), [(5.0, 0.2, True), (5.1, 0.2, False), (5.0, 0.04, False), (5.0, 0.66, False)]
)
def test_halved_loss_beside_a_low_score_without_gain_is_named(left: float, share: float, found: bool) -> None:
    losses = [10.0, *[left] * 19]
    scores = [share + 0.001 * (step % 2) for step in range(20)]
    assert (judged("NotLearning", run_of(loss=losses, accuracy=scores)).result.status is Status.FIRED) is found


@pytest.mark.parametrize(("last", "found"), [(-30.1, True), (-30.0, False), (30.1, False)])
def test_negative_loss_ten_times_its_first_half_has_no_minimum(last: float, found: bool) -> None:
    losses = [1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -8.0, last, last, last]
    result = judged("TrainingDiverged", run_of(loss=losses)).result
    assert ("falls without bound" in (result.reason or "")) is found


def test_likelihood_slowing_down_below_zero_did_not_diverge() -> None:
    losses = [3.0 - 8.0 * (1.0 - 0.93**step) for step in range(60)]
    assert judged("TrainingDiverged", run_of(loss=losses)).result.status is Status.OK


@pytest.mark.parametrize(("level", "found"), [(3.1, True), (3.0, False)])
def test_first_value_counts_if_its_block_holds_the_explosion(level: float, found: bool) -> None:
    losses = [1.0, 1e9, 1e9, 1e8, 1e7, 1e6, 1e5, 5e3, level, level, level]
    losses = [each for each in losses for _ in range(8)]
    losses[1:8] = [1e9] * 7
    assert (judged("TrainingDiverged", run_of(loss=losses)).result.status is Status.FIRED) is found


@pytest.mark.parametrize(("left", "loss", "found"), [(0.59, 1.2, True), (0.61, 1.2, False), (0.59, 0.9, False)])
def test_score_far_below_its_best_with_a_rising_loss_diverged(left: float, loss: float, found: bool) -> None:
    losses = [1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, loss, loss, loss]
    scores = [0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, left, left, left]
    result = judged("TrainingDiverged", run_of(loss=losses, accuracy=scores)).result
    assert ("over its best fifth of the run" in (result.reason or "")) is found
