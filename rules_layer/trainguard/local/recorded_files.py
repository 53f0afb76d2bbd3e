"""Which tool recorded a file, by its name and its beginning, and how the file is read."""

from collections.abc import Callable
from pathlib import Path

from trainguard.errors import TelemetryFormatError
from trainguard.sources import dynolog, neuron_monitor
from trainguard.sources.bounded_lines import bounded_lines
from trainguard.sources.run import SourceRun
from trainguard.sources.table.mapping import MAX_BYTES, NVIDIA_SMI, SUFFIX, is_nvidia_smi, read_mapping
from trainguard.sources.table.table import columns_of, read_table

_WANDB = ".wandb"
_TABLE = ".csv"
_LOGS = frozenset({".json", ".jsonl", ".log", ".ndjson", ".txt"})
_BEGINNING = 64 * 1024
_LONGEST = 4 * 1024 * 1024
"""Of a line."""

Reader = Callable[[Path], SourceRun]
"""Reads a file as a run; raises OSError, TelemetryFormatError."""


def reader_of(file: Path) -> Reader | None:
    """Return how a file is read; None of one that no known tool wrote. Raises OSError."""
    if file.suffix == _WANDB:
        return _read_wandb
    if file.suffix == _TABLE:
        known = _mapping_of(file).is_file() or is_nvidia_smi(columns_of(_first_line(file)))
        return _read_table if known else None
    if file.suffix not in _LOGS:
        return None
    with file.open("rb") as opened:
        beginning = opened.read(_BEGINNING)
    if neuron_monitor.MARK in beginning:
        return _read_neuron_monitor
    return _read_dynolog if dynolog.MARK.search(beginning) else None


def _mapping_of(table: Path) -> Path:
    return table.with_suffix(SUFFIX)


def _first_line(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.readline(_BEGINNING).decode("utf-8-sig", "replace")


def _read_wandb(file: Path) -> SourceRun:
    from trainguard.sources.wandb.run_file import read_run_file

    with file.open("rb") as stream:
        return read_run_file(str(file), stream)


def _read_neuron_monitor(file: Path) -> SourceRun:
    with file.open("rb") as lines:
        return neuron_monitor.read_neuron_monitor(file.stem, bounded_lines(lines, _LONGEST), file.stat().st_mtime)


def _read_dynolog(file: Path) -> SourceRun:
    with file.open("rb") as lines:
        return dynolog.read_dynolog(file.stem, bounded_lines(lines, _LONGEST))


def _read_table(file: Path) -> SourceRun:
    beside = _mapping_of(file)
    mapping = NVIDIA_SMI
    if beside.is_file():
        with beside.open("rb") as opened:
            mapping = read_mapping(str(beside), opened.read(MAX_BYTES + 1))
    try:
        with file.open("r", encoding="utf-8-sig", errors="strict", newline="") as lines:
            return read_table(str(file), bounded_lines(lines, _LONGEST), mapping, file.stem)
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(str(file), f"{fault}, expected UTF-8") from fault
