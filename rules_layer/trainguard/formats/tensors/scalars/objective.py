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
    """What a scalar measures that says which kind of training wrote it."""

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


class Objective(StrEnum):
    """What is minimised, in words; a critic beside a generator is its discriminator."""

    SUPERVISED = "supervised"
    PREFERENCE = "preference"
    REINFORCEMENT = "reinforcement learning"
    ADVERSARIAL = "adversarial training"

    @property
    def loss_has_to_fall(self) -> bool:
        """Whether a loss that does not fall is a fault: that of a policy may rise while its reward does."""
        return self in (Objective.SUPERVISED, Objective.PREFERENCE)


_SETTINGS = frozenset({"coef", "coeff", "coefficient", "target", "weight", "beta", "range", "scale", "schedule"})
"""Words of what is set, not measured: ``kl_coef``, ``clip_range``, ``target_kl``."""

_SPREADS = frozenset(
    {"std", "min", "max", "var", "variance", "accuracy", "accuracies", "acc", "margin", "margins", "loss"}
)
"""Last words of names of a reward that are not of its level."""

_PHRASES: tuple[tuple[Signal, tuple[str, ...]], ...] = (
    (Signal.CHOSEN, ("chosen",)),
    (Signal.REJECTED, ("rejected",)),
    (Signal.CLIPPED, ("clipfrac", "clip frac", "clip fraction", "clip ratio")),
    (Signal.ADVANTAGE, ("advantage", "advantages")),
    (Signal.KL, ("kl", "approxkl", "kld", "kl div", "kldiv")),
    (Signal.ENTROPY, ("entropy",)),
    (Signal.POLICY_LOSS, ("policy loss", "policy gradient loss", "pg loss", "actor loss", "loss policy", "actor pg")),
    (
        Signal.VALUE_LOSS,
        ("value loss", "vf loss", "value function loss", "critic loss", "td loss", "qf loss", "q loss", "loss value"),
    ),
    (
        Signal.REWARD,
        ("reward", "rewards", "ep rew", "episodic return", "episode return", "average return", "mean return",
         "cumulative reward", "rlhf reward", "critic score"),
    ),
    (
        Signal.GENERATOR,
        ("g loss", "loss g", "gen loss", "generator loss", "loss generator", "err g", "generator", "g gan"),
    ),
    (
        Signal.DISCRIMINATOR,
        ("d loss", "loss d", "disc loss", "discriminator loss", "loss discriminator", "err d", "discriminator",
         "d real", "d fake"),
    ),
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
        if is_set and signal in (Signal.KL, Signal.ENTROPY, Signal.CLIPPED, Signal.REWARD):
            return None
        if (cross and signal is Signal.ENTROPY) or (signal is Signal.REWARD and words[-1] in _SPREADS):
            continue
        return signal
    return None


def objective_of(signals: Collection[Signal]) -> Objective:
    """Return what a run minimises of which scalars measure these."""
    found = set(signals)
    if Signal.GENERATOR in found and not {Signal.DISCRIMINATOR, Signal.VALUE_LOSS}.isdisjoint(found):
        return Objective.ADVERSARIAL
    if {Signal.CHOSEN, Signal.REJECTED} <= found:
        return Objective.PREFERENCE
    of_policy = {Signal.CLIPPED, Signal.KL, Signal.ENTROPY, Signal.VALUE_LOSS} & found
    if Signal.REWARD in found or Signal.ADVANTAGE in found or (Signal.POLICY_LOSS in found and of_policy):
        return Objective.REINFORCEMENT
    return Objective.SUPERVISED
