"""Files of scalars read as a whole: what readers in pieces are compared with."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.formats.tensors.scalars.bulk import read_scalars
from trainguard.formats.tensors.scalars.names import ScalarFile, ScalarNames
from trainguard.formats.tensors.scalars.rows import (
    Recording,
    ScalarHistory,
    ScalarRow,
    ScalarRows,
    in_order,
    recordings,
)
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_history, read_trainer_state


@dataclass(slots=True)
class ScalarReading:
    """What was read: rows in order, and by file how many parts of it could not be read, and why the last could not."""

    rows: list[ScalarRow] = field(default_factory=list)
    bad: dict[str, tuple[int, str]] = field(default_factory=dict)

    def refuse(self, name: str, count: int, why: str) -> None:
        """Count parts of a file that cannot be read."""
        self.bad[name] = (self.bad.get(name, (0, ""))[0] + count, why)


def read_sources(
    files: Files,
    found: Iterable[tuple[ScalarFile, float]],
    names: ScalarNames,
    *,
    until: Mapping[str, int] | None = None,
) -> ScalarReading:
    """Read files of scalars as a whole.

    Parameters
    ----------
    files : Files
    found : iterable of (ScalarFile, float)
        The files, in the order of their names, and when each was saved (epoch seconds).
    names : ScalarNames
    until : mapping of str to int or None
        By the name of a file, the first step from which on its rows are of another run, and left out.
    """
    rows = ScalarRows()
    reading = ScalarReading()
    complete: list[ScalarRow] = []
    for file, saved_at in found:
        try:
            for each in _recorded(files, file, saved_at, reading):
                if each.step < (until or {}).get(file.name, math.inf):
                    complete += rows.add(file.source, each, names, folder=file.folder)
        except TelemetryFormatError as fault:
            reading.refuse(file.name, 1, fault.reason)
    reading.rows = in_order([*complete, *rows.finish()])
    return reading


def scalar_steps(reading: ScalarReading, names: ScalarNames) -> Iterator[ScalarStep]:
    """Iterate over the steps of what was read, in order; each finds the ones before it."""
    history = ScalarHistory()
    for row in reading.rows:
        yield ScalarStep(row, names, history)
        history.add(row)


def _recorded(files: Files, file: ScalarFile, saved_at: float, reading: ScalarReading) -> Iterator[Recording]:
    if file.kind == "events":
        yield from _events(files, file, saved_at, reading)
        return
    body = files.get(file.name, MAX_FILE_BYTES)
    read = (read_trainer_state if file.kind == "trainer_state" else read_history)(file.name, body)
    if read.bad:
        reading.refuse(file.name, read.bad, read.why or "")
    yield from read.rows.between(0, len(read.rows), saved_at)


def _events(files: Files, file: ScalarFile, saved_at: float, reading: ScalarReading) -> Iterator[Recording]:
    offset = 0
    while columns := read_scalars(files, file.name, offset):
        if columns.bad:
            reading.refuse(file.name, columns.bad, columns.why or "")
        yield from recordings(columns, file.folder, saved_at)
        offset = columns.end
