"""Files that trainers leave: ``trainer_state.json`` of Hugging Face, ``metrics.csv`` of Lightning, Keras's CSVLogger.

A file says no times: its steps have the time at which it was saved.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.scalars.names import GRADIENT_NORM, LEARNING_RATE, LOSSES, METRICS, ScalarNames
from trainguard.tensors.scalars.rows import LARGEST_STEP, MOST_SCALARS

MAX_FILE_BYTES = 32 * 1024 * 1024
MOST_ROWS = 1_000_000
_STEP, _EPOCH = "step", "epoch"
_POSITIONS = ("step", "_step", "global_step", "iteration", "iter", "time/total_timesteps", "epoch")
"""Names of columns that count steps, in the order of choice; capitals do not matter."""
_PLAIN_LOG = ".log"
_SUMMARY_OF_A_RUN = "train_runtime"
_DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a file recorded at a step, by name; an epoch is a step where the file counts no others."""

    step: int
    values: Mapping[str, float]


@dataclass(slots=True)
class TrainerFile:
    """What a file holds, in its order; ``bad`` counts entries without a step, ``why`` describes the last one."""

    rows: list[Recorded] = field(default_factory=list)
    bad: int = 0
    why: str | None = None

    def refuse(self, why: str) -> None:
        """Count an entry that cannot be used."""
        self.bad += 1
        self.why = why


def read_trainer_state(name: str, body: bytes) -> TrainerFile:
    """Read ``log_history`` of a ``trainer_state.json``; the entry that sums up the whole run is left out.

    Raises
    ------
    TelemetryFormatError
        When the file is larger than 32 MiB, or no such file.
    """
    _check_size(name, body)
    try:
        # Python's own reader: a diverged run has NaN in the file, which JSON does not know.
        whole = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected the JSON of trainer_state.json") from fault
    entries = whole.get("log_history") if isinstance(whole, dict) else None
    if not isinstance(entries, list):
        raise TelemetryFormatError(name, "no log_history, expected a list of entries")
    read = TrainerFile()
    for entry in entries:
        if not isinstance(entry, dict):
            read.refuse("an entry of log_history is no object")
        elif _SUMMARY_OF_A_RUN not in entry:
            _take(read, entry.get(_STEP), _numbers(entry))
    return read


def read_metrics_csv(name: str, body: bytes) -> TrainerFile:
    """Read a table with a line a step: a column ``step``, ``epoch`` or another position, and one for each scalar.

    Empty cells and texts are passed over. A last line without its end is still being written. A ``.log`` whose first
    line names no position is a log of another kind: it holds nothing.

    Raises
    ------
    TelemetryFormatError
        When the file is larger than 32 MiB, no text, or its first line names no position.
    """
    _check_size(name, body)
    lines = _lines(name, body)
    delimiter = max(_DELIMITERS, key=lines[0].count) if lines else ","
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        column = _position(header)
        if column is not None:
            return _table(header, column, reader)
    except csv.Error as fault:
        raise TelemetryFormatError(name, f"{fault}, expected a table of numbers") from fault
    if name.lower().endswith(_PLAIN_LOG):
        return TrainerFile()
    raise TelemetryFormatError(name, f"columns {header[:20]}, expected one called step or epoch")


def is_training_log(beginning: bytes, names: ScalarNames) -> bool:
    """Whether a table is one of training, by its first line: it counts steps, and names a loss or the like."""
    try:
        line = beginning.splitlines()[0].decode("utf-8-sig")
        header = next(csv.reader([line], delimiter=max(_DELIMITERS, key=line.count)))
    except (IndexError, UnicodeDecodeError, csv.Error, StopIteration):
        return False
    columns = [cell.strip() for cell in header]
    column = _position(columns)
    others = columns if column is None else columns[:column] + columns[column + 1 :]
    return column is not None and any(
        names.members(meaning, others) for meaning in (LOSSES, METRICS, LEARNING_RATE, GRADIENT_NORM)
    )


def _position(header: list[str]) -> int | None:
    """Return the column that counts steps; None without one."""
    lower = [cell.lower() for cell in header]
    return next((lower.index(name) for name in _POSITIONS if name in lower), None)


def _table(header: list[str], column: int, lines: Iterator[list[str]]) -> TrainerFile:
    read = TrainerFile()
    for number, cells in enumerate(lines):
        if number >= MOST_ROWS:
            read.refuse(f"more than {MOST_ROWS:,} lines")
            break
        if not cells:
            continue
        values = {
            name: value
            for name, cell in zip(header, cells, strict=False)
            if name.lower() not in {*_POSITIONS, ""} and (value := _parsed(cell)) is not None
        }
        _take(read, _parsed(cells[column]) if column < len(cells) else None, values)
    return read


def _lines(name: str, body: bytes) -> list[str]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(name, f"{fault}, expected UTF-8") from fault
    lines = text.splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(("\n", "\r")) else lines[:-1]


def _take(read: TrainerFile, step: object, values: dict[str, float]) -> None:
    if not isinstance(step, int | float) or isinstance(step, bool) or not 0 <= step <= LARGEST_STEP:
        read.refuse(f"a step is {step!r:.40}, expected a number from 0 on")
    elif len(values) > MOST_SCALARS:
        read.refuse(f"step {step} has {len(values):,} numbers, expected at most {MOST_SCALARS:,}")
    elif values:
        read.rows.append(Recorded(int(step), values))


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name, value in entry.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in {_STEP, _EPOCH}:
            found[name] = float(value) if abs(value) < 1e308 or isinstance(value, float) else math.inf
    return found


def _parsed(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _check_size(name: str, body: bytes) -> None:
    if len(body) > MAX_FILE_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_FILE_BYTES:,} bytes, expected the metrics of one run")
