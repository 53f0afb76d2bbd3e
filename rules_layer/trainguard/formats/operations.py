"""Tables of a parallel job's operations, a row an operation: Parquet, CSV with a header, or JSON lines.

The names of columns are those of ByteDance-Seed/StragglerAnalysis (``readme.md``), with some that others write.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.parquet import Column, is_parquet, read_parquet

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

MOST_ROWS = 10_000_000
MISSING = -1
# A whole number that the row should have: it has another value.
BAD = -2

# Columns, each by the names that it may have; the first that a table has counts.
NAMES: Mapping[str, Sequence[str]] = {
    "rank": ("rank", "global_rank"),
    "step": ("step", "iteration"),
    "kind": ("optype", "operation", "kind", "op", "name"),
    "start": ("start_ts", "start", "start_s", "ts"),
    "duration": ("duration", "dur", "duration_s"),
    "end": ("end_ts", "end", "end_s"),
    "dp_rank": ("dp_rank",),
    "stage": ("stage", "pp_rank"),
    "chunk": ("mc", "model_chunk", "chunk"),
    "whole_chunk": ("gmc",),
    "batch": ("mb_id", "microbatch", "micro_batch"),
    "place": ("seq_id",),
    "group": ("group", "process_group"),
    "host": ("host", "node", "hostname"),
}

_TEXTS = ("kind", "group", "host")
_TIMES = ("start", "duration", "end")
_OPTIONAL = ("chunk", "whole_chunk", "batch", "place")
_NEEDED = ("rank", "step", "kind", "start")
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTable:
    """Columns of a table of operations, times in seconds. Whole numbers are -2 where the row has none that is right.

    chunk: Part of the model within a stage. whole_chunk: The same, counted over all stages. batch: Micro-batch. place:
    Order among the operations of a kind of a rank in a step. Each is -1 where it is not known.
    group: Which operations of a step belong together; empty where the kind says it. host: Empty where it is not known.
    """

    rank: Ints
    dp_rank: Ints
    stage: Ints
    step: Ints
    kind: Texts
    start: Floats
    duration: Floats
    chunk: Ints
    whole_chunk: Ints
    batch: Ints
    place: Ints
    group: Texts
    host: Texts

    def __len__(self) -> int:
        return len(self.rank)


def read_operations(data: bytes, name: str) -> tuple[OperationTable, Counter[str]]:
    """Return the operations of a file and how many of its rows could not be read, by fault.

    Raises TelemetryFormatError where nothing can be read, or a column is missing.
    """
    faults: Counter[str] = Counter()
    if is_parquet(data[:4]):
        wanted = {each for names in NAMES.values() for each in names}
        columns: Mapping[str, Column] = read_parquet(data, name, wanted)
    else:
        text = data.decode("utf-8-sig", "replace")
        is_lines = text.lstrip()[:1] == "{"
        columns = _json_lines(text, faults) if is_lines else _csv(text, name, faults)
    return _table(columns, name), +faults


def together(tables: Sequence[OperationTable]) -> OperationTable:
    """Return the rows of several tables, as of a file for each rank."""
    if len(tables) == 1:
        return tables[0]
    parts = {each.name: [getattr(table, each.name) for table in tables] for each in fields(OperationTable)}
    return _with_places(OperationTable(**{name: np.concatenate(columns) for name, columns in parts.items()}))


def _json_lines(text: str, faults: Counter[str]) -> dict[str, Column]:
    decode = msgspec.json.Decoder(dict[str, object]).decode
    rows: list[dict[str, object]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except (msgspec.MsgspecError, RecursionError):
            faults["lines that are no JSON object"] += 1
        if len(rows) > MOST_ROWS:
            raise TelemetryFormatError("", f"has more than {MOST_ROWS:,} rows")
    names = {key for row in rows[:1000] for key in row}
    return {each: _objects([row.get(each) for row in rows]) for each in names}


def _objects(values: Sequence[object]) -> Texts:
    """Return numbers and texts as a column; whatever else a row has is no value."""
    found = np.empty(len(values), object)
    found[:] = [value if isinstance(value, str | int | float) else None for value in values]
    return found


def _csv(text: str, name: str, faults: Counter[str]) -> dict[str, Column]:
    try:
        reader = csv.reader(text.splitlines())
        header = [each.strip() for each in next(reader, [])]
        rows = []
        for row in reader:
            if len(row) == len(header):
                rows.append(row)
            elif row:
                faults["rows of other columns"] += 1
            if len(rows) > MOST_ROWS:
                raise TelemetryFormatError(name, f"has more than {MOST_ROWS:,} rows")
    except csv.Error as fault:
        raise TelemetryFormatError(name, f"is no CSV: {fault}") from fault
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in header]
    return {each: _objects(column) for each, column in zip(header, columns, strict=True)}


def _table(columns: Mapping[str, Column], name: str) -> OperationTable:
    given = {column.strip().lower(): column for column in reversed(list(columns))}
    found = {key: columns[given[each]] for key, names in NAMES.items() for each in names[::-1] if each in given}
    missing = [key for key in _NEEDED if key not in found]
    if "duration" not in found and "end" not in found:
        missing.append("duration")
    if missing:
        wanted = "; ".join(f"{key} ({' or '.join(NAMES[key])})" for key in missing)
        has = ", ".join(list(columns)[:20]) or "none"
        raise TelemetryFormatError(name, f"lacks columns of operations: {wanted}. Its columns: {has}"[:600])
    size = len(found["rank"])
    if not size:
        raise TelemetryFormatError(name, "has no row, expected an operation in each")
    times = {key: _floats(found[key]) for key in _TIMES if key in found}
    whole: dict[str, Any] = {
        key: _ints(found[key]) if key in found else np.full(size, MISSING)
        for key in ("rank", "step", "dp_rank", "stage", *_OPTIONAL)
    }
    for key in _OPTIONAL:
        whole[key] = np.maximum(whole[key], MISSING)
    texts: dict[str, Any] = {
        key: _texts(found[key], size) if key in found else np.full(size, "", object) for key in _TEXTS
    }
    duration = times["duration"] if "duration" in times else times["end"] - times["start"]
    return _with_places(OperationTable(**whole, **texts, start=times["start"], duration=duration))


def _with_places(table: OperationTable) -> OperationTable:
    """Return a table in which stages and copies that no row has are counted: one stage, a copy of the model a rank."""
    values = {each.name: getattr(table, each.name) for each in fields(OperationTable)}
    if (table.stage == MISSING).all():
        values["stage"] = np.zeros_like(table.rank)
    if (table.dp_rank == MISSING).all():
        first = np.unique(table.rank, return_index=True)[1]
        ranks, stages = table.rank[first], values["stage"][first]
        copies = np.empty(len(ranks), np.int64)
        for stage in np.unique(stages):
            copies[stages == stage] = np.arange(int((stages == stage).sum()))
        values["dp_rank"] = copies[np.searchsorted(ranks, table.rank)]
    return OperationTable(**values)


def _floats(column: Column) -> Floats:
    try:
        with np.errstate(invalid="ignore"):
            return column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_each(float, value, np.nan) for value in column])


def _ints(column: Column) -> Ints:
    numbers = _floats(column)
    good = np.isfinite(numbers) & (np.abs(numbers) < 1 << 53)
    good &= numbers == np.floor(np.where(good, numbers, 0.5))
    return np.where(good, np.where(good, numbers, 0), BAD).astype(np.int64)


def _each(read: Callable[[str], float], value: object, otherwise: float) -> float:
    try:
        return read(str(value))
    except (ValueError, OverflowError):
        return otherwise


def _texts(column: Iterable[object], size: int) -> Texts:
    found = np.empty(size, object)
    found[:] = ["" if value is None else str(value)[:_LONGEST_TEXT].strip() for value in column]
    return found
