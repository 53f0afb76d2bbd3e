"""What NotLearning may find."""

from enum import StrEnum


class LearningKind(StrEnum):
    """The outcomes of NotLearning."""

    LEARNS = "learns"
    WARM_UP = "warm-up"
    STANDS = "stands"
    CHANCE = "chance"
    LEVEL = "level"
    VALIDATION = "validation"
    UNSEEN = "unseen"
    STUCK = "stuck"
    NO_GAIN = "no gain"
    WORSENS = "worsens"
    JUMPS = "jumps"
    CAPPED = "capped"
    SLOW = "slow"


NOTHING_LEARNED = (LearningKind.STANDS, LearningKind.CHANCE, LearningKind.LEVEL, LearningKind.STUCK)
"""From the first step on such a run computed nothing of use."""
