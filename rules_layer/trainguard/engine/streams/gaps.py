"""What a job did not show: nodes without samples, time without samples, objects that could not be read."""

from dataclasses import dataclass
from enum import StrEnum


class GapKind(StrEnum):
    """What is missing."""

    SILENT = "silent"
    """The node wrote nothing."""

    STOPPED = "stopped"
    """The node stopped writing long before the others."""

    NO_SAMPLES = "no samples"
    """Too much of the node's time has no samples."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that nobody saw: a fault could hide in it.

    Attributes
    ----------
    kind : GapKind
    node : str
    seconds, of_s : float
        For how long, of how long; 0 where that is not known.
    spans : tuple of (float, float)
        The newest times of it, epoch seconds.
    """

    kind: GapKind
    node: str
    seconds: float = 0.0
    of_s: float = 0.0
    spans: tuple[tuple[float, float], ...] = ()
