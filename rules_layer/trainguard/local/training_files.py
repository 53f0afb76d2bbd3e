"""What a job saved of its training, in a folder: debug-output, TensorBoard's event files, files of trainers.

Each file gets the key that it would have in a bucket.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from trainguard.core.errors import (
    ProfileSourceError,
    TelemetryFormatError,
    TrainGuardError,
    UnreadableKeyError,
    UnusableError,
)
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.core.ports import ListedObject, ReadableObjects
from trainguard.engine.training.stream import SCALAR_FOLDERS, ScalarKey, match_key, match_scalar_key
from trainguard.formats.tensors.debug.keys import END_NAMES, TensorKey, match_name, run_prefix
from trainguard.formats.tensors.debug.keys import FOLDER as DEBUG_OUTPUT
from trainguard.formats.tensors.scalars.log_lines import is_training_log
from trainguard.formats.tensors.scalars.names import ScalarNames, match_scalar_file
from trainguard.formats.tensors.scalars.rows import RunValues, recorded_apart, resumed_at, values_of
from trainguard.formats.tensors.scalars.run_folders import WRITTEN_TWICE, is_of_mode
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, is_history, read_history
from trainguard.local.profile import TrainingFiles
from trainguard.local.sources import (
    PROFILER_OUTPUT,
    RESULTS,
    FilesAsBucket,
    FolderFiles,
    files_below,
    safe_name,
)

_PARTS = ("index", "events", "collections")
_TRAINER_OUTPUT = "trainer-output"
_LEFT_OUT = frozenset({RESULTS, PROFILER_OUTPUT, DEBUG_OUTPUT})
_TEXTS = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt", ".out"})
_AS_NAMED, _AS_LOG = "metrics.csv", "train.log"

_LONGEST_HEADER = 64 * 1024
_TABLE = ".csv"
# Texts of a job whose beginning is looked at, but tables: data sets have many.
MOST_TEXTS = 500


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
        run = folder / DEBUG_OUTPUT if is_debug_output(folder / DEBUG_OUTPUT) else folder
        if is_debug_output(run):
            self.paths.update(_tensor_files(run, ProfileRoot("", job)))


def training_of_job(folder: Path) -> TrainingFiles | None:
    """Return what a job saved of its training, in its folder or that of its debug-output; None of nothing.

    Raises ProfileSourceError when the folder cannot be read.
    """
    try:
        if is_debug_output(folder):
            job = folder.resolve().parent if folder.name == DEBUG_OUTPUT else folder.resolve()
            root = ProfileRoot("", safe_name(job.name))
            return _found(folder, job, root, _tensor_files(folder, root))
        root = ProfileRoot("", safe_name(folder.resolve().name))
        tensors = folder / DEBUG_OUTPUT
        files = _tensor_files(tensors, root) if is_debug_output(tensors) else {}
        files |= _scalar_files(folder, root)
        return _found(folder, folder, root, files) if files else None
    except OSError as fault:
        raise ProfileSourceError(str(folder), f"cannot be read: {fault}") from fault


def scalar_run(folder: Path, run: str, files: Mapping[str, Path]) -> TrainingFiles:
    """Return the files of scalars of one run, which are given by their names below the run."""
    root = ProfileRoot("", safe_name(run))
    keys = {scalar_key(root, name, scalar_kind(file, name) or ""): file for name, file in files.items()}
    return _found(folder, folder, root, keys)


def training_of(objects: ReadableObjects, bucket: str, root: ProfileRoot, keys: Iterable[str]) -> TrainingFiles:
    """Return what a job saved of its training by the keys of its objects; those of another kind are passed over."""
    tensors = ended = False
    scalars = []
    for key in keys:
        with suppress(UnreadableKeyError):
            parsed = match_key(key)
            ended = ended or isinstance(parsed, EndKey)
            tensors = tensors or isinstance(parsed, TensorKey | EndKey)
            if isinstance(parsed, ScalarKey):
                scalars.append(key)
    return TrainingFiles(objects, bucket, root, tensors, ended, tuple(sorted(scalars)))


def scalar_key(root: ProfileRoot, name: str, kind: str = "") -> str:
    """Return the key of a file of scalars; that of a table whose name says nothing ends as one whose name does."""
    key = f"{root.folder}{_TRAINER_OUTPUT}/{name}"
    return f"{key}/{kind or _AS_NAMED}" if match_scalar_key(key) is None else key


def is_debug_output(folder: Path) -> bool:
    """Whether a folder holds tensors, whatever it is called."""
    parts = [part for part in _PARTS if (folder / part).is_dir()]
    return (
        "index" in parts
        or len(parts) > 1
        or (folder.name == DEBUG_OUTPUT and any((folder / name).is_file() for name in END_NAMES))
    )


def _found(place: Path, job: Path, root: ProfileRoot, files: dict[str, Path]) -> TrainingFiles:
    objects = FilesAsBucket(JobFiles(str(place), files, job.resolve().parent, known={root.job}))
    return training_of(objects, str(place), root, files)


def _tensor_files(folder: Path, root: ProfileRoot) -> dict[str, Path]:
    """Return the files of a run by key; what has another name is no part of it."""
    found: dict[str, Path] = {}
    for file in files_below(folder, _LEFT_OUT):
        name = file.relative_to(folder).as_posix()
        try:
            known = match_name(name)
        except UnreadableKeyError:
            known = None
        if known is not None:
            found[f"{run_prefix(root)}{name}"] = file
    return found


def _scalar_files(folder: Path, root: ProfileRoot) -> dict[str, Path]:
    found: dict[str, Path] = {}
    texts = 0
    for file in files_below(folder, _LEFT_OUT):
        name = file.relative_to(folder).as_posix()
        if is_text(file):
            texts += 1
            if texts > MOST_TEXTS:
                continue
        kind = scalar_kind(file, name)
        if kind is not None:
            below = name.partition("/")[0] in SCALAR_FOLDERS
            key = f"{root.folder}{name}"
            found[key if below and match_scalar_key(key) is not None else scalar_key(root, name, kind)] = file
    return found


def is_text(file: Path) -> bool:
    """Whether a file's beginning has to say whether it is of a training, and data sets may have many of its kind."""
    return file.suffix.lower() in _TEXTS - {_TABLE} and match_scalar_file(file.name) is None


