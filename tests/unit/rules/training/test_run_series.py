"""Which scalars of a step are taken for losses and scores, and what TrainingDiverged makes of them on the way."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.steps import RULES, Outcome, Run, observed, parameters
from trainguard.core.records import Status
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.objective import Objective
from trainguard.formats.tensors.scalars.rows import ScalarRow
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.run_series import SeriesState, gather
from trainguard.rules.training.step_rule import RunView

NAN = math.nan


def gathered(mode: Mode, losses: Sequence[str], metrics: Sequence[str], names: Sequence[str] = ()) -> Any:
    """Return the names of losses and of scores by mode after a step at which all had a value."""
    state, saved = SeriesState(), {name: [2.5] for name in (*losses, *metrics, *names)}
    gather(state, Run().add(7, saved, mode=mode, collections={"losses": losses, "metrics": metrics}, at=99.0))
    assert state.run.at == 99.0
    losses_by_mode = {mode.value: sorted(kept) for mode in Mode if (kept := state.run.taken(mode))}
    return losses_by_mode, {mode.value: sorted(of_mode) for mode, of_mode in state.run.scores.items()}


@pytest.mark.parametrize(
    ("mode", "losses", "metrics", "taken", "scores"),
    [
        (Mode.TRAIN, ["loss"], ["acc", "error"], {"TRAIN": ["loss"]}, {"TRAIN": ["acc"]}),
        (Mode.EVAL, [], ["acc", "error"], {"EVAL": ["error"]}, {"EVAL": ["acc"]}),
        (Mode.PREDICT, ["loss"], ["acc"], {}, {}),
        (Mode.GLOBAL, ["loss"], ["acc"], {"TRAIN": ["loss"]}, {"TRAIN": ["acc"]}),
        (Mode.TRAIN, ["acc"], ["acc"], {"TRAIN": ["acc"]}, {}),
        (Mode.TRAIN, [], ["train-rmse", "train-auc"], {"TRAIN": ["train-rmse"]}, {"TRAIN": ["train-auc"]}),
        (Mode.EVAL, [], ["train-mlogloss2", "train-auc"], {"EVAL": ["train-mlogloss2"]}, {"EVAL": ["train-auc"]}),
        (Mode.GLOBAL, [], ["train-mlogloss2"], {"TRAIN": ["train-mlogloss2"]}, {}),
        (
            Mode.GLOBAL,
            [],
            ["validation-auc", "train-aucpr"],
            {},
            {"EVAL": ["validation-auc"], "TRAIN": ["train-aucpr"]},
        ),
        (Mode.GLOBAL, ["train-auc"], ["test-auc"], {}, {"TRAIN": ["train-auc"], "EVAL": ["test-auc"]}),
        (Mode.GLOBAL, ["train-mae"], ["test-mae"], {"TRAIN": ["train-mae"], "EVAL": ["test-mae"]}, {}),
    ],
)
def test_collection_mode_and_name_classify_scalars(
    mode: Mode, losses: list[str], metrics: list[str], taken: Mapping[str, Any], scores: Mapping[str, Any]
) -> None:
    assert gathered(mode, losses, metrics, ["lr"]) == (taken, scores)


def test_non_numbers_are_skipped_and_nan_is_seen_but_not_added() -> None:
    state, run = SeriesState(), Run()
    collections = {"losses": ["loss", "long"], "metrics": ["acc"]}
    saved = {"loss": [NAN], "long": [1.0, 2.0], "acc": [NAN]}
    assert repr(gather(state, run.add(0, saved, collections=collections))) == repr([(Mode.TRAIN, "loss", NAN)])
    assert (state.run.score(Mode.TRAIN), [name for name, _ in state.run.loss(Mode.TRAIN)]) == ([], ["loss"])
    assert state.run.loss(Mode.TRAIN)[0][1].count == 0
    assert gather(state, run.add(1, {"loss": [4.0], "acc": [0.5]}, collections=collections)) == [
        (Mode.TRAIN, "loss", 4.0)
    ]
    assert [(name, each.means, each.steps) for name, each in state.run.score(Mode.TRAIN)] == [("acc", [0.5], [1])]
    assert state.run.loss(Mode.TRAIN)[0][1].means == [4.0]


@pytest.mark.parametrize(
    ("steps", "kept", "counting", "left_out"),
    [
        ([["a_part", "b_part"]], ["a_part", "b_part"], ["a_part", "b_part"], 0),
        ([["a_part", "b_part", "c_part"]] * 2, ["a_part", "b_part"], ["a_part", "b_part"], 2),
        ([["a_part", "b_part"], ["loss"]], ["b_part", "loss"], ["loss"], 0),
        ([["a_part", "b_part"], ["loss", "val_loss"]], ["loss", "val_loss"], ["loss"], 0),
        ([["loss", "total_loss"], ["val_loss"], ["a_part"]], ["loss", "total_loss"], ["loss"], 2),
        ([["a_part", "loss"], ["b_part"]], ["a_part", "loss"], ["loss"], 1),
    ],
)
def test_total_replaces_a_part_beyond_two_losses(
    steps: list[list[str]], kept: list[str], counting: list[str], left_out: int
) -> None:
    state, run = SeriesState(), Run()
    for step, names in enumerate(steps):
        gather(state, run.add(step, {name: [1.0] for name in names}, mode=Mode.TRAIN, collections={"losses": names}))
    assert sorted(state.run.losses[Mode.TRAIN]) == kept
    assert [name for name, _ in state.run.loss(Mode.TRAIN)] == counting
    assert state.left_out == left_out


def live(losses: Sequence[float], **given: Any) -> Any:
    """Show a run that goes on."""
    each, values, run = RULES["TrainingDiverged"], parameters("TrainingDiverged", **given), Run()
    state = each.state_type()
    for step, loss in enumerate(losses):
        each.observe(state, run.add(step, {"loss": [loss]}, mode=Mode.TRAIN, collections={"losses": ["loss"]}), values)
    return state


@pytest.mark.parametrize(
    ("live_rows", "fires"), [(248, [247, 255]), (249, [255]), (255, [255]), (256, [255]), (257, [])]
)
def test_risen_run_is_judged_at_whole_blocks_with_enough_values(live_rows: int, fires: list[int]) -> None:
    state = live([4.0] * 20 + [1.0] * 140 + [3.0] * 103, live_rows=live_rows)
    assert state.steps == fires
    assert state.onsets == fires[:1]


def test_ended_rise_is_calm_after_the_next_whole_block() -> None:
    state = live([4.0] * 20 + [1.0] * 140 + [3.0] * 96 + [0.5] * 16 + [0.25], live_rows=250)
    assert (state.steps, state.evaluated) == ([255], 256 + 2)
    assert state.latest is not None
    assert RULES["TrainingDiverged"].said(state.latest) == (
        "Step 272: loss is 0.25, and was about 4 over the first 16 values (steps 0 to 15); no loss is broken or has "
        "risen for good."
    )
    assert (state.latest.value, state.latest.tensor, state.latest.threshold) == (0.25, "loss", None)


def both(*steps: tuple[Mode, Mapping[str, float]]) -> Outcome:
    run = Run()
    for step, (mode, losses) in enumerate(steps):
        saved = {name: [value] for name, value in losses.items()}
        run.add(step, saved, mode=mode, collections={"losses": sorted(losses)})
    return observed("TrainingDiverged", run)


def test_loss_most_often_non_finite_is_named() -> None:
    outcome = both(
        (Mode.TRAIN, {"loss": 1.0}), (Mode.EVAL, {"val_loss": NAN}), (Mode.TRAIN, {"loss": math.inf}),
        (Mode.TRAIN, {"loss": NAN}),
    )  # fmt: skip
    assert outcome.steps == [2, 3]
    assert outcome.result.reason == "Step 3: loss of mode TRAIN is NaN or infinite from step 2 to 3, 2 recorded values."
    assert (outcome.result.measured, outcome.result.threshold, outcome.result.worst) == (2.0, 0.0, "loss")
    assert (outcome.result.measure and outcome.result.measure.what) == "values in a row that are not finite"
    outcome = both((Mode.TRAIN, {"loss": 1.0}), (Mode.EVAL, {"val_loss": NAN}))
    assert outcome.result.reason == ("Step 1: val_loss of mode EVAL is NaN or infinite at step 1, 1 recorded value.")


def test_non_finite_loss_holds_until_the_next_of_its_mode() -> None:
    outcome = both(
        (Mode.TRAIN, {"loss": 1.0}), *[(Mode.TRAIN, {"loss": NAN})] * 3, (Mode.EVAL, {"val_loss": 1.0}),
        (Mode.TRAIN, {"loss": 0.5}), (Mode.EVAL, {"val_loss": 1.0}),
    )  # fmt: skip
    assert (outcome.steps, outcome.state.evaluated) == ([3, 4], 7)
    assert outcome.result.reason == (
        "Step 6: loss is 0.5, and was 1 at the start (step 0); no loss is broken or has risen for good; 3 values of it "
        "were NaN or infinite, the first at step 1."
    )


def test_total_that_replaces_a_nan_part_decides() -> None:
    parts = {"a_part": NAN, "b_part": 1.0}
    whole = {"loss": 2.0, "a_part": 1.0, "b_part": 1.0}
    outcome = both(*[(Mode.TRAIN, parts)] * 11, (Mode.TRAIN, whole))
    assert outcome.steps == [9, 10]
    assert outcome.result.status is Status.OK


def test_rising_validation_alone_is_not_judged() -> None:
    outcome = both(*[(Mode.EVAL, {"val_loss": loss}) for loss in [4.0, *[1.0] * 10, *[9.0] * 6]])
    assert (outcome.steps, outcome.result.status, outcome.state.evaluated) == ([], Status.OK, 17)
    assert outcome.result.reason.startswith("Step 16: val_loss is 9, and was 4 at the start (step 0); no loss")


@pytest.mark.parametrize(
    ("losses", "advice", "measure"),
    [
        ([1.0, NAN], "Go back to a checkpoint before these steps", "values in a row that are not finite"),
        ([1.0, 1.0, 5.0, 5.0, 5.0], "Go back to a checkpoint before the rise.", "loss"),
        ([*[-1.0] * 7, *[-11.0] * 3], "A loss with a minimum does not do that.", "loss"),
    ],
)
def test_advice_and_measure_of_a_divergence_match_its_kind(losses: list[float], advice: str, measure: str) -> None:
    result = both(*[(Mode.TRAIN, {"loss": loss}) for loss in losses]).result
    assert result.status is Status.FIRED
    assert (result.advice or "").startswith(advice)
    assert (result.measure and result.measure.what) == measure
    assert (result.reason.startswith("Step "), result.worst) == (True, "loss")


def test_numbers_of_a_lost_score_are_of_the_score() -> None:
    run = Run()
    losses, scores = [2.0, *[1.0] * 10, 1.5, 1.5, 1.5], [0.5, *[0.75] * 10, 0.25, 0.25, 0.25]
    for step, (loss, score) in enumerate(zip(losses, scores, strict=True)):
        collections = {"losses": ["loss"], "metrics": ["acc"]}
        run.add(step, {"loss": [loss], "acc": [score]}, mode=Mode.TRAIN, collections=collections)
    result = observed("TrainingDiverged", run).result
    assert (result.worst, result.measured) == ("acc", 0.25)
    assert result.threshold == pytest.approx(0.55)
    assert (result.measure and result.measure.what) == "score"
    assert (result.advice or "").startswith("Go back to a checkpoint before the rise.")
    assert result.reason.startswith("Step 13: acc had a mean of 0.75")


def test_ended_run_without_losses_has_nothing_to_judge() -> None:
    run = Run()
    run.add(0, {"acc": [1.0]}, mode=Mode.TRAIN, collections={"metrics": ["acc"]})
    assert observed("TrainingDiverged", run).result.status is Status.NOT_APPLICABLE
    rule = RULES["TrainingDiverged"]
    assert rule.at_end(rule.state_type(), parameters("TrainingDiverged")) is None
    assert rule.judge(rule.state_type(), RunView(1), parameters("TrainingDiverged")).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("total", "part"),
    [
        ("loss_vae", "loss_recon"),
        ("vae_loss", "recon_loss"),
        ("train/beta_vae_loss", "train/recon_loss"),
        ("elbo", "recon"),
        ("nelbo", "nll"),
        ("neg_elbo", "bce_loss"),
        ("loss/total", "loss/recon"),
    ],
)
def test_total_of_a_variational_model_comes_first(total: str, part: str) -> None:
    state, names = SeriesState(), ScalarNames()
    gather(
        state, ScalarStep(ScalarRow(0, Mode.TRAIN, 1.0, {part: 4.0, "kl": 1.0, "recon_term": 4.0, total: 5.0}), names)
    )
    assert state.run.objective is Objective.VARIATIONAL
    assert state.run.loss(Mode.TRAIN)[0][0] == total


def test_bound_below_zero_is_a_score_from_its_first_value() -> None:
    for values, is_score in (([-500.0, -90.0, 1.0], True), ([500.0, 90.0, -1.0], False)):
        state = SeriesState()
        for step, value in enumerate(values):
            row = ScalarRow(step, Mode.TRAIN, 1.0, {"elbo": value, "kl": 1.0})
            gather(state, ScalarStep(row, ScalarNames()))
        assert [[name for name, _ in kept] for kept in (state.run.score(Mode.TRAIN), state.run.loss(Mode.TRAIN))] == (
            [["elbo"], []] if is_score else [[], ["elbo"]]
        )
