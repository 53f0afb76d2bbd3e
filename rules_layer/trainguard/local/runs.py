"""The runs at a place: a folder, a file, a store of many, a service or a prefix in S3; each is a job of its own."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import NoProfileError, ProfileSourceError, SeveralRunsError
from trainguard.core.layout import S3
from trainguard.core.text import one_line
from trainguard.engine.training.stream import TENSORBOARD
from trainguard.formats.runs.mlflow.stores import METRICS, is_run_folder
from trainguard.formats.tensors.debug.keys import FOLDER as DEBUG_OUTPUT
from trainguard.formats.tensors.scalars.names import match_scalar_file
from trainguard.formats.tensors.scalars.run_folders import main_tag, run_name, runs_of
from trainguard.local.hangs import find_dumps
from trainguard.local.kernels import find_traces
from trainguard.local.places import is_recording, is_samples, recording_at, recordings_of, service_recordings
from trainguard.local.profile import FoundRun, Profile, empty_profile, read_profile
from trainguard.local.sources import (
    PLACES,
    PROFILER_OUTPUT,
    RESULTS,
    SERVICES,
    FolderFiles,
    RecordedRun,
    files_below,
    holds_streams,
    is_report,
    missing,
    open_folder,
    read_beside,
    source_in_memory,
)
from trainguard.local.training_files import (
    MOST_TEXTS,
    is_debug_output,
    is_text,
    runs_among,
    scalar_kind,
    scalar_run,
    training_of_job,
)

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

# Of more runs the newest are judged.
MOST_RUNS = 1_000

_JOB_FOLDERS = frozenset({TENSORBOARD, "trainer-output"})
_OF_WANDB = frozenset({"files", "logs", "tmp"})
_LEFT_OUT = frozenset({RESULTS, ".git", ".venv", "__pycache__", "node_modules"})
_NAMED = 3
_KINDS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs at a place in the order of their places, and what people must know of the search, a sentence each."""

    runs: Sequence[FoundRun]
    notes: tuple[str, ...] = ()

    def open_one(self, place: str) -> Profile:
        """Open the run of a place that has one; raises SeveralRunsError, and as its ``open`` does."""
        if len(self.runs) > 1:
            raise SeveralRunsError(place, [each.place for each in self.runs])
        profile = self.runs[0].open()
        return replace(profile, notes=(*profile.notes, *self.notes)) if self.notes else profile


def open_job(place: str, clients: "Clients | None" = None) -> Profile:
    """Open the one run at a place; raises as `find_runs` does, and SeveralRunsError."""
    return find_runs(place, clients).open_one(place)


def find_runs(place: str, clients: "Clients | None" = None) -> FoundRuns:
    """Return the runs at a place, at least one, and at most `MOST_RUNS`, the newest.

    A run is a job's folder (with ``profiler-output``, ``debug-output``, ``tensorboard-output`` or ``trainer-output``),
    a run that another tool recorded, or `runs_of` some files of scalars. A folder that cannot be read is one that
    cannot be opened. NoProfileError says what was looked for; ProfileSourceError that the place cannot be read.
    """
    if place.startswith(S3):
        from trainguard.local.bucket import bucket_runs

        return _newest(bucket_runs(place, clients), [])
    if is_recording(place):
        return _newest(_at_file(place), [])
    folder = Path(place)
    if not folder.is_dir():
        raise missing(place, PLACES)
    if holds_streams(folder) or is_debug_output(folder):
        return FoundRuns([FoundRun(place, partial(_open_job, place))])
    walk = _Walk(folder)
    try:
        runs = walk.runs()
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault.strerror or fault}") from fault
    if not runs:
        if is_report(folder):
            expected = "expected the folder of the job, which holds profiler-output"
            raise ProfileSourceError(place, f"holds reports on a job and not its profile, {expected}")
        raise NoProfileError(place, met=walk.met())
    return _newest(runs, walk.notes())


def _newest(runs: Iterable[FoundRun], notes: Sequence[str]) -> FoundRuns:
    found = sorted(runs, key=lambda each: each.place)
    if len(found) <= MOST_RUNS:
        return FoundRuns(found, tuple(notes))
    kept = sorted(found, key=lambda each: each.changed_at, reverse=True)[:MOST_RUNS]
    left = f"{len(found):,} runs were found; the newest {MOST_RUNS:,} are judged. Name a folder below to judge others."
    return FoundRuns(sorted(kept, key=lambda each: each.place), (*notes, left))