def scalar_kind(file: Path, name: str) -> str | None:
    """Return as what a file with scalars is read: by its name, empty, or a known name; None of others; raises OSError.

    Where its name says nothing of training, its beginning decides.
    """
    if match_scalar_file(name) is not None:
        return ""
    if file.suffix.lower() not in _TEXTS or file.name in WRITTEN_TWICE:
        return None
    with file.open("rb") as opened:
        beginning = opened.read(_LONGEST_HEADER)
    if is_history(beginning, ScalarNames()):
        return _AS_NAMED
    return _AS_LOG if is_training_log(beginning) else None


# Tables of one folder that are compared; of more, all are of one run, of which the newest is judged.
MOST_TABLES = 50

_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Ranks, and the environments of one agent: ``0.monitor.csv``.
_OF_ONE_RUN = re.compile(
    r"(?i)(?:^|[^a-z])(?:rank|worker|gpu|proc|process|node|host)[-_.]?\d+(?:[^0-9]|$)|^\d+\.monitor$"
)

# Returns up to so many bytes of a file; raises OSError or UnusableError.
Read = Callable[[int], bytes]


def runs_among(files: Mapping[str, Read]) -> frozenset[str]:
    """Return which tables among a run's files are runs of their own: ``lr-0.1.csv`` and ``lr-0.01.csv`` of a sweep.

    They lie in one folder and have the same columns, and the same scalars over the same steps with other values. Tables
    of training and validation, of ranks, of parts that follow each other, and copies are of one run.
    """
    by_folder: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(files):
        if _is_table(name):
            by_folder[name.rpartition("/")[0]].append(name)
    found: set[str] = set()
    for names in by_folder.values():
        if 1 < len(names) <= MOST_TABLES:
            found |= _of_their_own({name: files[name] for name in names})
    return frozenset(found)


def _is_table(name: str) -> bool:
    stem, _, _ = name.rpartition("/")[2].rpartition(".")
    known = match_scalar_file(name)
    is_table = name.lower().endswith(_ENDINGS) and (known is None or known.kind == "csv")
    return is_table and not is_of_mode(stem) and _OF_ONE_RUN.search(stem) is None


def _of_their_own(tables: Mapping[str, Read]) -> set[str]:
    alike: defaultdict[frozenset[str], dict[str, RunValues]] = defaultdict(dict)
    for name, read in tables.items():
        try:
            rows = read_history(name, read(MAX_FILE_BYTES)).rows
        except (OSError, UnusableError, TelemetryFormatError):
            continue  # When its run is opened it is named.
        if resumed_at(recorded := values_of(rows, ScalarNames())) == 0:
            alike[frozenset(rows.names)][name] = recorded
    return {name for group in alike.values() for name in group if _are_apart(group)}


def _are_apart(group: Mapping[str, RunValues]) -> bool:
    pairs = combinations(group.values(), 2)
    return len(group) > 1 and all(recorded_apart(one, other) is not None for one, other in pairs)


_STATE = "trainer_state.json"
_STATE_BYTES = 32 * 1024 * 1024


def declared(files: TrainingFiles | None) -> tuple[int | None, int | None]:
    """Return a run's steps and its batch of a GPU, as its newest ``trainer_state.json`` that can be read has them."""
    found: tuple[int | None, int | None] = None, None
    for key in () if files is None else files.scalars:
        if files is not None and _STATE in key:
            with suppress(TrainGuardError, OSError, ValueError, RecursionError):
                state = json.loads(files.objects.get(files.bucket, key, _STATE_BYTES))
                steps, batch = _count(state.get("max_steps")), _count(state.get("train_batch_size"))
                if (steps or 0) >= (found[0] or 0):
                    found = steps, batch
    return found


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
