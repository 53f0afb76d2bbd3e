"""Files that trainers leave: ``trainer_state.json`` of Hugging Face, ``metrics.csv`` of Lightning, Keras's CSVLogger.

Steps have the time at which the file was saved: it says no other.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.scalars.names import GRADIENT_NORM, LEARNING_RATE, LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, MOST_SCALARS, RecordedRows

MOST_ENTRY_BYTES = 1024 * 1024
"""An entry that is longer holds more than the scalars of a step."""

_HISTORY = "log_history"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = re.compile(_TEXT, re.DOTALL)
_PLAIN = re.compile(rb"[^,\[\]{}\"\s]++")
_FLAT = rb'\{[^{}\[\]"]*+(?:' + _TEXT + rb'[^{}\[\]"]*+)*+\}'

_TOKEN = re.compile(_FLAT + b"|" + _TEXT + rb'|[\[\]{}"]', re.DOTALL)
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def log_entries(body: bytes) -> Iterator[bytes | None] | None:
    """Return the entries of ``log_history``, None for one that is too long; None of a file without any.

    Raises ValueError, at the call or when an entry is asked for, when the file is no JSON.
    """
    encoding = json.detect_encoding(body)
    text = body if encoding == "utf-8" else body.decode(encoding).encode()
    at = _after_space(text, 0)
    if text[at : at + 1] != b"{":
        json.loads(text[:MOST_ENTRY_BYTES])
        return None
    found: int | None = None
    for name, begins in _fields(text, at):
        if name == _HISTORY:
            found = begins
    return _items(text, found) if found is not None and text[found : found + 1] == b"[" else None


def _fields(text: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Yield names, and where values begin; the object at ``at`` must be all of the text."""
    for begins, _ in _parts(text, at, b"}"):
        match = _STRING.match(text, begins)
        colon = _after_space(text, match.end()) if match else begins
        if match is None or text[colon : colon + 1] != b":":
            raise ValueError(f"no field at byte {begins:,}")
        value = _after_space(text, colon + 1)
        yield json.loads(match[0]), value
    end = _after_space(text, _end_of(text, at))
    if end != len(text):
        raise ValueError(f"more than one value, the second at byte {end:,}")


def _items(text: bytes, at: int) -> Iterator[bytes | None]:
    for begins, end in _parts(text, at, b"]"):
        yield text[begins:end] if end - begins <= MOST_ENTRY_BYTES else None


