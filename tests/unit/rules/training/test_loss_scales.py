"""Numbers of a log that are not finite for a moment: of a loss scaler's search, of a skipped step, and for good."""

import math
from collections.abc import Sequence

import pytest

from tests.support.steps import RULES, Outcome, Run, observed, parameters
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.step_rule import RunView

NAN, INF = math.nan, math.inf


def logged(losses: Sequence[float], norms: Sequence[float] = (), **given: object) -> Outcome:
    """Show ExplodingTensor the losses of a log, with the norm of all gradients beside them."""
    return observed("ExplodingTensor", log_of(losses, norms), **given)


def log_of(losses: Sequence[float], norms: Sequence[float] = ()) -> Run:
    run = Run()
    for step, loss in enumerate(losses):
        values = {"loss": [loss]} | ({"grad_norm": [norms[step]]} if norms else {})
        collections = {"losses": ["loss"], "gradient_norm": ["grad_norm"]}
        run.add(step, values, mode=Mode.TRAIN, collections=collections, logged=True)
    return run


@pytest.mark.parametrize(
    ("norms", "steps"),
    [
        ([NAN] * 30 + [1.0] * 30, []),
        ([NAN] * 45 + [1.0] * 15, [39, 40, 41, 42, 43, 44]),
        ([1.0] * 20 + [INF] + [1.0] * 10 + [INF, NAN] + [1.0] * 27, []),
        ([1.0] * 20 + [NAN] * 4 + [1.0] * 36, [22, 23]),
        ([NAN] * 30 + [1.0] + [NAN] * 3 + [1.0] * 26, [33]),
    ],
)
def test_norm_of_gradients_counts_beyond_a_skipped_step(norms: list[float], steps: list[int]) -> None:
    outcome = logged([1.0] * 60, norms)
    assert (outcome.steps, outcome.result.status) == (steps, Status.OK)
    assert outcome.state.evaluated == 60


@pytest.mark.parametrize("losses", [[1.0] * 8 + [NAN], [1.0] * 8 + [NAN, INF]])
def test_log_that_ends_with_nan_fires_at_its_end(losses: list[float]) -> None:
    run = log_of(losses)
    live = RULES["ExplodingTensor"]
    state = live.state_type()
    for step in run.steps:
        live.observe(state, step, parameters("ExplodingTensor"))
    assert live.judge(state, RunView(len(losses)), parameters("ExplodingTensor")).status is Status.OK
    result = observed("ExplodingTensor", run).result
    assert (result.status, result.worst) == (Status.FIRED, "loss")
    assert result.reason.startswith(f"Step {len(losses) - 1}: loss holds 1 entry")


def test_run_that_ends_in_the_search_fires_at_its_end() -> None:
    result = logged([1.0] * 20, [NAN] * 20).result
    assert (result.status, result.worst) == (Status.FIRED, "grad_norm")


def test_selected_numbers_and_saved_tensors_fire_at_once() -> None:
    losses, norms = [1.0] * 9, [1.0] * 3 + [INF] + [1.0] * 5
    assert logged(losses, norms, tensor_regex="norm").steps == [3]
    run = Run()
    for step, norm in enumerate(norms):
        run.add(step, {"grad_norm": [norm]}, collections={"gradient_norm": ["grad_norm"]})
    assert observed("ExplodingTensor", run).steps == [3]


def test_finite_values_after_nan_have_other_advice() -> None:
    for rule in ("ExplodingTensor", "TrainingDiverged"):
        live, settings = RULES[rule], parameters(rule)
        state = live.state_type()
        for step in log_of([1.0] * 5 + [NAN] * 4).steps:
            live.observe(state, step, settings)
        result = live.judge(state, RunView(9), settings)
        assert result.status is Status.FIRED
        now, (_, over) = result.advice or "", result.kept_texts
        assert "Go back" in now
        assert "Go back" not in (over or "")
        assert "is finite again" in (over or "")


def test_loss_that_is_nan_counts_from_three_values_on() -> None:
    live, settings = RULES["TrainingDiverged"], parameters("TrainingDiverged")
    state, said = live.state_type(), []
    for step in log_of([1.0] * 5 + [NAN] * 3).steps:
        live.observe(state, step, settings)
        result = live.judge(state, RunView(step.step), settings)
        said.append((result.status, None if result.progress is None else result.progress.words))
    assert said[4:] == [
        (Status.OK, None),
        (Status.OK, "1/3"),
        (Status.OK, "2/3"),
        (Status.FIRED, "3/3"),
    ]
    assert state.onset == 1_005.0


def test_nan_in_training_and_validation_counts_at_once() -> None:
    run = log_of([1.0] * 5 + [NAN])
    run.add(6, {"val_loss": [NAN]}, mode=Mode.EVAL, collections={"losses": ["val_loss"]}, logged=True)
    assert observed("TrainingDiverged", run).steps == [6]


def test_broken_loss_that_does_not_count_yet_is_named() -> None:
    live, settings = RULES["TrainingDiverged"], parameters("TrainingDiverged")
    state = live.state_type()
    for step in log_of([1.0] * 5 + [NAN] * 2).steps:
        live.observe(state, step, settings)
    reason = live.judge(state, RunView(7), settings).reason
    assert reason == (
        "Step 6: loss of mode TRAIN is NaN or infinite from step 5 to 6, 2 recorded values; it counts from 3 in a row "
        "on, or where validation is not finite either."
    )


@pytest.mark.parametrize(("losses", "fires"), [([2.0, 1e3, 1e6, 1e9], True), ([2.0, 5.0, 1e6, 1e9], False)])
def test_four_values_far_above_the_first_have_exploded(losses: list[float], fires: bool) -> None:
    assert (observed("TrainingDiverged", log_of(losses)).result.status is Status.FIRED) is fires
