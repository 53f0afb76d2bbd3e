"""All steps of the scalar sources that lie in one place. Importing this module imports protobuf."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.files import RunFiles
from trainguard.tensors.scalars.event_file import ScalarColumns, read_scalars
from trainguard.tensors.scalars.keys import ScalarFile
from trainguard.tensors.scalars.names import ScalarNames, scalar_name
from trainguard.tensors.scalars.rows import LARGEST_STEP, ScalarHistory, ScalarRow, ScalarRows, in_order
from trainguard.tensors.scalars.step import ScalarStep
from trainguard.tensors.scalars.trainer_files import MAX_FILE_BYTES, TrainerFile, read_metrics_csv, read_trainer_state

Recording = tuple[int, float, dict[str, float]]
"""A step, when it was saved (epoch seconds), and its scalars by name."""


@dataclass(slots=True)
class ScalarReading:
    """What was read: rows in order, and by file how many parts of it could not be read, and why the last could not."""

    rows: list[ScalarRow] = field(default_factory=list)
    bad: dict[str, tuple[int, str]] = field(default_factory=dict)

    def refuse(self, name: str, count: int, why: str) -> None:
        """Count parts of a file that cannot be read."""
        self.bad[name] = (self.bad.get(name, (0, ""))[0] + count, why)


def read_sources(
    files: RunFiles, found: Iterable[tuple[ScalarFile, float]], names: ScalarNames, kept: ScalarRows | None = None
) -> ScalarReading:
    """Read files of scalars as a whole.

    Parameters
    ----------
    files : RunFiles
    found : iterable of (ScalarFile, float)
        The files, in the order of their names, and when each was saved (epoch seconds).
    names : ScalarNames
    kept : ScalarRows or None
        Counts what is dropped.
    """
    rows = ScalarRows() if kept is None else kept
    reading = ScalarReading()
    complete: list[ScalarRow] = []
    for file, saved_at in found:
        try:
            for step, at, values in _recorded(files, file, saved_at, reading):
                complete += rows.add(file.source, step, at, values, names, folder=file.folder)
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


def recordings(columns: ScalarColumns, folder: str, saved_at: float) -> Iterator[Recording]:
    """Iterate over what event files recorded, step after step in the order of the file.

    A time that is none is replaced by ``saved_at``; scalars of negative steps are left out.
    """
    names = [scalar_name(tag, folder) for tag in columns.tags]
    borders = [0, *(np.flatnonzero(np.diff(columns.step)) + 1).tolist(), columns.step.size]
    tags, values = columns.tag.tolist(), columns.value.tolist()
    for start, end in pairwise(borders):
        step = int(columns.step[start]) if start < end else -1
        if 0 <= step <= LARGEST_STEP:
            at = float(columns.at[start])
            found = {names[tag]: value for tag, value in zip(tags[start:end], values[start:end], strict=True)}
            yield step, at if math.isfinite(at) else saved_at, found


def _recorded(files: RunFiles, file: ScalarFile, saved_at: float, reading: ScalarReading) -> Iterator[Recording]:
    if file.kind == "events":
        yield from _events(files, file, saved_at, reading)
        return
    body = files.get(file.name, MAX_FILE_BYTES)
    read: TrainerFile = (read_trainer_state if file.kind == "trainer_state" else read_metrics_csv)(file.name, body)
    if read.bad:
        reading.refuse(file.name, read.bad, read.why or "")
    for row in read.rows:
        yield row.step, saved_at, dict(row.values)


def _events(files: RunFiles, file: ScalarFile, saved_at: float, reading: ScalarReading) -> Iterator[Recording]:
    offset = 0
    while columns := read_scalars(files, file.name, offset):
        if columns.bad:
            reading.refuse(file.name, columns.bad, columns.why or "")
        yield from recordings(columns, file.folder, saved_at)
        offset = columns.end
