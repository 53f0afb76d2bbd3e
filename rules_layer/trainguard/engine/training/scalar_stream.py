"""What is stored of a job's files of scalars: how far each was read, and what waits."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from trainguard.engine.training.stream import StepsState
from trainguard.formats.tensors.scalars.names import LOSSES, ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarHistory, ScalarRow, ScalarRows
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.step_words import FoundScalars

MODE_PLACES = {Mode.TRAIN: 0, Mode.EVAL: 1, Mode.PREDICT: 2, Mode.GLOBAL: 3}
SHORTENED = "degraded_to_short_history"
MOST_NAMES, MOST_LOSSES = 12, 4

_SHORT = 4
"""Rows of each set of scalars."""


class FileState(msgspec.Struct, array_like=True):
    """How far a file was read.

    ``taken`` counts bytes of an event file, and rows of any other. ``size`` and ``modified_s`` (epoch seconds) are of
    the version that was read last; ``broken`` says that nothing behind ``taken`` can be read. From step ``until`` on it
    is of an older run; None for the newest.
    """

    source: str
    taken: int = 0
    size: int = 0
    modified_s: float = 0.0
    broken: bool = False
    bad: int = 0
    until: int | None = None


class ScalarState(StepsState, kw_only=True):
    """What is stored of files of scalars.

    ``rows`` are the steps that their sources have not completed, ``held`` those that wait for another source.
    ``mode_place`` is the place of the newest step's mode among those of its number. What fires before step ``repeated``
    has fired before. ``names`` has one name more than people are shown.
    """

    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    rows: ScalarRows = msgspec.field(default_factory=ScalarRows)
    held: list[ScalarRow] = msgspec.field(default_factory=list)
    history: ScalarHistory = msgspec.field(default_factory=ScalarHistory)
    mode_place: int = -1
    repeated: int = 0
    names: list[str] = msgspec.field(default_factory=list)
    losses: list[str] = msgspec.field(default_factory=list)

    @property
    def scalars(self) -> FoundScalars:
        """The scalars that were found."""
        return FoundScalars(tuple(self.names[:MOST_NAMES]), tuple(self.losses), len(self.names) > MOST_NAMES)

    @property
    def notes(self) -> Sequence[str]:
        """Say which files are of older runs."""
        why = "a newer file records the same scalars over the same steps with other values"
        return [
            f"{name.partition('/')[2]} is of an older run, which is not judged"
            f"{f' from step {until:,} on' if until else ''}: {why}. To judge it, analyze its folder alone."
            for name, until in self.other_runs.items()
        ]

    def meet(self, found: Set[str], names: ScalarNames) -> None:
        """Remember names of scalars, as far as there is room; those of losses in any case."""
        new = found - set(self.names)
        losses = sorted(names.members(LOSSES, new) - set(self.losses))
        self.losses += losses[: MOST_LOSSES - len(self.losses)]
        self.names += sorted(new)[: MOST_NAMES + 1 - len(self.names)]

    def shorten(self) -> str | None:
        """Forget all but the newest rows of each set of scalars of the history."""
        return SHORTENED if self.history.shorten(_SHORT) else None

    @property
    def other_runs(self) -> Mapping[str, int]:
        """The files of an older run by name, each with its first step that is not used."""
        return {name: known.until for name, known in self.files.items() if known.until is not None}

    def restart(self, until: int) -> None:
        """Forget what was read, to read the files again; rules have seen the rows before ``until``."""
        self.repeated = 0 if self.step is None else min(until, self.step + 1)
        for known in self.files.values():
            known.taken, known.size, known.modified_s = 0, 0, 0.0
        self.rows = ScalarRows(dropped=self.rows.dropped, refused=self.rows.refused)
        self.held, self.history, self.mode_place = [], ScalarHistory(), -1

    def is_behind(self, row: ScalarRow) -> bool:
        """Whether rules have seen the row's step and mode, or a later one."""
        return self.step is not None and (row.step, MODE_PLACES[row.mode]) <= (self.step, self.mode_place)

    def front_of(self, source: str) -> int:
        """Return the furthest step of a source, -1 before its first."""
        newest: dict[Any, int] = self.rows.newest.get(source, {})
        return max([*newest.values(), *(row.step for row in self.rows.open.get(source, []))], default=-1)
