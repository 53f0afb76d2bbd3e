"""What TrainingDiverged says where a loss says little: policies and adversaries; and of a loss that jumps to zero."""

import math
from collections.abc import Mapping, Sequence

import pytest

from tests.support.steps import Outcome, Run, observed
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode

STEPS = 60
RISES = [10.0 + place for place in range(STEPS)]
LOST = [*RISES[:40], *[12.0] * 20]
WORSE = [30.0 - 0.3 * place for place in range(STEPS)]
CALM, FAR = [0.02] * STEPS, [*[0.02] * 40, *[4.0] * 20]


def diverged(columns: Mapping[str, Sequence[float]], losses: Sequence[str] = ("loss",)) -> Outcome:
    run = Run()
    for step in range(STEPS):
        saved = {name: [values[step]] for name, values in columns.items()}
        run.add(step, saved, mode=Mode.TRAIN, collections={"losses": list(losses)}, at=1_000.0 + step)
    return observed("TrainingDiverged", run)


def policy(**columns: Sequence[float]) -> Outcome:
    return diverged({"loss": [0.001 * place for place in range(STEPS)], **columns})


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"reward": RISES, "kl": CALM}, "moves"),
        ({"reward": LOST}, "reward lost"),
        ({"reward": [*RISES[:40], *[40.0] * 20]}, "moves"),
        ({"reward": [10.0] * STEPS, "kl": FAR}, "kl exploded"),
        ({"reward": [10.0] * STEPS, "kl": [*[0.02] * 15, *[4.0] * 45]}, "kl exploded"),
        ({"reward": RISES, "kl": FAR}, "moves"),
        ({"reward": [10.0] * STEPS, "kl": [*[0.02] * 40, *[0.9] * 20]}, "moves"),
        ({"reward": [10.0] * STEPS, "entropy": [*[1.4] * 40, *[0.01] * 20]}, "entropy gone"),
        ({"reward": [10.0] * STEPS, "entropy_loss": [*[-1.4] * 40, *[-0.01] * 20]}, "entropy gone"),
        ({"reward": RISES, "entropy": [*[1.4] * 40, *[0.01] * 20]}, "moves"),
        ({"reward": [10.0] * STEPS, "entropy": [*[1.4] * 40, *[0.1] * 20]}, "moves"),
        ({"reward": [10.0] * STEPS, "entropy": [1.0, -1.0] * 30}, "moves"),
        ({"reward": WORSE, "entropy": [*[1.4] * 20, *[0.2] * 40]}, "entropy gone"),
        ({"reward": [*WORSE[:50], *[40.0] * 10], "entropy": [*[1.4] * 20, *[0.2] * 40]}, "moves"),
        ({"reward": WORSE, "entropy": [*[1.4] * 20, *[0.5] * 40]}, "moves"),
        ({"reward": [10.0] * STEPS, "entropy": [*[1.4] * 20, *[0.2] * 40]}, "moves"),
        ({"reward": RISES, "train/approx_kl": [40.0, 3.0] * 30}, "updates too large"),
        ({"reward": RISES, "train/approx_kl": [*[40.0] * 40, *[0.02] * 20]}, "moves"),
        ({"reward": RISES, "train/approx_kl": [40.0, *[0.02] * 19] * 3}, "moves"),
        ({"reward": RISES, "objective/kl": [40.0, 3.0] * 30}, "moves"),
    ],
)
def test_policy_is_judged_by_its_reward_and_not_by_its_loss(columns: Mapping[str, list[float]], kind: str) -> None:
    outcome = policy(**columns)
    assert outcome.result.kind == kind
    assert outcome.result.status is (Status.OK if kind == "moves" else Status.FIRED)


def test_lost_reward_names_its_best_and_when_it_fell() -> None:
    result = policy(reward=LOST).result
    assert result.reason == (
        "Step 59: reward was about 10.5 over the first 2 values (steps 0 to 1) and 48.5 at its best; after step 47 it "
        "was never above 12, below the threshold 26.8333."
    )
    assert (result.worst, result.measure and result.measure.what) == ("reward", "reward")


