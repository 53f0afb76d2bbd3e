"""The runs of a gate: all that `analyze` reads, and tables, a line a step, as CSV, TSV, JSON, JSON lines or Parquet."""

import csv
import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trainguard.core.errors import NoProfileError, ProfileSourceError, TelemetryFormatError
from trainguard.core.units import counted
from trainguard.formats.parquet import is_parquet, read_parquet
from trainguard.formats.tensors.scalars.json_lines import numbers_in
from trainguard.formats.tensors.scalars.positions import columns_of
from trainguard.formats.tensors.scalars.tables import delimiter_of, header_of
from trainguard.formats.tensors.scalars.text_lines import first_line
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_history
from trainguard.gate.runs import SPEEDS, GateRun, Metric, Points, metric_of

_MOST_TABLES = 1_000
_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".log", ".ndjson", ".parquet", ".tsv", ".txt"})
_OTHER_READER = "trainer_state.json"

# Columns that name who wrote a line, and those of what a run ran on.
_NODES = ("node", "host", "hostname", "node_rank", "rank", "global_rank")
_ABOUT = {
    "gpu": "GPU", "gpu_name": "GPU", "gpu_type": "GPU", "gpu_model": "GPU", "gpus": "GPUs", "num_gpus": "GPUs",
    "world_size": "ranks", "num_nodes": "nodes", "nodes": "nodes", "batch_size": "batch", "global_batch_size": "batch",
    "instance_type": "instance type",
}  # fmt: skip
_MOST_NODES = 1_024
_LOOKED_AT = 100
_MOST_LINE = 1 << 20

Series = Mapping[str, Points]


def gate_run(place: str) -> GateRun:
    """Read a run: a table, or the one run at a place as `open_job` finds it; raises as that does."""
    path = Path(place)
    if path.is_file() and (found := table_run(path)) is not None:
        return found
    # Most gates read tables, and need not wait for what reads a profile.
    from trainguard.local.gate_profile import profile_run
    from trainguard.local.runs import open_job

    try:
        profile = open_job(place)
    except NoProfileError:
        from trainguard.local.gate_traces import traces_run

        if path.is_dir() and (found := _table_in(path) or traces_run(place)) is not None:
            return found
        raise
    return profile_run(place, profile)


def _table_in(folder: Path) -> GateRun | None:
    """Return the one table of a run that a folder holds, None where there is none; raises ProfileSourceError."""
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in _SUFFIXES and each.is_file())
    found = []
    for file in files[:_MOST_TABLES]:
        with suppress(TelemetryFormatError):
            if (run := table_run(file)) is not None:
                found.append(run)
    if len(found) > 1:
        pattern = str(folder / f"*{Path(found[0].place).suffix}")
        raise ProfileSourceError(
            str(folder), f"holds {len(found):,} tables: name one, or a pattern such as {pattern!r}"
        )
    return replace(found[0], place=str(folder)) if found else None


def table_run(path: Path) -> GateRun | None:
    """Read a table; None of a file that is none of a run's speed or loss.

    Of several ranks or nodes, the longest step time and memory counts at each step, and the median of others. Raises
    ProfileSourceError, and TelemetryFormatError of a table in which nothing can be read.
    """
    if path.name == _OTHER_READER or path.suffix.lower() not in _SUFFIXES:
        return None
    try:
        with path.open("rb") as opened:
            body = opened.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise ProfileSourceError(str(path), f"cannot be read: {fault.strerror or fault}") from fault
    if is_parquet(body):
        return _parquet_run(path, path.read_bytes())
    rows = _first_rows(body)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not _is_of_run(names):
        return None
    about = {
        _ABOUT[name.lower()]: str(value) for row in rows[:1] for name, value in row.items() if name.lower() in _ABOUT
    }
    by_node = next((name for name in names if name.lower() in _NODES), None)
    parts = {"": body} if by_node is None else _by_node(body, by_node)
    notes: list[str] = []
    found = {node: _series(path, part, notes) for node, part in parts.items()}
    return _run(str(path), found, {name: value for name, value in about.items() if value}, notes, names)


def _is_of_run(names: Sequence[str]) -> bool:
    found = {known[0] for name in names if (known := metric_of(name)) is not None}
    return not found.isdisjoint(SPEEDS) or (bool(found) and columns_of(names).step is not None)


