"""A folder or an ``s3://`` URI to the profile there. What reads S3 is imported only where a place is in S3."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from trainguard.core.errors import NoProfileError, ProfileSourceError, TelemetryFormatError
from trainguard.core.layout import S3
from trainguard.formats.runs import dynolog, neuron_monitor
from trainguard.formats.runs.mlflow.stores import (
    database_runs,
    is_database,
    is_run_folder,
    read_database_run,
    read_run_folder,
)
from trainguard.formats.runs.nvidia_smi import is_nvidia_smi, read_nvidia_smi
from trainguard.formats.runs.run import SourceRun, bounded_lines
from trainguard.formats.runs.table import MAX_BYTES, SUFFIX, read_mapping, read_table
from trainguard.formats.tensors.scalars.text_lines import encoding_of
from trainguard.local.sources import SERVICES, ProfileSource, RecordedRun, open_folder

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients


_WANDB = ".wandb"
_DATABASES = frozenset({".db", ".sqlite", ".sqlite3"})
_TABLE = ".csv"
_LOGS = frozenset({".json", ".jsonl", ".log", ".ndjson", ".txt"})
_BEGINNING, _FIRST_LINES = 64 * 1024, 16 * 1024
_LONGEST = 4 * 1024 * 1024

# Reads a file as a run; raises OSError, TelemetryFormatError.
Reader = Callable[[Path], SourceRun]


def reader_of(file: Path) -> Reader | None:
    """Return how a file is read; None of one that no known tool wrote. Raises OSError."""
    if file.suffix == _WANDB:
        return _read_wandb
    if file.suffix == _TABLE:
        if file.with_suffix(SUFFIX).is_file():
            return _read_table
    elif file.suffix not in _LOGS:
        return None
    with file.open("rb") as opened:
        beginning = opened.read(_BEGINNING)
    if is_nvidia_smi(_text_of(beginning[:_FIRST_LINES])):
        return _read_nvidia_smi
    return None if file.suffix == _TABLE else _reader_of_log(beginning)


def _reader_of_log(beginning: bytes) -> Reader | None:
    if neuron_monitor.MARK in beginning:
        return _read_neuron_monitor
    return _read_dynolog if dynolog.MARK.search(beginning) else None


def is_samples(file: Path) -> bool:
    """Whether a file of a known tool holds samples of a machine, and nothing of a training."""
    return file.suffix not in {_WANDB, *_DATABASES} and file.is_file()


def _read_wandb(file: Path) -> SourceRun:
    from trainguard.formats.runs.wandb.run_file import read_run_file

    with file.open("rb") as stream:
        return read_run_file(str(file), stream)


def _read_neuron_monitor(file: Path) -> SourceRun:
    with file.open("rb") as lines:
        return neuron_monitor.read_neuron_monitor(file.stem, bounded_lines(lines, _LONGEST), file.stat().st_mtime)


def _read_dynolog(file: Path) -> SourceRun:
    with file.open("rb") as lines:
        return dynolog.read_dynolog(file.stem, bounded_lines(lines, _LONGEST))


def _read_nvidia_smi(file: Path) -> SourceRun:
    with _opened_text(file) as lines:
        return read_nvidia_smi(str(file), bounded_lines(lines, _LONGEST), file.stem)


def _read_table(file: Path) -> SourceRun:
    beside = file.with_suffix(SUFFIX)
    with beside.open("rb") as opened:
        mapping = read_mapping(str(beside), opened.read(MAX_BYTES + 1))
    with _opened_text(file) as lines:
        return read_table(str(file), bounded_lines(lines, _LONGEST), mapping, file.stem)


def _opened_text(file: Path) -> TextIO:
    with file.open("rb") as opened:
        beginning = opened.read(_BEGINNING)
    try:
        encoding = encoding_of(beginning[: beginning.rfind(b"\n") + 1] or beginning)
    except UnicodeDecodeError as fault:
        raise TelemetryFormatError(str(file), f"{fault}, expected text in UTF-8 or UTF-16") from fault
    return file.open("r", encoding=encoding, errors="replace", newline="")


def _text_of(beginning: bytes) -> str:
    """Return the text of a beginning; an empty one of what is no text."""
    try:
        encoding = encoding_of(beginning[: beginning.rfind(b"\n") + 1] or beginning)
        return beginning.decode(encoding, "replace")
    except UnicodeDecodeError:
        return ""


MARK = "#"
_SHOWN = 3


def recording_at(place: str) -> RecordedRun:
    """Return the one run at a file, of a store by ``#RUN``, or of a service.

    Raises ProfileSourceError when there are several, the store has no such run, or the place cannot be read;
    NoProfileError when no tool is known that wrote the file.
    """
    if place.startswith(SERVICES):
        found = service_recordings(place)
        if len(found) > 1:
            how = f"expected one: for example {found[0].place}"
            raise ProfileSourceError(place, f"holds {len(found)} runs ({_listed(found)}), {how}")
        return found[0]
    path, _, run = (place, "", "") if Path(place).exists() else place.rpartition(MARK)
    try:
        found = list(recordings_of(Path(path)))
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault.strerror or fault}") from fault
    if run:
        named = [each for each in found if each.run == run] or [each for each in found if each.title == run]
        if not named:
            raise ProfileSourceError(path, f"has no run {run!r}; it has {_listed(found)}")
        found = named
    if len(found) > 1:
        how = f"{path}{MARK}{found[0].run}" if found[0].run else found[0].place
        raise ProfileSourceError(path, f"holds {len(found)} runs ({_listed(found)}), expected one: for example {how}")
    if not found:
        raise NoProfileError(place)
    return found[0]


def service_recordings(place: str) -> list[RecordedRun]:
    """Return the runs that a service keeps, at least one; raises ProfileSourceError, PortUnavailableError."""
    from trainguard.local.services import service_runs

    return service_runs(place)


def is_recording(place: str) -> bool:
    """Whether a place is meant as that of a recorded run: a file, a run of a store, or one that a service keeps."""
    path = Path(place)
    return (
        place.startswith(SERVICES)
        or path.is_file()
        or (not path.exists() and MARK in place and Path(place.rpartition(MARK)[0]).exists())
    )


def recordings_of(path: Path) -> Iterator[RecordedRun]:
    """Yield the runs of one file, or that of the folder of one run; raises OSError, ProfileSourceError."""
    if path.is_dir():
        if is_run_folder(path):
            yield RecordedRun(str(path), partial(read_run_folder, path))
    elif path.suffix in _DATABASES and is_database(path):
        runs = database_runs(path)
        for each in runs:
            read = partial(read_database_run, path, each.identity)
            size = path.stat().st_size // len(runs)
            yield RecordedRun(f"{path}{MARK}{each.identity}", read, size, each.identity, each.name)
    else:
        reader = reader_of(path)
        if reader is not None:
            yield RecordedRun(str(path), partial(reader, path), path.stat().st_size)


def _listed(found: Sequence[RecordedRun]) -> str:
    shown = [f"{each.run} {each.title}".strip() or each.place for each in found[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(found) > _SHOWN else "")


def open_place(place: str, clients: "Clients | None" = None) -> ProfileSource:
    """Find the profile at a folder or ``s3://bucket/prefix``; raises ProfileSourceError, NoProfileError."""
    if not place.startswith(S3):
        return open_folder(place)
    from trainguard.local.bucket import open_bucket

    return open_bucket(place, clients)
