"""Which traces are compared where a rank has several: those of one window of the profiler."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainguard.kernels.document import RankProfile

WINDOW_NS = 300 * 1_000_000_000
"""So long after its first trace a window's others begin, as those of a capture in the stack."""


@dataclass
class _Window:
    """Traces of different ranks, by their places."""

    first_ns: int
    places: dict[int, int] = field(default_factory=dict)


def compared_places(ranks: Sequence[RankProfile]) -> list[int]:
    """Return the places of the traces that are compared, at most one of each rank.

    A trace that is cut off and has no whole step is none of them. Where a rank has several traces, those of the window
    that most ranks have are taken, and of several such windows the first.
    """
    whole = [place for place, rank in enumerate(ranks) if rank.quality.is_whole]
    named = [place for place in whole if ranks[place].rank is not None]
    if len({ranks[place].rank for place in named}) == len(named):
        return whole
    chosen = max(_windows(ranks, named), key=lambda window: len(window.places))
    return sorted({*chosen.places.values(), *(place for place in whole if ranks[place].rank is None)})


def _windows(ranks: Sequence[RankProfile], places: Sequence[int]) -> list[_Window]:
    """Return the windows in order of time: a trace joins the first open one that is behind its rank's last."""
    windows: list[_Window] = []
    last: dict[int, int] = {}
    for place in sorted(places, key=lambda each: (_start(ranks[each]), ranks[each].trace)):
        rank, start = ranks[place].rank or 0, _start(ranks[place])
        number = last.get(rank, -1) + 1
        while number < len(windows) and windows[number].first_ns < start - WINDOW_NS:
            number += 1
        if number == len(windows):
            windows.append(_Window(start))
        windows[number].places[rank] = place
        last[rank] = number
    return windows


def _start(rank: RankProfile) -> int:
    return rank.start_unix_ns or 0
