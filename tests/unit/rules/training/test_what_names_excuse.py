"""Which curves are a fault depends on what is recorded beside them: errors, margins, rewards, and parts of a loss."""

from collections.abc import Mapping, Sequence

import pytest

from tests.training.recorded.scoring import fired, steps_of

STEPS = 40
STANDS = [0.7 + 0.01 * (-1) ** place for place in range(STEPS)]
FALLS = [1.0 / (1.0 + 0.2 * place) for place in range(STEPS)]
RISES = [0.1 + 0.1 * place for place in range(STEPS)]
GONE = [*FALLS[:25], *[0.7] * 15]
SLIDES = [0.8 - 0.005 * place for place in range(STEPS)]
GAINS = [min(0.9, 0.5 + 0.02 * place) for place in range(STEPS)]
LOST = "TrainingDiverged:lost"

Columns = Mapping[str, Sequence[float]]


def finding(columns: Columns) -> str:
    """Return which rules fire on a run that has ended, with their kinds."""
    return " ".join(f"{rule}:{answer.kind}" for rule, (_, answer) in fired(list(steps_of(columns))).items())


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"loss": STANDS}, "NotLearning:stands"),
        ({"loss": STANDS, "eval_wer": SLIDES}, ""),
        ({"loss": STANDS, "eval_wer": STANDS}, "NotLearning:stands"),
        ({"loss": STANDS, "eval_wer": [0.8, 0.7, 0.7]}, ""),
        ({"loss": STANDS, "rewards/chosen": STANDS, "rewards/rejected": STANDS}, "NotLearning:stands"),
        ({"loss": STANDS, "rewards/chosen": RISES, "rewards/rejected": STANDS, "rewards/margins": RISES}, ""),
        ({"valid_0's l2": STANDS}, "NotLearning:stands"),
        ({"valid_0's l2": SLIDES}, ""),
        ({"valid_0's auc": [0.5 + 0.01 * place for place in range(STEPS)], "valid_0's l2": STANDS}, ""),
    ],
)
def test_error_or_margin_that_improves_is_evidence(columns: Columns, found: str) -> None:
    assert finding(columns) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"loss": RISES, "val_loss": RISES}, "TrainingDiverged:blown up NotLearning:stands"),
        ({"loss": RISES, "val_loss": RISES, "reward": STANDS}, "TrainingDiverged:blown up NotLearning:stands"),
        ({"loss": RISES, "reward": STANDS}, ""),
        ({"loss": RISES, "val_loss": RISES, "reward": STANDS, "kl": STANDS}, ""),
        ({"loss": GONE, "accuracy": STANDS, "mean_reward": STANDS}, "TrainingDiverged:lost"),
    ],
)
def test_supervised_run_with_a_reward_is_judged_by_its_loss(columns: Columns, found: str) -> None:
    assert finding(columns) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"train_nce_loss": RISES}, ""),
        ({"train_nce_loss": STANDS}, "NotLearning:stands"),
        ({"train_nce_loss": [*RISES[:10], *[1.0 - place / 40 for place in range(30)]]}, ""),
        ({"train_nce_loss": GONE}, "TrainingDiverged:lost"),
        ({"dino_loss": RISES}, ""),
        ({"loss": GONE, "recon_loss": FALLS, "kl_loss": RISES}, ""),
        ({"loss": GONE, "recon_loss": GONE, "kl_loss": RISES}, "TrainingDiverged:lost"),
        ({"recon_loss": FALLS, "kl_loss": RISES}, ""),
        ({"ce_loss": GONE, "load_balancing_loss": STANDS}, "TrainingDiverged:lost"),
        ({"loss": FALLS, "loss-scale": [1.0] * 20 + [65_536.0] * 20}, ""),
        ({"train/cross_entropy": GONE}, "TrainingDiverged:lost"),
    ],
)
def test_part_that_may_grow_is_no_fault_alone(columns: Columns, found: str) -> None:
    assert finding(columns) == found


PAIRS = {"rewards/chosen": STANDS, "rewards/rejected": STANDS}


@pytest.mark.parametrize(
    ("beside", "found"), [({}, "NotLearning:chance"), (PAIRS, ""), ({"logit_scale": [14.0] * STEPS}, "")]
)
def test_chance_needs_the_cross_entropy_of_its_accuracy(beside: Columns, found: str) -> None:
    loss = [0.693 - 0.002 * place for place in range(STEPS)]
    assert finding({"loss": loss, "mean_token_accuracy": [0.13, 0.12] * 20, **beside}) == found


EARLY = [1.0, 0.95, 0.9, *[0.9 + 0.002 * (-1) ** place for place in range(STEPS - 3)]]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"loss": EARLY}, "Plateau:plateau"),
        ({"loss": EARLY, "eval_wer": STANDS}, "Plateau:plateau"),
        ({"loss": EARLY, "eval_wer": SLIDES}, ""),
    ],
)
def test_error_that_still_falls_is_no_plateau(columns: Columns, found: str) -> None:
    assert finding(columns) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"loss": GONE, "accuracy": GAINS}, ""),
        ({"loss": GONE, "rewards/accuracies": GAINS, "rewards/chosen": STANDS, "rewards/rejected": STANDS}, LOST),
    ],
)
def test_right_order_does_not_excuse_a_rise(columns: Columns, found: str) -> None:
    assert finding(columns) == found


@pytest.mark.parametrize(
    ("beside", "found"),
    [({}, "GradientNormDrift:grows"), ({"reward": STANDS, "kl": STANDS}, ""), ({"D_loss": STANDS}, "")],
)
def test_norm_that_drifts_beside_a_moving_target_is_silent(beside: Columns, found: str) -> None:
    norms = [10.0 ** (place / 8.0) for place in range(STEPS)]
    loss = {"G_loss" if "D_loss" in beside else "loss": [1.0 - 0.004 * place for place in range(STEPS)]}
    assert finding({**loss, "grad_norm": norms, **beside}) == found


def test_error_that_reaches_zero_is_no_nan() -> None:
    assert finding({"train-merror": [*[0.3] * 5, *[0.1] * 10, *[0.0] * 25]}) == ""


@pytest.mark.parametrize("name", ["rollout/ep_len_mean", "train/explained_variance", "losses/explained_variance"])
def test_mean_without_an_episode_is_no_explosion(name: str) -> None:
    assert finding({"train/value_loss": STANDS, "rollout/ep_rew_mean": STANDS, name: [float("nan")] * 10}) == ""