def _at_file(place: str) -> Iterator[FoundRun]:
    """Yield the runs of a file, of a store, or the one that is named by ``#RUN`` or a service's address."""
    path = Path(place)
    try:
        if place.startswith(SERVICES):
            found = service_recordings(place)
        else:
            found = list(recordings_of(path)) if path.is_file() else [recording_at(place)]
        if not found and scalar_kind(path, path.name) is not None:
            yield FoundRun(
                place,
                partial(_open_scalars, path.parent, run_name(path.resolve().parent.as_posix()), {path.name: path}),
            )
            return
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault.strerror or fault}") from fault
    if not found:
        open_folder(place)  # Says what a file is that no command reads.
        raise NoProfileError(place)
    for each in found:
        yield FoundRun(each.place, partial(_open_recorded, each), each.size)


def _open_recorded(recording: RecordedRun) -> Profile:
    from trainguard.local.recorded_run import open_run

    return open_run(recording)


def _open_both(recording: RecordedRun, folder: Path, name: str, files: Mapping[str, Path]) -> Profile:
    profile = _open_recorded(recording)
    return profile if profile.training is not None else replace(profile, training=scalar_run(folder, name, files))


def _open_scalars(folder: Path, name: str, files: Mapping[str, Path]) -> Profile:
    training = scalar_run(folder, name, files)
    empty = source_in_memory(str(folder), name, {}, partial(read_beside, folder))
    # A folder below that cannot be read is a run that was found and cannot be opened.
    return replace(empty_profile(empty, training), kernels=find_traces(folder, onerror=lambda _: None))


def _refuse(place: str, why: str) -> Profile:
    raise ProfileSourceError(place, why)


def _open_job(place: str) -> Profile:
    """Open the profile of a job's folder, with what the job saved of its training, or the latter alone."""
    try:
        source = open_folder(place)
    except NoProfileError:
        folder = Path(place)
        job = folder.resolve().parent if folder.name == DEBUG_OUTPUT else folder
        found = training_of_job(folder)
        if found is None:
            raise
        empty = source_in_memory(str(folder), job.resolve().name, {}, partial(read_beside, job))
        return replace(empty_profile(empty, found), kernels=find_traces(job))
    root = Path(source.place)
    job = root.resolve().parent if root.name == PROFILER_OUTPUT else root
    profile = read_profile(source)
    return replace(profile, training=training_of_job(job), kernels=find_traces(job), hang=find_dumps(job))


