"""What a run minimises, from all names of its scalars together: a loss of labels, or one whose level says little.

The words of a name are those between other characters, cut at capitals too: ``Losses/PolicyLoss`` has ``losses``,
``policy`` and ``loss``. Which trainer writes which names is in ``docs/formats-tensors.md``.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
_LONGEST_NAME = 500


class Signal(StrEnum):
    REWARD = "reward"
    KL = "kl"
    ENTROPY = "entropy"
    CLIPPED = "clipped"
    ADVANTAGE = "advantage"
    POLICY_LOSS = "policy loss"
    VALUE_LOSS = "value loss"
    CHOSEN = "chosen"
    REJECTED = "rejected"
    GENERATOR = "generator"
    DISCRIMINATOR = "discriminator"
    EPISODE = "episode"
    RECONSTRUCTION = "reconstruction"
    CONTRASTIVE = "contrastive"
    OWN_TARGETS = "own targets"
    VALUE_FIT = "fit of the value"


class Objective(StrEnum):
    """What is minimised, in words; a critic beside a generator is its discriminator."""

    SUPERVISED = "supervised"
    PREFERENCE = "preference"
    REINFORCEMENT = "reinforcement learning"
    ADVERSARIAL = "adversarial training"
    CONTRASTIVE = "contrastive learning"
    OWN_TARGETS = "self-supervised learning"
    VARIATIONAL = "variational inference"

    @property
    def loss_has_to_fall(self) -> bool:
        """Whether a loss that does not fall is a fault: that of a policy may rise while its reward does.

        The targets of self-supervised learning without negatives are the model's own: they move with it.
        """
        return self not in (Objective.REINFORCEMENT, Objective.ADVERSARIAL, Objective.OWN_TARGETS)

    @property
    def level_means_something(self) -> bool:
        """Whether the level of a loss says how good a model is: contrasts get harder, and weights of a part grow."""
        return self in (Objective.SUPERVISED, Objective.PREFERENCE)


# Words of what is set, not measured: ``kl_coef``, ``clip_range``, ``target_kl``.
_SETTINGS = frozenset(
    {"coef", "coeff", "coefficient", "target", "weight", "beta", "range", "scale", "schedule", "anneal", "annealing"}
)

# Last words of names of a reward that are not of its level.
_SPREADS = frozenset(
    {"std", "min", "max", "var", "variance", "accuracy", "accuracies", "acc", "margin", "margins", "loss"}
)

# Signals whose settings are logged under their names.
_SET = (Signal.KL, Signal.ENTROPY, Signal.CLIPPED, Signal.REWARD, Signal.OWN_TARGETS)

_PHRASES: tuple[tuple[Signal, tuple[str, ...]], ...] = (
    (Signal.CHOSEN, ("chosen",)),
    (Signal.REJECTED, ("rejected", "reject")),
    (Signal.CLIPPED, ("clipfrac", "clip frac", "clip fraction", "clip ratio")),
    (Signal.ADVANTAGE, ("advantage", "advantages")),
    (Signal.KL, ("kl", "approxkl", "kld", "kl div", "kldiv")),
    (Signal.ENTROPY, ("entropy", "entropies")),
    (
        Signal.POLICY_LOSS,
        ("policy loss", "policy gradient loss", "pg loss", "actor loss", "loss policy", "actor pg", "loss pi",
         "pi loss", "loss actor"),
    ),
    (
        Signal.VALUE_LOSS,
        ("value loss", "vf loss", "value function loss", "critic loss", "td loss", "qf loss", "q loss", "loss value",
         "loss q", "loss v", "loss critic", "td error"),
    ),
    (
        Signal.REWARD,
        ("reward", "rewards", "ep rew", "ep ret", "episodic return", "episode return", "episode score",
         "average return", "average returns", "avg return", "avg returns", "return average", "return avg",
         "rollout return", "eval return", "test return", "mean return", "mean returns", "return mean",
         "returns mean", "cumulative reward", "rlhf reward", "critic score", "eprewmean"),
    ),
    (Signal.VALUE_FIT, ("explained variance", "vf explained var", "explained var")),
    (
        Signal.EPISODE,
        ("ep len", "ep length", "eplenmean", "episode len", "episode length", "episode lengths", "episodic length",
         "episode duration", "episodes", "rollout", "rollouts", "env runners", "completion", "completions",
         "response length", "sps", "epsilon", "exploration rate"),
    ),
    (
        Signal.GENERATOR,
        ("g loss", "loss g", "gen loss", "generator loss", "loss generator", "loss gen", "err g", "generator", "g gan",
         "adv loss", "loss adv", "adversarial loss", "adversarial"),
    ),
    (
        Signal.DISCRIMINATOR,
        ("d loss", "loss d", "disc loss", "discloss", "discriminator loss", "loss discriminator", "loss disc", "err d",
         "discriminator", "d real", "d fake"),
    ),
    (Signal.RECONSTRUCTION, ("recon", "recons", "reconstruction", "rec loss", "elbo", "nelbo")),
    (
        Signal.OWN_TARGETS,
        ("byol", "simsiam", "dino", "ibot", "koleo", "barlow", "vicreg", "swav", "moco", "jepa", "neg cos sim",
         "teacher temp"),
    ),
    (Signal.CONTRASTIVE, ("nce", "infonce", "contrastive", "ntxent", "nt xent", "simclr", "logit scale")),
)  # fmt: skip


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case; of one longer than 500 characters those of its end."""
    return [word.lower() for word in _WORD.findall(name[-_LONGEST_NAME:])]