def _parts(text: bytes, at: int, closing: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each part of an object or list begins and ends; of a field, those of its name."""
    at = _after_space(text, at + 1)
    if text[at : at + 1] == closing:
        return
    while True:
        end = _end_of(text, at)
        yield at, end
        end = _after_space(text, end)
        if text[end : end + 1] == b":" and closing == b"}":
            end = _after_space(text, _end_of(text, _after_space(text, end + 1)))
        if text[end : end + 1] == closing:
            return
        if text[end : end + 1] != b",":
            raise ValueError(f"no comma at byte {end:,}")
        at = _after_space(text, end + 1)


def _end_of(text: bytes, at: int) -> int:
    if text[at : at + 1] not in (b"{", b"["):
        match = _STRING.match(text, at) or _PLAIN.match(text, at)
        if match is None:
            raise ValueError(f"no value at byte {at:,}")
        return match.end()
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += _DEPTH.get(token[0], 0)
        if token[0] == b'"':
            break
        if not depth:
            return token.end()
    raise ValueError(f"what begins at byte {at:,} has no end")


def _after_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


MAX_FILE_BYTES = 32 * 1024 * 1024
MOST_ROWS = 1_000_000
MOST_NUMBERS = 4_000_000
"""A file of `MAX_FILE_BYTES` has fewer of them, with their digits."""

MOST_NAMES = 10_000
MOST_LINE = 1024 * 1024

_STEP, _EPOCH = "step", "epoch"
_POSITIONS = ("step", "_step", "global_step", "iteration", "iter", "time/total_timesteps", "epoch")
"""In the order of choice; capitals do not matter."""
_PLAIN_LOG = ".log"
_SUMMARY_OF_A_RUN = "train_runtime"
_DELIMITERS = ",;\t"


@dataclass(slots=True)
class TrainerFile:
    """What a file holds, in its order; ``bad`` counts entries that cannot be used, ``why`` describes the last one."""

    rows: RecordedRows = field(default_factory=RecordedRows)
    bad: int = 0
    why: str | None = None

    def refuse(self, why: str) -> None:
        self.bad += 1
        self.why = why


def read_trainer_state(name: str, body: bytes) -> TrainerFile:
    """Read ``log_history``, without the sum of the run; raises TelemetryFormatError, also over 32 MiB."""
    _check_size(name, body)
    read = TrainerFile()
    try:
        entries = log_entries(body)
        for entry in entries or ():
            _take_entry(read, entry)
    except (ValueError, RecursionError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected the JSON of trainer_state.json") from fault
    if entries is None:
        raise TelemetryFormatError(name, "no log_history, expected a list of entries")
    return read


def read_metrics_csv(name: str, body: bytes) -> TrainerFile:
    """Read a table with a line a step: a column ``step``, ``epoch`` or another position, and one for each scalar.

    Empty cells and texts are passed over, and a last line without its end. A ``.log`` without a position is a log of
    another kind. Raises TelemetryFormatError for more than 32 MiB, no text, or a first line without a position.
    """
    _check_size(name, body)
    lines = _Lines(body)
    try:
        first = lines.first()
        reader = csv.reader(lines, delimiter=max(_DELIMITERS, key=first.count))
        header = [cell.strip() for cell in next(reader, [])]
        column = _position(header)
        if column is not None:
            return _table(header, column, reader, lines)
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(name, f"{fault}, expected UTF-8") from fault
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
    lower = [cell.lower() for cell in header]
    return next((lower.index(name) for name in _POSITIONS if name in lower), None)


def _table(header: list[str], column: int, reader: Iterator[list[str]], lines: "_Lines") -> TrainerFile:
    read = TrainerFile()
    names = [None if name.lower() in {*_POSITIONS, ""} else name for name in header]
    for number, cells in enumerate(reader):
        lines.begin_row()
        if number >= MOST_ROWS:
            read.refuse(f"more than {MOST_ROWS:,} lines")
            break
        if not cells:
            continue
        values = {
            name: value
            for name, cell in zip(names, cells, strict=False)
            if name is not None and (value := _parsed(cell)) is not None
        }
        _take(read, _parsed(cells[column]) if column < len(cells) else None, values)
    if lines.too_long:
        read.bad += lines.too_long
        read.why = f"a line has over {MOST_LINE:,} characters"
    return read


class _Lines(Iterator[str]):
    """The whole lines of a text; one that is too long is counted, and empty.

    Raises UnicodeDecodeError when the text is not UTF-8; csv.Error when quotes make one line of more than may be.
    """

    def __init__(self, body: bytes) -> None:
        self._text = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8-sig", newline="")
        self._next: str | None = None
        self._taken = 0
        self.too_long = 0

    def first(self) -> str:
        self._next = self._read()
        return self._next or ""

    def begin_row(self) -> None:
        self._taken = 0

    def __next__(self) -> str:
        line, self._next = self._next or self._read(), None
        if line is None:
            raise StopIteration
        self._taken += len(line)
        if self._taken > MOST_LINE:
            raise csv.Error(f"a row has over {MOST_LINE:,} characters")
        return line

    def _read(self) -> str | None:
        """Return None at the end, and for a line that is still being written."""
        line = self._text.readline(MOST_LINE)
        is_long = False
        while line and not line.endswith(("\n", "\r")):
            more = self._text.readline(MOST_LINE)
            if not more:
                return None
            line, is_long = more, True
        if is_long:
            self.too_long += 1
            return "\n"
        return line or None


def _take_entry(read: TrainerFile, body: bytes | None) -> None:
    """Take an entry by Python's reader: a diverged run has NaN, which JSON does not know."""
    if body is None:
        read.refuse(f"an entry of log_history has over {MOST_ENTRY_BYTES:,} bytes")
        return
    entry = json.loads(body)
    if not isinstance(entry, dict):
        read.refuse("an entry of log_history is no object")
    elif _SUMMARY_OF_A_RUN not in entry:
        _take(read, entry.get(_STEP), _numbers(entry))


def _take(read: TrainerFile, step: object, values: dict[str, float]) -> None:
    if not isinstance(step, int | float) or isinstance(step, bool) or not 0 <= step <= LARGEST_STEP:
        read.refuse(f"a step is {step!r:.40}, expected a number from 0 on")
    elif len(values) > MOST_SCALARS:
        read.refuse(f"step {step} has {len(values):,} numbers, expected at most {MOST_SCALARS:,}")
    elif len(read.rows) >= MOST_ROWS:
        read.refuse(f"more than {MOST_ROWS:,} rows")
    elif read.rows.numbers + len(values) > MOST_NUMBERS:
        read.refuse(f"more than {MOST_NUMBERS:,} numbers")
    elif read.rows.would_name(values) > MOST_NAMES:
        read.refuse(f"more than {MOST_NAMES:,} names of scalars")
    elif values:
        read.rows.add(int(step), values)


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