@pytest.mark.parametrize("name", ["loss", "value_loss"])
def test_nan_of_a_policys_loss_is_no_matter_of_its_objective(name: str) -> None:
    outcome = diverged({name: [1.0] * 59 + [math.nan], "reward": RISES}, losses=[name])
    assert outcome.result.kind == "not finite"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"reward": RISES},
            "Step 59: no loss is broken; where the objective is reinforcement learning, its level says little.",
        ),
        (
            {"reward": [10.0] * STEPS, "kl": FAR},
            (
                "Step 59: kl was about 0.02 over the first 2 values (steps 0 to 1); after step 47 it was never below "
                "4, above the threshold 1, and the reward is not better for it."
            ),
        ),
        (
            {"reward": RISES, "approx_kl": [4.0] * STEPS},
            (
                "Step 59: approx_kl was about 4 over the first 2 values (steps 0 to 1) and typically 4, above the "
                "threshold 1: each update makes another policy."
            ),
        ),
        (
            {"reward": [10.0] * STEPS, "entropy": [*[1.5] * 40, *[0.01] * 20]},
            (
                "Step 59: entropy was about 1.5 over the first 2 values (steps 0 to 1); after step 47 its size was "
                "never above 0.01, below the threshold 0.03, and the reward is not better for it."
            ),
        ),
    ],
)
def test_words_of_a_policy_name_series_and_threshold(columns: Mapping[str, list[float]], said: str) -> None:
    assert policy(**columns).result.reason == said


def test_not_learning_does_not_judge_a_policy() -> None:
    run = Run()
    for step in range(STEPS):
        run.add(step, {"loss": [1.0], "reward": [1.0]}, mode=Mode.TRAIN, collections={"losses": ["loss"]}, at=step)
    result = observed("NotLearning", run).result
    assert (result.status, result.kind) == (Status.OK, "moves")
    assert result.reason == "Step 59: loss does not have to fall: the objective is reinforcement learning."


ADVERSARIES = ("G_loss", "D_loss")


@pytest.mark.parametrize(
    ("generator", "discriminator", "kind"),
    [
        ([*[0.7] * 40, *[5.0] * 20], [*[0.6] * 40, *[0.001] * 20], "generator lost"),
        ([*[0.7] * 40, *[5.0] * 20], [*[0.6] * 40, *[0.2] * 20], "moves"),
        ([*[0.7] * 40, *[1.0] * 20], [*[0.6] * 40, *[0.001] * 20], "moves"),
        ([*[-0.7] * 40, *[5.0] * 20], [*[0.6] * 40, *[0.001] * 20], "moves"),
    ],
)
def test_generator_has_lost_where_both_losses_say_so(
    generator: list[float], discriminator: list[float], kind: str
) -> None:
    outcome = diverged(dict(zip(ADVERSARIES, (generator, discriminator), strict=True)), losses=ADVERSARIES)
    assert outcome.result.kind == kind
    if kind == "generator lost":
        assert outcome.result.reason == (
            "Step 59: G_loss was about 0.7 over the first 2 values (steps 0 to 1); after step 47 it was never below 5, "
            "above the threshold 2.1, and D_loss, which was about 0.6 over the first 2 values (steps 0 to 1), was "
            "never above 0.001."
        )


def test_generator_that_lost_in_the_first_block_has_lost() -> None:
    run = Run()
    for step in range(960):
        saved = {"G_loss": [0.8 if step < 8 else 9.0], "D_loss": [0.6 if step < 8 else 1e-4]}
        run.add(step, saved, mode=Mode.TRAIN, collections={"losses": list(ADVERSARIES)}, at=1_000.0 + step)
    assert observed("TrainingDiverged", run).result.kind == "generator lost"


