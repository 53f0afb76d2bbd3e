"""What sources of scalars record at a step, and when such a step is complete.

A source writes the scalars of a step one after another. Its step is complete when the source writes a later one, or
when it ends. Steps of one mode come in their order. A step that repeats an earlier one, as after a restart from a
checkpoint, is dropped and counted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from trainguard.tensors.recent import MOST_OF_A_SET, forget
from trainguard.tensors.scalars.names import ScalarNames
from trainguard.tensors.step_view import Mode

MOST_SCALARS = 2_000
"""Scalars of one step that are used; more are counted."""

MOST_SOURCES = 64
MOST_PAST_ROWS = MOST_OF_A_SET
MOST_PAST_VALUES = 4_096
LARGEST_STEP = 2**53
_ORDER = {Mode.TRAIN: 0, Mode.EVAL: 1, Mode.PREDICT: 2, Mode.GLOBAL: 3}


@dataclass(frozen=True, slots=True)
class Recording:
    """What a source recorded at a step by name, and when, epoch seconds; ``timed`` as in `ScalarRow`."""

    step: int
    at: float
    values: Mapping[str, float]
    timed: bool = True


class ScalarRow(msgspec.Struct, array_like=True):
    """The scalars of one step and mode by name; ``at`` is when the first was saved, epoch seconds.

    ``timed`` says that the source says so of the step; else ``at`` is when the file was saved.
    """

    step: int
    mode: Mode
    at: float
    values: dict[str, float]
    timed: bool = True

    def join(self, other: "ScalarRow") -> None:
        """Take in what another source recorded at the same step; a time of the step goes before one of a file."""
        self.values.update(other.values)
        if self.timed == other.timed:
            self.at = min(self.at, other.at)
        elif other.timed:
            self.at, self.timed = other.at, True


class ScalarRows(msgspec.Struct):
    """The steps of a run's scalar sources; its fields are what is stored.

    ``newest`` is the last step that was handed out, by source and mode, ``open`` what is not complete yet. ``dropped``
    counts scalars of steps that came again, ``refused`` those of more sources or names than are used.
    """

    newest: dict[str, dict[Mode, int]] = msgspec.field(default_factory=dict)
    open: dict[str, list[ScalarRow]] = msgspec.field(default_factory=dict)
    dropped: int = 0
    refused: int = 0

    def add(self, source: str, recording: Recording, names: ScalarNames, *, folder: str = "") -> list[ScalarRow]:
        """Take what a source recorded at a step; return the steps that are complete by this, in order.

        Parameters
        ----------
        source : str
            A file, or the folder of several that follow each other.
        recording : Recording
        names : ScalarNames
        folder : str
            The folder of the source, which may say the mode.
        """
        if source not in self.newest:
            if len(self.newest) >= MOST_SOURCES:
                self.refused += len(recording.values)
                return []
            self.newest[source] = {}
        complete = self._close(source, before=recording.step)
        by_mode: dict[Mode, dict[str, float]] = {}
        for name, value in recording.values.items():
            mode = names.mode(name, folder)
            if mode is not None:
                by_mode.setdefault(mode, {})[name] = value
        for mode, found in by_mode.items():
            self._put(source, ScalarRow(recording.step, mode, recording.at, found, recording.timed))
        return complete

    def finish(self, source: str | None = None) -> list[ScalarRow]:
        """Return the steps of a source, or of all, that wait for a later one: there is none."""
        sources = list(self.open) if source is None else [source]
        return in_order(row for each in sources for row in self._close(each, before=None))

    def _put(self, source: str, row: ScalarRow) -> None:
        rows = self.open.setdefault(source, [])
        same = next((each for each in rows if each.mode == row.mode), None)
        if same is None and row.step > self.newest[source].get(row.mode, -1):
            rows.append(same := ScalarRow(row.step, row.mode, row.at, {}, row.timed))
        if same is None or same.step != row.step:
            self.dropped += len(row.values)
            return
        for name, value in row.values.items():
            if len(same.values) < MOST_SCALARS or name in same.values:
                same.values[name] = value
            else:
                self.refused += 1

    def _close(self, source: str, *, before: int | None) -> list[ScalarRow]:
        rows = self.open.get(source, [])
        complete = [row for row in rows if before is None or row.step < before]
        if complete:
            self.open[source] = [row for row in rows if before is not None and row.step >= before]
            for row in complete:
                self.newest[source][row.mode] = row.step
        return sorted(complete, key=_place)


def in_order(rows: Iterable[ScalarRow]) -> list[ScalarRow]:
    """Return rows in the order of their steps, training before evaluation; rows of one step and mode are joined."""
    joined: dict[tuple[int, Mode], ScalarRow] = {}
    for row in rows:
        known = joined.get((row.step, row.mode))
        if known is None:
            joined[row.step, row.mode] = ScalarRow(row.step, row.mode, row.at, dict(row.values), row.timed)
        else:
            known.join(row)
    return sorted(joined.values(), key=_place)


def _place(row: ScalarRow) -> tuple[int, int]:
    return row.step, _ORDER[row.mode]


class ScalarHistory(msgspec.Struct):
    """Past rows, for `ScalarStep.earlier`: the last 64 of each mode and set of scalars, with at most 4,096 numbers.

    At most 256 rows in all.
    """

    rows: list[ScalarRow] = msgspec.field(default_factory=list)

    def add(self, row: ScalarRow) -> None:
        """Remember a row; older ones of the largest set are forgotten."""
        self.rows.append(row)
        self.shorten(MOST_PAST_ROWS)

    def shorten(self, most: int) -> bool:
        """Forget all but the newest ``most`` rows of each mode and set of scalars; return whether any was."""
        before = len(self.rows)
        forget(self.rows, lambda each: (each.mode, frozenset(each.values)), _has_too_many_values, most=most)
        return len(self.rows) < before

    def before(self, row: ScalarRow) -> Iterator[ScalarRow]:
        """Iterate over the rows of the same mode and an earlier step, the newest first."""
        return (each for each in reversed(self.rows) if each.mode == row.mode and each.step < row.step)


def _has_too_many_values(rows: list[ScalarRow]) -> bool:
    return sum(len(each.values) for each in rows) > MOST_PAST_VALUES
