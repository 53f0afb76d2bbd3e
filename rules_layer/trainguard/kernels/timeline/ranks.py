"""The timelines of several ranks, bounded all together."""

from collections.abc import Sequence

from trainguard.kernels.columns import Trace
from trainguard.kernels.document import RankProfile
from trainguard.kernels.timeline.build import MOST_ROWS, Timeline, timeline_of

MOST_RANKS = 8


class DrawnRanks:
    """Collects the timelines of the first ranks of a place, which share the rows that a page may hold.

    Parameters
    ----------
    ranks : int
        How many there are.
    """

    def __init__(self, ranks: int) -> None:
        self._most_rows = MOST_ROWS // min(max(ranks, 1), MOST_RANKS)
        self._drawn: list[tuple[RankProfile, Timeline]] = []

    def add(self, profile: RankProfile, trace: Trace) -> None:
        """Add a rank; those beyond the most that are drawn are left out."""
        if len(self._drawn) < MOST_RANKS:
            self._drawn.append((profile, timeline_of(trace, self._most_rows)))

    def in_order(self) -> Sequence[tuple[RankProfile, Timeline]]:
        """Return the ranks with their timelines, as a document orders them."""
        return sorted(self._drawn, key=lambda each: (each[0].rank is None, each[0].rank or 0, each[0].trace))
