"""What a run minimises, by the names that trainers write."""

import pytest

from trainguard.formats.tensors.scalars.objective import Objective, Signal, objective_of, signal_of

OF_POLICY = [Signal.REWARD, Signal.KL]


@pytest.mark.parametrize(
    ("signals", "has_labels", "expected"),
    [
        ([], True, Objective.SUPERVISED),
        ([Signal.REWARD], False, Objective.REINFORCEMENT),
        ([Signal.REWARD], True, Objective.SUPERVISED),
        ([Signal.REWARD, Signal.EPISODE], True, Objective.REINFORCEMENT),
        (OF_POLICY, True, Objective.REINFORCEMENT),
        ([Signal.EPISODE], False, Objective.SUPERVISED),
        ([Signal.EPISODE, Signal.VALUE_LOSS], False, Objective.REINFORCEMENT),
        ([Signal.POLICY_LOSS, Signal.VALUE_LOSS], False, Objective.REINFORCEMENT),
        ([Signal.POLICY_LOSS], False, Objective.SUPERVISED),
        ([Signal.ENTROPY], False, Objective.SUPERVISED),
        ([Signal.CHOSEN, Signal.REJECTED, Signal.KL], False, Objective.PREFERENCE),
        ([Signal.CHOSEN, Signal.REJECTED, *OF_POLICY], False, Objective.REINFORCEMENT),
        ([Signal.CHOSEN], False, Objective.SUPERVISED),
        ([Signal.GENERATOR], False, Objective.SUPERVISED),
        ([Signal.GENERATOR, Signal.VALUE_LOSS], False, Objective.ADVERSARIAL),
        ([Signal.KL], False, Objective.SUPERVISED),
        ([Signal.KL, Signal.RECONSTRUCTION], False, Objective.VARIATIONAL),
        ([Signal.CONTRASTIVE, Signal.OWN_TARGETS], False, Objective.OWN_TARGETS),
    ],
)
def test_signals_together_give_the_objective(signals: list[Signal], has_labels: bool, expected: Objective) -> None:
    assert objective_of(signals, has_labels=has_labels) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rollout/ep_rew_mean", Signal.REWARD),
        ("rewards/accuracy_reward", Signal.REWARD),
        ("reward_std", None),
        ("rewards/accuracies", None),
        ("return_loss", None),
        ("portfolio_return", None),
        ("eval/mean_return", Signal.REWARD),
        ("avg_return", Signal.REWARD),
        ("rollout/return", Signal.REWARD),
        ("train/approx_kl", Signal.KL),
        ("cur_kl_coeff", None),
        ("train/entropy_loss", Signal.ENTROPY),
        ("cross_entropy", None),
        ("binary_crossentropy", None),
        ("PolicyLoss", Signal.POLICY_LOSS),
        ("weird", None),
        ("", None),
        ("reward" * 200, None),
    ],
)
def test_a_name_says_what_its_scalar_measures(name: str, expected: Signal | None) -> None:
    assert signal_of(name) is expected