class _Wanted(Container[str]):
    """Names of columns that count steps, name a node, or hold a metric."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            metric_of(name) is not None or name.lower() in _NODES or columns_of([name]).step is not None
        )


def _parquet_run(path: Path, body: bytes) -> GateRun | None:
    columns = read_parquet(body, str(path), _Wanted())
    names = list(columns)
    if not _is_of_run(names):
        return None
    counted_by = columns_of(names).step
    rows = len(columns[names[0]])
    steps = np.arange(rows) if counted_by is None else columns[names[counted_by]].astype(np.int64)
    by_node = next((name for name in names if name.lower() in _NODES), None)
    nodes = np.full(rows, "") if by_node is None else columns[by_node].astype(str)
    found = {}
    for node in np.unique(nodes)[:_MOST_NODES]:
        own = nodes == node
        series = {
            name: _points(steps[own], column[own].astype(np.float64))
            for name, column in columns.items()
            if metric_of(name) is not None and column.dtype.kind in "iuf"
        }
        found[str(node)] = series
    return _run(str(path), found, {}, [], names)


def _points(steps: Any, values: Any) -> Points:
    """Return values by step; of a step that comes again the last counts."""
    distinct, last = np.unique(steps[::-1], return_index=True)
    return Points(distinct, values[::-1][last])


def _first_rows(body: bytes) -> list[dict[str, Any]]:
    """Return the first rows by column; of a table without rows, one of empty cells."""
    try:
        document = _document(body)
        if document is not None:
            return document[:_LOOKED_AT]
        line = first_line(body[:_MOST_LINE])
        lines = body[:_MOST_LINE].decode("utf-8-sig", "replace").splitlines()
    except UnicodeDecodeError:
        return []
    objects = [each for each in map(_object, lines[:_LOOKED_AT]) if each is not None]
    if objects:
        return objects
    header = header_of(line)
    try:
        rows = list(csv.reader(lines[1 : _LOOKED_AT + 1], delimiter=delimiter_of(line)))
    except csv.Error:
        rows = []
    return [dict(zip(header, cells, strict=False)) for cells in rows if any(cells)] or [dict.fromkeys(header, "")]


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found | numbers_in(found) if isinstance(found, dict) else None


def _document(body: bytes) -> list[dict[str, Any]] | None:
    """Return the objects of a list that is all of a text; None of any other text."""
    if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"[":
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return [each for each in found if isinstance(each, dict)]


def _lines_of(objects: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def _by_node(body: bytes, column: str) -> dict[str, bytes]:
    """Return the lines of each node, of 1,024 at most, under the header."""
    document = _document(body)
    text = body.decode("utf-8-sig", "replace") if document is None else _lines_of(document).decode()
    lines = text.splitlines()
    header = "" if lines and _object(lines[0]) is not None else lines[0]
    delimiter = delimiter_of(header)
    place = header_of(header).index(column) if header else -1
    parts: dict[str, list[str]] = {}
    for line in lines[1:] if header else lines:
        if header:
            cells = next(csv.reader([line], delimiter=delimiter), [])
            node = cells[place].strip() if place < len(cells) else ""
        else:
            node = str((_object(line) or {}).get(column, ""))
        if node and (node in parts or len(parts) < _MOST_NODES):
            parts.setdefault(node, [header] if header else []).append(line)
    return {node: "\n".join([*kept, ""]).encode() for node, kept in parts.items()} or {"": body}


def _series(path: Path, body: bytes, notes: list[str]) -> Series:
    document = _document(body)
    try:
        read = read_history(str(path), body if document is None else _lines_of(document))
    except TelemetryFormatError:
        if any(value not in ("", None) for row in _first_rows(body) for value in row.values()):
            raise
        return {}  # A header alone: a run that wrote no step.
    if read.bad:
        notes.append(f"{path}: {counted(read.bad, 'part')} not used; {read.why}.")
    found = read.rows.series([name for name in read.rows.names if metric_of(name) is not None])
    return {name: Points(steps, values) for name, (steps, values) in found.items()}


def _run(
    place: str, by_node: Mapping[str, Series], about: Mapping[str, str], notes: list[str], names: Sequence[str]
) -> GateRun:
    series: dict[Metric, dict[str, Points]] = {}
    nodes: Series = {}
    for name in names:
        known = metric_of(name)
        own = {node: found[name] for node, found in by_node.items() if name in found}
        if known is None:
            continue
        metric, factor = known
        points = _joined(list(own.values()), metric)
        series.setdefault(metric, {})[name] = Points(points.steps, points.values * factor)
        if metric is Metric.STEP_TIME and len(own) > len(nodes) and len(own) > 1:
            nodes = own
        unusable = int(np.count_nonzero(~(points.values > 0.0))) if metric in SPEEDS else 0
        if unusable:
            notes.append(f"{place}: {counted(unusable, 'value')} of {name} not above 0, and not used.")
    return GateRun(place, series, nodes, about=about, notes=tuple(dict.fromkeys(notes)))


def _joined(parts: Sequence[Points], metric: Metric) -> Points:
    if len(parts) < 2:
        return parts[0] if parts else Points(np.empty(0, np.int64), np.empty(0))
    steps = np.unique(np.concatenate([each.steps for each in parts]))
    table = np.full((len(parts), len(steps)), np.nan)
    for row, each in enumerate(parts):
        table[row, np.searchsorted(steps, each.steps)] = each.values
    known = np.isfinite(table).any(axis=0)
    chosen = np.nanmax if metric in (Metric.STEP_TIME, Metric.MEMORY) else np.nanmedian
    values = np.full(len(steps), np.nan)
    values[known] = chosen(table[:, known], axis=0)
    return Points(steps, values)
