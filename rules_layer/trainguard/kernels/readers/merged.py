"""Ranks that a tool joined in one Chrome trace: their processes are named, their numbers collide.

SGLang's ``profile_merger`` writes ``[TP00] 10`` where a rank's own trace has the process 10.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from trainguard.kernels.columns import Ints

_LABEL = re.compile(r"\s*(\[[^\]]{1,100}\]|(?:rank|[tdpe]p)[\W_]{0,3}\d{1,9})(?!\d)", re.IGNORECASE)
# Between the numbers of two ranks: their own are below it.
_APART = 1 << 44

MOST_RANKS = 4_096


class MergedRanks:
    """Tells the ranks of a trace apart; ``tally`` counts ``merged_ranks``, if there are several.

    ``mixed_processes`` are several that launch work and have no labels. Their numbers of launches are the same, so
    whose work it is stays unknown.
    """

    def __init__(self, tally: Counter[str]) -> None:
        self._tally = tally
        self._places: dict[str, int] = {}
        self._devices: dict[tuple[int, int], int] = {}
        self._launching: set[str] = set()

    def launch(self, processes: Sequence[Any]) -> None:
        if len(self._launching) < MOST_RANKS:
            self._launching.update(str(each) for each in distinct(processes) if type(each) in (int, str))

    def count_mixed(self) -> None:
        if len(self._places) < 2 and len(self._launching) > 1:
            self._tally["mixed_processes"] = len(self._launching)

    def places(self, processes: Sequence[Any]) -> Ints | None:
        """Return each row's rank by its place in the trace; None where the processes are those of one rank."""
        for text in sorted(each for each in distinct(processes) if type(each) is str):
            label = _LABEL.match(text)
            if label and len(self._places) < MOST_RANKS:
                self._places.setdefault(label[1], len(self._places))
        if len(self._places) < 2:
            return None
        self._tally["merged_ranks"] = len(self._places)
        return np.array([self._place(each) for each in processes], dtype=np.int64)

    def _place(self, process: Any) -> int:
        label = _LABEL.match(process) if type(process) is str else None
        return self._places.get(label[1], 0) if label else 0

    def lanes(self, places: Ints, lanes: Sequence[Any]) -> list[Any]:
        names = list(self._places)
        return [f"{names[at]} {lane}" for at, lane in zip(places.tolist(), lanes, strict=True)]

    def devices(self, places: Ints, devices: Ints) -> Ints:
        """Return numbers of GPUs of which no two ranks have the same."""
        return np.array([self._device(*each) for each in zip(places.tolist(), devices.tolist(), strict=True)])

    def _device(self, place: int, device: int) -> int:
        if device < 0:
            return device
        known = self._devices.get((place, device))
        if known is None:
            taken = set(self._devices.values())
            known = device if device not in taken else max(taken) + 1
            self._devices[place, device] = known
        return known


def distinct(values: Sequence[Any]) -> set[Any]:
    """Return values without those that cannot be keys."""
    try:
        return set(values)
    except TypeError:
        return {each for each in values if isinstance(each, Hashable)}


def apart(numbers: Ints, places: Ints) -> Ints:
    """Return numbers that no two ranks share; what is unknown stays so."""
    fits = (numbers > 0) & (numbers < _APART)
    return np.where(fits, numbers + places * _APART, numbers)
