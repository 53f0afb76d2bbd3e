"""Files that trainers leave: ``trainer_state.json`` of Hugging Face, and histories as tables, lines of JSON, and logs.

Steps have the time at which the file was saved: it says no other.
"""

import csv
import json
import re
from collections.abc import Iterator

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.git_lfs import is_pointer, refuse_pointer
from trainguard.formats.tensors.scalars.json_lines import (
    document_entries,
    is_json_lines,
    is_training_lines,
    numbers_in,
    read_document,
    read_json_lines,
)
from trainguard.formats.tensors.scalars.log_lines import read_log
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.tables import header_of, is_training_table, read_table
from trainguard.formats.tensors.scalars.taken_rows import TakenRows
from trainguard.formats.tensors.scalars.text_lines import MOST_LINE, WholeLines, first_line

# An entry that is longer holds more than the scalars of a step.
MOST_ENTRY_BYTES = 1024 * 1024

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

_STEP, _EPOCH = "step", "epoch"
_SUMMARY_OF_A_RUN = "train_runtime"
_LOGS = (".log", ".txt", ".out", ".err")


def read_trainer_state(name: str, body: bytes) -> TakenRows:
    """Read ``log_history``, without the sum of the run; raises TelemetryFormatError, also over 32 MiB."""
    _check(name, body)
    taken = TakenRows()
    try:
        entries = log_entries(body)
        for number, entry in enumerate(entries or ()):
            _take_entry(taken, f"entry {number:,} of log_history", entry)
    except (ValueError, RecursionError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected the JSON of trainer_state.json") from fault
    if entries is None:
        raise TelemetryFormatError(name, "no log_history, expected a list of entries")
    return taken.finish()


def read_history(name: str, body: bytes, *, logs: bool = True) -> TakenRows:
    """Read a history of training: a table with a line a step, JSON, or a log, which holds nothing without ``logs``.

    Empty cells are passed over, and a last line without its end. Raises TelemetryFormatError for more than 32 MiB, no
    text, or a text in which nothing is a step.
    """
    _check(name, body)
    taken = TakenRows()
    try:
        lines, document = WholeLines(body, MOST_LINE), document_entries(body)
        if document:
            read_document(document, taken)
        elif is_json_lines(body[:MOST_LINE]):
            read_json_lines(lines, taken)
        elif not read_table(name, lines, taken):
            if logs:
                read_log(WholeLines(body, MOST_LINE), taken)
            if not len(taken.rows) and not name.lower().endswith(_LOGS):
                raise TelemetryFormatError(name, _no_history(body))
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(name, f"{fault}, expected text in UTF-8 or UTF-16") from fault
    except csv.Error as fault:
        raise TelemetryFormatError(name, f"{fault}, expected a table of numbers") from fault
    return taken.finish()


def is_history(beginning: bytes, names: ScalarNames) -> bool:
    """Whether a text is a table or JSON of training, by its beginning; a pointer to one is taken for one."""
    return is_pointer(beginning) or is_training_table(beginning, names) or is_training_lines(beginning, names)


def _no_history(body: bytes) -> str:
    header = header_of(first_line(body[:MOST_LINE]))[:20]
    if not header:
        return "no columns and no lines, expected a table with a line a step, or lines of a log"
    return f"columns {header!r:.300} with no steps below them, expected a table with a line a step, or lines of a log"


def _take_entry(taken: TakenRows, where: str, body: bytes | None) -> None:
    """Take an entry by Python's reader: a diverged run has NaN, which JSON does not know."""
    if body is None:
        taken.refuse("line", f"{where} has over {MOST_ENTRY_BYTES:,} bytes")
        return
    entry = json.loads(body)
    if not isinstance(entry, dict):
        taken.refuse("line", f"{where} is no object")
    elif _SUMMARY_OF_A_RUN not in entry:
        values = {name: value for name, value in numbers_in(entry).items() if name not in {_STEP, _EPOCH}}
        taken.add(where, entry.get(_STEP), values)


def _check(name: str, body: bytes) -> None:
    refuse_pointer(name, body)
    if len(body) > MAX_FILE_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_FILE_BYTES:,} bytes, expected the metrics of one run")
