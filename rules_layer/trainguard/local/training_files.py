"""What a job saved of its training, in a folder: debug-output, TensorBoard's event files, files of trainers.

Each file gets the key that it would have in a bucket.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainguard.core.errors import ForeignKeyError, ProfileSourceError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.core.ports import ListedObject
from trainguard.engine.training.keys import SCALAR_FOLDERS, ScalarKey, match_key, match_scalar_key
from trainguard.formats.tensors.debug.keys import END_NAMES, TensorKey, match_name, run_prefix
from trainguard.formats.tensors.debug.keys import FOLDER as DEBUG_OUTPUT
from trainguard.formats.tensors.scalars.log_lines import is_training_log
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.trainer_files import is_history
from trainguard.local.profile import TrainingFiles
from trainguard.local.sources import (
    PROFILER_OUTPUT,
    RESULTS,
    FilesAsBucket,
    FolderFiles,
    files_below,
    folders_below,
    safe_name,
)

_PARTS = ("index", "events", "collections")
_TRAINER_OUTPUT = "trainer-output"
_LEFT_OUT = frozenset({RESULTS, PROFILER_OUTPUT, DEBUG_OUTPUT})
_SHOWN = 3
_TEXTS = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt", ".out"})
_AS_NAMED, _AS_LOG = "metrics.csv", "train.log"

_LONGEST_HEADER = 64 * 1024
_TABLE = ".csv"
_MOST_TEXTS = 500
"""Texts of a job whose beginning is looked at, but tables: data sets have many."""


Found = tuple[Path, Path, TrainingFiles]
"""Where the files of a job's training lie, the folder of the job, and the files."""


@dataclass(frozen=True)
class JobFiles(FolderFiles):
    """The files of a job's training by key; other jobs are found by folder or name, below ``beside``.

    A file of debug-output is as new as this process: a copy may be older than the time that is written in it; others
    are as new as their file.
    """

    paths: dict[str, Path]
    beside: Path
    opened_at: float = field(default_factory=time.time)
    known: set[str] = field(default_factory=set)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        self._meet(prefix.rpartition(f"/{DEBUG_OUTPUT}/")[0])
        for listed in super().list(prefix, start_after):
            is_tensor = f"/{DEBUG_OUTPUT}/" in listed.key
            yield replace(listed, last_modified=self.opened_at) if is_tensor else listed

    def _meet(self, job: str) -> None:
        if job in self.known or not job:
            return
        self.known.add(job)
        folder = Path(job) if Path(job).is_dir() else self.beside / job
        run = folder / DEBUG_OUTPUT if _is_run(folder / DEBUG_OUTPUT) else folder
        if _is_run(run):
            self.paths.update(_tensor_files(run, ProfileRoot("", job)))


def find_training(place: str, profile: Path | None = None) -> Found | None:
    """Find what a job saved of its training at, in or below a folder; None where there is nothing.

    Of several jobs, the one beside ``profile`` counts. Raises ProfileSourceError when the folder cannot be read, or
    lies above several jobs.
    """
    folder = Path(place)
    if not folder.is_dir():
        return None
    try:
        if profile is not None and profile.name == PROFILER_OUTPUT:
            return _of_job(profile.resolve().parent)
        if _is_run(folder):
            return _of_run(folder)
        runs = [] if _is_run(folder / DEBUG_OUTPUT) else sorted(folders_below(folder, DEBUG_OUTPUT))
        if len(runs) > 1:
            shown = ", ".join(map(str, runs[:_SHOWN])) + (", …" if len(runs) > _SHOWN else "")
            raise ProfileSourceError(place, f"holds debug-output of {len(runs)} jobs ({shown}), expected one: name it")
        return _of_job(runs[0].parent if runs else folder)
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault}") from fault


def _is_run(folder: Path) -> bool:
    parts = [part for part in _PARTS if (folder / part).is_dir()]
    return (
        "index" in parts
        or len(parts) > 1
        or (folder.name == DEBUG_OUTPUT and any((folder / name).is_file() for name in END_NAMES))
    )


def _of_run(folder: Path) -> Found:
    job = folder.resolve().parent if folder.name == DEBUG_OUTPUT else folder.resolve()
    root = ProfileRoot("", safe_name(job.name))
    return _found(folder, job, root, _tensor_files(folder, root))


def _of_job(folder: Path) -> Found | None:
    root = ProfileRoot("", safe_name(folder.resolve().name))
    files = _tensor_files(folder / DEBUG_OUTPUT, root) if _is_run(folder / DEBUG_OUTPUT) else {}
    files |= _scalar_files(folder, root)
    return _found(folder, folder, root, files) if files else None


def _found(place: Path, job: Path, root: ProfileRoot, files: dict[str, Path]) -> Found:
    parsed = {key: match_key(key) for key in files}
    tensors = any(isinstance(each, TensorKey | EndKey) for each in parsed.values())
    ended = any(isinstance(each, EndKey) for each in parsed.values())
    scalars = tuple(sorted(key for key, each in parsed.items() if isinstance(each, ScalarKey)))
    objects = FilesAsBucket(JobFiles(str(place), files, job.resolve().parent, known={root.job}))
    return place, job, TrainingFiles(objects, str(place), root, tensors, ended, scalars)


def _tensor_files(folder: Path, root: ProfileRoot) -> dict[str, Path]:
    """Return the files of a run by key; what has another name is no part of it."""
    found: dict[str, Path] = {}
    for file in files_below(folder, _LEFT_OUT):
        name = file.relative_to(folder).as_posix()
        try:
            known = match_name(name)
        except ForeignKeyError:
            known = None
        if known is not None:
            found[f"{run_prefix(root)}{name}"] = file
    return found


def _scalar_files(folder: Path, root: ProfileRoot) -> dict[str, Path]:
    found: dict[str, Path] = {}
    texts = 0
    for file in files_below(folder, _LEFT_OUT):
        name = file.relative_to(folder).as_posix()
        below = name.partition("/")[0] in SCALAR_FOLDERS
        key = f"{root.folder}{name if below else f'{_TRAINER_OUTPUT}/{name}'}"
        if match_scalar_key(key) is not None:
            found[key] = file
        elif file.suffix.lower() in _TEXTS and (file.suffix.lower() == _TABLE or texts < _MOST_TEXTS):
            # Its name says nothing of training: its beginning decides.
            texts += file.suffix.lower() != _TABLE
            with file.open("rb") as opened:
                beginning = opened.read(_LONGEST_HEADER)
            if is_history(beginning, ScalarNames()):
                found[f"{key}/{_AS_NAMED}"] = file
            elif is_training_log(beginning):
                found[f"{key}/{_AS_LOG}"] = file
    return found
