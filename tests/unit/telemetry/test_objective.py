"""What a run minimises, by the names that trainers write."""

import pytest

from trainguard.formats.tensors.scalars.objective import Objective, Signal, objective_of, signal_of

TRAINERS = {
    "Stable Baselines 3": (
        Objective.REINFORCEMENT,
        "rollout/ep_rew_mean train/approx_kl train/clip_fraction train/clip_range train/loss train/entropy_loss",
    ),
    "CleanRL": (
        Objective.REINFORCEMENT,
        "charts/episodic_return charts/SPS losses/value_loss losses/policy_loss losses/entropy losses/clipfrac",
    ),
    "CleanRL without a return": (Objective.REINFORCEMENT, "losses/value_loss losses/policy_loss losses/clipfrac"),
    "RLlib": (
        Objective.REINFORCEMENT,
        "env_runners/episode_return_mean info/learner/default_policy/learner_stats/kl info/learner/lr",
    ),
    "ML-Agents": (Objective.REINFORCEMENT, "Environment/Cumulative_Reward Losses/Policy_Loss Policy/Entropy"),
    "TRL GRPO": (Objective.REINFORCEMENT, "loss reward reward_std kl completion_length grad_norm rewards/format/mean"),
    "TRL PPO": (Objective.REINFORCEMENT, "objective/kl objective/rlhf_reward loss/policy_avg loss/value_avg"),
    "verl": (Objective.REINFORCEMENT, "actor/pg_loss actor/ppo_kl actor/pg_clipfrac critic/score/mean critic/vf_loss"),
    "TRL DPO": (Objective.PREFERENCE, "loss rewards/chosen rewards/rejected rewards/accuracies rewards/margins"),
    "TRL reward model": (Objective.SUPERVISED, "loss eval_loss eval_accuracy reward_accuracy"),
    "pix2pix": (Objective.ADVERSARIAL, "G_GAN G_L1 D_real D_fake"),
    "DCGAN": (Objective.ADVERSARIAL, "errD errG"),
    "Wasserstein": (Objective.ADVERSARIAL, "critic_loss generator_loss"),
    "StyleGAN": (Objective.ADVERSARIAL, "Loss/G/loss Loss/D/loss"),
    "variational autoencoder": (Objective.SUPERVISED, "loss recon_loss kl_loss"),
    "Keras": (Objective.SUPERVISED, "loss val_loss categorical_crossentropy val_accuracy learning_rate"),
    "XGBoost": (Objective.SUPERVISED, "train-logloss validation-logloss validation-auc"),
    "settings alone": (Objective.SUPERVISED, "loss train/ent_coef train/kl_coef train/target_kl train/clip_range"),
    "a generator alone": (Objective.SUPERVISED, "loss generator_loss"),
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_trainers_names_give_their_objective(trainer: str) -> None:
    expected, names = TRAINERS[trainer]
    signals = [signal for name in names.split() if (signal := signal_of(name)) is not None]
    assert objective_of(signals) is expected


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


def test_only_labels_and_preferences_ask_the_loss_to_fall() -> None:
    assert [each for each in Objective if each.loss_has_to_fall] == [Objective.SUPERVISED, Objective.PREFERENCE]