def test_generator_that_lost_almost_at_once_has_lost() -> None:
    generator = [1.1, 3.4, 5.0, 6.0, *[15.0] * 56]
    discriminator = [0.87, 0.09, 0.02, *[1e-3] * 45, 0.02, *[1e-5] * 11]
    columns = dict(zip(ADVERSARIES, (generator, discriminator), strict=True))
    assert diverged(columns, losses=ADVERSARIES).result.kind == "generator lost"


@pytest.mark.parametrize(
    ("reward", "kind", "status"), [(RISES, "earns", Status.OK), (LOST, "reward lost", Status.FIRED)]
)
def test_reward_is_judged_where_no_loss_is_recorded(reward: list[float], kind: str, status: Status) -> None:
    result = diverged({"episode_reward": reward, "episode_length": [9.0] * STEPS}, losses=()).result
    assert (result.kind, result.status) == (kind, status)


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        ([*[0.6] * 20, *[0.3] * 20, *[0.0] * 20], "zero"),
        ([*[0.6] * 56, *[0.0] * 4], "fine"),
        ([*[0.6] * 55, *[0.0] * 5], "zero"),
        ([*[0.6] * 20, *[0.03] * 20, *[0.0] * 20], "fine"),
        ([*[0.6] * 20, *[0.0] * 20, *[0.1] * 20], "fine"),
        ([0.0] * STEPS, "fine"),
    ],
)
def test_loss_that_jumps_to_zero_and_stays_is_nan(losses: list[float], kind: str) -> None:
    result = diverged({"loss": losses}).result
    assert result.kind == kind
    assert (result.status is Status.FIRED) is (kind == "zero")


@pytest.mark.parametrize(
    ("beside", "kind"),
    [
        ({"val_loss": 0.7}, "fine"),
        ({"val_loss": 0.0}, "zero"),
        ({"val_accuracy": 0.9}, "fine"),
        ({"val_accuracy": 0.5}, "zero"),
    ],
)
def test_loss_of_zero_is_fine_where_validation_works(beside: dict[str, float], kind: str) -> None:
    run = Run()
    collections = {"losses": ["loss", "val_loss"], "metrics": ["val_accuracy"]}
    for step in range(STEPS):
        loss = {"loss": [0.6 if step < 30 else 0.0]}
        run.add(2 * step, loss, mode=Mode.TRAIN, collections=collections, at=step)
        held = {name: [value] for name, value in beside.items()}
        run.add(2 * step + 1, held, mode=Mode.EVAL, collections=collections, at=step)
    assert observed("TrainingDiverged", run).result.kind == kind


def test_loss_of_zero_says_since_when_and_after_what() -> None:
    result = diverged({"loss": [*[0.6] * 40, *[0.0] * 20]}).result
    assert result.reason == (
        "Step 59: loss is exactly zero from step 40 to 59, 20 recorded values, after 0.6: a trainer that leaves out "
        "NaN writes zero."
    )
    assert result.onset == 1_040.0


def test_nan_goes_on_over_steps_that_do_not_record_it() -> None:
    run = Run()
    for step in range(8):
        run.add(2 * step, {"loss": [1.0 if step < 3 else math.nan]}, mode=Mode.TRAIN, at=step)
        run.add(2 * step + 1, {"val_loss": [1.0]}, mode=Mode.EVAL, at=step)
    outcome = observed("ExplodingTensor", run)
    assert outcome.result.status is Status.FIRED
    assert (outcome.steps, len(outcome.state.onsets)) == ([6, 8, 10, 12, 14], 1)


def test_nan_is_over_once_its_tensor_is_finite() -> None:
    run = Run()
    for step, loss in enumerate([1.0, math.nan, 1.0]):
        run.add(step, {"loss": [loss]}, mode=Mode.TRAIN, at=step)
    assert observed("ExplodingTensor", run).result.status is Status.OK


def test_reward_before_the_first_episode_is_no_explosion() -> None:
    run = Run()
    for step in range(6):
        run.add(step, {"rollout/ep_rew_mean": [math.nan if step < 3 else 1.0], "loss": [1.0]}, mode=Mode.TRAIN, at=step)
    assert observed("ExplodingTensor", run).steps == []
