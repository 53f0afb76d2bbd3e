"""A folder or an ``s3://`` URI to the profile there. What reads S3 is imported only where a place is in S3."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from trainguard.core.errors import NoProfileError, ProfileSourceError, TelemetryFormatError
from trainguard.core.ports import BucketFiles
from trainguard.formats.runs import dynolog, neuron_monitor
from trainguard.formats.runs.mlflow.stores import (
    METRICS,
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
from trainguard.local.kernels import find_traces, traces_below
from trainguard.local.profile import Profile, empty_profile, read_profile
from trainguard.local.sources import (
    PROFILER_OUTPUT,
    S3,
    SERVICES,
    ProfileSource,
    RecordedRun,
    open_folder,
    read_beside,
    source_in_memory,
)
from trainguard.local.training_files import find_training

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients


_WANDB = ".wandb"
_TABLE = ".csv"
_LOGS = frozenset({".json", ".jsonl", ".log", ".ndjson", ".txt"})
_BEGINNING, _FIRST_LINES = 64 * 1024, 16 * 1024
_LONGEST = 4 * 1024 * 1024

Reader = Callable[[Path], SourceRun]
"""Reads a file as a run; raises OSError, TelemetryFormatError."""


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
_DATABASES = frozenset({".db", ".sqlite", ".sqlite3"})
_SHOWN = 3


def recording_at(place: str) -> RecordedRun | None:
    """Return the run at a place, or the only one below it; None where there is none.

    Raises ProfileSourceError when there are several, the store has no such run, or the place cannot be read.
    """
    if place.startswith(SERVICES):
        from trainguard.local.services import service_run

        return service_run(place)
    path, _, run = (place, "", "") if Path(place).exists() else place.rpartition(MARK)
    if not path or not Path(path).exists():
        return None
    try:
        found = list(recordings_of(Path(path)))
        if not found and Path(path).is_dir():
            found = [each for parent, folders, files in os.walk(path) for each in recordings_in(parent, folders, files)]
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
    return found[0] if found else None


def recordings_in(parent: str, folders: list[str], files: Sequence[str]) -> Iterator[RecordedRun]:
    """Yield the runs in a listed folder; what belongs to a run is taken out of ``folders``. Raises OSError."""
    folder = Path(parent)
    if METRICS in folders and is_run_folder(folder):
        folders.clear()
        yield from recordings_of(folder)
    for name in sorted(files):
        yield from recordings_of(folder / name)


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


def open_job(place: str, clients: "Clients | None" = None) -> Profile:
    """Find what a job wrote at a place: its profile, or an empty one, and what it saved of its training.

    A place may be a run that another tool recorded (docs/sources.md). NoProfileError says that there is neither.
    """
    if place.startswith(S3):
        return _job_in_bucket(place, clients)
    return _recorded(place, recording_at(place)) if is_recording(place) else _job_in_folder(place)


def _recorded(place: str, recording: RecordedRun | None) -> Profile:
    if recording is None:
        open_folder(place)  # Says what a file is that no command reads.
        raise NoProfileError(place)
    from trainguard.local.recorded_run import open_run

    return open_run(recording)


def _job_in_folder(place: str) -> Profile:
    try:
        source = open_folder(place)
    except NoProfileError:
        recording = recording_at(place)
        if recording is not None:
            return _recorded(place, recording)
        found = find_training(place)
        if found is None:
            raise
        lies, job, files = found
        empty = source_in_memory(str(lies), job.resolve().name, {}, partial(read_beside, job))
        return replace(empty_profile(empty, files), kernels=find_traces(job))
    root = Path(source.place)
    found = find_training(place, root)
    job = root.resolve().parent if root.name == PROFILER_OUTPUT else root
    return replace(read_profile(source), training=None if found is None else found[2], kernels=find_traces(job))


def _job_in_bucket(place: str, clients: "Clients | None") -> Profile:
    from trainguard.local.bucket import job_of, open_bucket, open_training, training_below

    try:
        source = open_bucket(place, clients)
    except NoProfileError:
        opened = open_training(place, clients)
        if opened is None:
            raise
        none, training = opened
        return replace(
            empty_profile(none, training),
            kernels=traces_below(training.objects, training.bucket, training.root.folder[:-1]),
        )
    profile, files = read_profile(source), source.files
    if not isinstance(files, BucketFiles) or not (job := job_of(files)):
        return profile
    saved = training_below(files.objects, files.bucket, job)
    return replace(profile, training=saved, kernels=traces_below(files.objects, files.bucket, job))