@dataclass(slots=True)
class _Walk:
    """A walk over the folders below one; links to folders are followed, each folder is met once."""

    top: Path
    _jobs: list[Path] = field(default_factory=list)
    _recordings: list[RecordedRun] = field(default_factory=list)
    _scalars: dict[str, Path] = field(default_factory=dict)
    _others: Counter[str] = field(default_factory=Counter)
    _unread: dict[str, str] = field(default_factory=dict)
    _closed: dict[str, str] = field(default_factory=dict)
    _texts: int = 0

    def runs(self) -> list[FoundRun]:
        """Return the runs below the folder; raises OSError where the folder itself cannot be read."""
        os.scandir(self.top).close()
        self._look()
        found = [FoundRun(str(job), partial(_open_job, str(job)), 0, job.stat().st_mtime) for job in self._jobs]
        found += self._of_files()
        return [*found, *(FoundRun(place, partial(_refuse, place, why)) for place, why in self._closed.items())]

    def met(self) -> str:
        kinds = [f"{count:,} {kind}" for kind, count in self._others.most_common(_KINDS_SHOWN)]
        more = len(self._others) - _KINDS_SHOWN
        return ", ".join([*kinds, *([f"files of {more:,} other kinds"] if more > 0 else [])]) or "no file"

    def notes(self) -> list[str]:
        if not self._unread:
            return []
        shown = "; ".join(f"{one_line(name)}: {why}" for name, why in list(self._unread.items())[:_NAMED])
        more = f"; {len(self._unread) - _NAMED:,} more" if len(self._unread) > _NAMED else ""
        return [f"Not looked at: {shown}{more}."]

    def _look(self) -> None:
        seen = {os.path.realpath(self.top)}

        def is_new(folder: Path) -> bool:
            if not folder.is_symlink():
                return True
            real = os.path.realpath(folder)
            # What lies below the top is met without the link, and a link to what lies above has no end.
            is_new = not any(_is_at_or_below(real, each) or _is_at_or_below(each, real) for each in seen)
            seen.add(real)
            return is_new

        for parent, folders, files in os.walk(self.top, onerror=self._note_closed, followlinks=True):
            folder = Path(parent)
            if _is_job(folder, folders) and not _holds_runs(folder, folders):
                self._jobs.append(folder)
                folders.clear()
                continue
            if METRICS in folders and is_run_folder(folder):
                self._recordings += recordings_of(folder)
                folders.clear()
                continue
            if any(name.endswith(".wandb") for name in files):
                folders[:] = [name for name in folders if name not in _OF_WANDB]
            folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and is_new(folder / name))
            for name in sorted(files):
                self._take(folder / name)

    def _note_closed(self, fault: OSError) -> None:
        self._closed[str(fault.filename)] = f"cannot be read: {fault.strerror or fault}"

    def _take(self, file: Path) -> None:
        try:
            if not file.is_file():
                return
            found = list(recordings_of(file))
            self._recordings += found
            if found:
                return
            self._texts += is_text(file)
            name = file.relative_to(self.top).as_posix()
            if self._texts <= MOST_TEXTS and scalar_kind(file, name) is not None:
                self._scalars[name] = file
                return
        except OSError as fault:
            self._unread[str(file)] = fault.strerror or str(fault)
        except ProfileSourceError as fault:
            self._closed[str(file)] = fault.reason
        self._others[file.suffix.lower() or "without an ending"] += 1

    def _of_files(self) -> Iterator[FoundRun]:
        samples = Counter(Path(each.place).parent for each in self._recordings)
        of_folder = {Path(each.place).parent: each for each in self._recordings if is_samples(Path(each.place))}
        joined = set()
        runs = runs_of(self._scalars, self._main_tag)
        called = [run_name((self.top / run).resolve().as_posix()) for run in runs]
        alike = Counter(called)
        for run, short in zip(runs, called, strict=True):
            folder, name = self.top / run, run if run and alike[short] > 1 else short
            if len(runs) == 1 and not self._jobs and not self._recordings:
                # What describes the run, and its traces, may lie anywhere below the place.
                folder, name = self.top, run_name(self.top.resolve().as_posix())
            files = {below: self._scalars[path] for path, below in runs[run].items()}
            apart = runs_among({below: partial(_beginning_of, file) for below, file in files.items()})
            for below in sorted(apart):
                file = files.pop(below)
                own = partial(_open_scalars, file.parent, file.stem, {file.name: file})
                yield FoundRun(str(file), own, 0, file.stat().st_mtime)
            if not files:
                continue
            newest = max(file.stat().st_mtime for file in files.values())
            beside = of_folder.get(folder)
            if beside is not None and samples[folder] == 1:
                joined.add(beside.place)
                yield FoundRun(str(folder), partial(_open_both, beside, folder, name, files), beside.size, newest)
            else:
                yield FoundRun(str(folder), partial(_open_scalars, folder, name, files), 0, newest)
        for each in self._recordings:
            if each.place not in joined:
                yield FoundRun(each.place, partial(_open_recorded, each), each.size, _changed_at(each))

    def _main_tag(self, name: str) -> str | None:
        return main_tag(FolderFiles(str(self.top), {name: self._scalars[name]}), name)


def _is_job(folder: Path, folders: Sequence[str]) -> bool:
    if PROFILER_OUTPUT in folders and holds_streams(folder / PROFILER_OUTPUT):
        return True
    if DEBUG_OUTPUT in folders and is_debug_output(folder / DEBUG_OUTPUT):
        return True
    return not _JOB_FOLDERS.isdisjoint(folders)


def _holds_runs(folder: Path, folders: Sequence[str]) -> bool:
    """Whether a folder with nothing but scalars has several runs below its TensorBoard folder."""
    if TENSORBOARD not in folders or {PROFILER_OUTPUT, DEBUG_OUTPUT} & set(folders):
        return False
    top = folder / TENSORBOARD
    found = {file.relative_to(top).as_posix(): file for file in files_below(top, _LEFT_OUT, lambda _: None)}
    kinds = {name: match_scalar_file(name) for name in found}
    events = {name: found[name] for name, kind in kinds.items() if kind is not None and kind.kind == "events"}
    return len(runs_of(events, lambda name: main_tag(FolderFiles(str(top), events), name))) > 1


def _beginning_of(file: Path, most: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(most + 1)


def _is_at_or_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _changed_at(recording: RecordedRun) -> float:
    file = Path(recording.place)
    return file.stat().st_mtime if file.exists() else 0.0
