"""What TrainingDiverged may find."""

from enum import StrEnum


class DivergedKind(StrEnum):
    """The outcomes of TrainingDiverged."""

    FINE = "fine"
    NOT_FINITE = "not finite"
    WAS_NOT_FINITE = "was not finite"
    LOST = "lost"
    BLOWN_UP = "blown up"
    EXPLODED = "exploded"
    UNBOUNDED = "unbounded"
    SCORE_LOST = "score lost"