@lru_cache(maxsize=4_096)
def signal_of(name: str) -> Signal | None:
    """Return what a scalar measures, by the first phrase whose words are in its name in a row; None of any other."""
    words = words_of(name)
    said = f" {' '.join(words)} "
    is_set = not _SETTINGS.isdisjoint(words)
    cross = " cross entropy " in said or " crossentropy " in said
    for signal, phrases in _PHRASES:
        if not any(f" {phrase} " in said for phrase in phrases):
            continue
        if is_set and signal in _SET:
            return None
        if (cross and signal is Signal.ENTROPY) or (signal is Signal.REWARD and words[-1] in _SPREADS):
            continue
        return signal
    return None


_OF_A_POLICY = frozenset({Signal.CLIPPED, Signal.KL, Signal.ENTROPY, Signal.VALUE_LOSS, Signal.POLICY_LOSS})


def objective_of(signals: Collection[Signal], *, has_labels: bool = False) -> Objective:
    """Return what a run minimises of which scalars measure these.

    A reward alone, beside a loss of validation or an accuracy (``has_labels``), is a column of a supervised run.
    """
    found = set(signals)
    if Signal.GENERATOR in found and not {Signal.DISCRIMINATOR, Signal.VALUE_LOSS}.isdisjoint(found):
        return Objective.ADVERSARIAL
    if {Signal.CHOSEN, Signal.REJECTED} <= found and Signal.REWARD not in found:
        return Objective.PREFERENCE
    if _is_of_policy(found, has_labels=has_labels):
        return Objective.REINFORCEMENT
    if Signal.OWN_TARGETS in found:
        return Objective.OWN_TARGETS
    if Signal.CONTRASTIVE in found:
        return Objective.CONTRASTIVE
    return Objective.VARIATIONAL if {Signal.KL, Signal.RECONSTRUCTION} <= found else Objective.SUPERVISED


def _is_of_policy(found: set[Signal], *, has_labels: bool) -> bool:
    of_policy = _OF_A_POLICY & found
    acts = Signal.ADVANTAGE in found or (Signal.EPISODE in found and bool(of_policy))
    learns = Signal.POLICY_LOSS in found and len(of_policy) > 1
    rewarded = Signal.REWARD in found and (bool(of_policy) or Signal.EPISODE in found or not has_labels)
    return acts or learns or rewarded
