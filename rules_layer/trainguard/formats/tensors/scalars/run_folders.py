"""Which files of scalars are of one run, by the folders that trainers and their loggers write.

A folder is a run. What trainers write below a run's folder belongs to it: the folders of training and evaluation (the
TensorBoard callback of Keras), of ``add_scalars`` and ``add_hparams`` (torch/utils/tensorboard/writer.py,
tensorboardX), the checkpoints and ``runs/`` of Hugging Face's Trainer, and the folders of loggers beside each other.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.formats.tensors.scalars.names import SourceKind, match_scalar_file

_TRAIN = frozenset({"train", "training", "learn"})
_EVAL = frozenset({"val", "valid", "validation", "eval", "evaluation"})
# What people also call a run.
_TEST = frozenset({"test", "dev"})

_MODES = _TRAIN | _EVAL | _TEST
_OF_MODE = re.compile(rf"(?P<run>.+)[-_.](?P<mode>{'|'.join(sorted(_MODES, key=len, reverse=True))})", re.IGNORECASE)
_LOGGERS = re.compile(
    r"csv|events|logs?|metrics|summar(?:y|ies)|(?:csv|tb|tensorboard)_logs?|tb|tensorboard", re.IGNORECASE
)
_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}")
_OF_A_RUN = re.compile(rf"checkpoints|{_CHECKPOINT.pattern}|{_LOGGERS.pattern}", re.IGNORECASE)
# ``add_hparams`` calls a folder by the time.
_HPARAMS = re.compile(r"\d{9,12}(?:\.\d+)?")

_RUNS, _STATE = "runs", "trainer_state.json"

# Tables that CatBoost writes beside event files with the same numbers (catboost/libs/loggers).
WRITTEN_TWICE = frozenset({"learn_error.tsv", "test_error.tsv", "time_left.tsv"})

# Return the one tag of an event file, None of one that has several or cannot be read.
MainTag = Callable[[str], str | None]


def runs_of(names: Iterable[str], main_tag: MainTag) -> dict[str, dict[str, str]]:
    """Return the runs that recorded some files of scalars by folder, in order: names below the run by file.

    Folders are below the place that was looked at, "" is the place itself.
    """
    files: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        files[folder].append(file)
    tree = _Tree(files, main_tag)
    places = {folder: tree.place(folder) for folder in files}
    kinds: defaultdict[str, set[SourceKind]] = defaultdict(set)
    for folder, (run, _) in places.items():
        kinds[run].update(map(_kind, files[folder]))
    loggers = _beside(kinds)
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    taken: set[tuple[str, str]] = set()
    for folder, (run, below) in places.items():
        top = loggers.get(run, run)
        for file in files[folder]:
            path, short = _join(folder, file), _join(below, file)
            found[top][path] = path if (top, short) in taken else short
            taken.add((top, short))
    return dict(sorted(found.items()))


def is_of_mode(name: str) -> bool:
    """Whether a name says that something is of training or of evaluation: ``val``, ``loss_train``."""
    return name.lower() in _MODES or _OF_MODE.fullmatch(name) is not None


def run_name(folder: str) -> str:
    """Return what a run is called by its whole folder: the last part that says more than what is logged there."""
    parts = [part for part in folder.split("/") if part]
    said = [part for part in parts if part.lower() not in _MODES and not _OF_A_RUN.fullmatch(part)]
    return (said or parts or [""])[-1]


_BEGINNING = 64 * 1024


def first_tags(files: Files, name: str) -> Sequence[str]:
    """Return the tags at the beginning of an event file; none of one that cannot be read."""
    from trainguard.formats.tensors.scalars.bulk import read_scalars  # noqa: PLC0415 -- it imports protobuf

    try:
        found = read_scalars(files, name, 0, _BEGINNING)
    except (TelemetryFormatError, ProfileSourceError, ObjectMissingError):
        return ()
    return () if found is None else found.tags


def main_tag(files: Files, name: str) -> str | None:
    """Return the one tag at the beginning of an event file; None of one that has several or cannot be read."""
    tags = first_tags(files, name)
    return tags[0] if len(tags) == 1 else None


class _Tree:
    def __init__(self, files: Mapping[str, Sequence[str]], main_tag: MainTag) -> None:
        self._files = files
        self._main_tag = main_tag
        self._below: defaultdict[str, set[str]] = defaultdict(set)
        self._states: set[str] = set()
        self._events: dict[str, str] = {}
        for folder, names in files.items():
            parent, _, last = folder.rpartition("/")
            if folder:
                self._below[parent].add(last)
            if _STATE in names:
                self._states.add(parent if _CHECKPOINT.fullmatch(last) else folder)
            event = next((file for file in names if _kind(file) == "events"), None)
            if event is not None:
                self._events[folder] = _join(folder, event)

    def place(self, folder: str) -> tuple[str, str]:
        """Return the run of a folder, and what the folder is called below it."""
        below = ""
        while (found := self._above(folder)) is not None:
            folder, name = found
            below = _join(name, below)
        return folder, below

    def _above(self, folder: str) -> tuple[str, str] | None:
        """Return the folder that one belongs to, and what it is called there; None of one that stands alone."""
        if not folder:
            return None
        parent, _, name = folder.rpartition("/")
        if _CHECKPOINT.fullmatch(name):
            return parent, name
        if parent.rpartition("/")[2] == _RUNS and parent.rpartition("/")[0] in self._states:
            return parent.rpartition("/")[0], ""
        return self._of_writer(folder) or self._of_mode(parent, name)

    def _of_writer(self, folder: str) -> tuple[str, str] | None:
        """Return the folder of the writer that made a folder for ``add_scalars`` or ``add_hparams``.

        The former's has the one tag by which it is called: ``loss_train`` or, of tensorboardX, ``loss/train``.
        """
        if folder not in self._events:
            return None
        above = parent = folder.rpartition("/")[0]
        while above and above not in self._events:
            above = above.rpartition("/")[0]
        name = folder.removeprefix(above).strip("/")
        is_written = above in self._events
        if is_written and _HPARAMS.fullmatch(name):
            return above, name
        tag = self._main_tag(self._events[folder]) if is_written or _OF_MODE.fullmatch(_last(folder)) else None
        if tag is None:
            return None
        begins = f"{tag}_".replace("/", "_")
        if is_written:
            return (above, name) if name.replace("/", "_").startswith(begins) else None
        name = _last(folder)
        return (parent, name) if name.removeprefix(begins).lower() in _MODES else None

    def _of_mode(self, parent: str, name: str) -> tuple[str, str] | None:
        beside = self._below[parent] - {name}
        mode = name.lower()
        if mode in _MODES:
            others = {each.lower() for each in beside} & _MODES
            joined = others & (_TRAIN | _EVAL) if mode in _TEST else others or self._files.get(parent)
            return (parent, mode) if joined else None
        match = _OF_MODE.fullmatch(name)
        if match is None:
            return None
        others = {found["mode"].lower() for each in beside if (found := _of_run(each, match["run"]))}
        mode = match["mode"].lower()
        pairs = (mode in _TRAIN and others & (_EVAL | _TEST)) or (mode not in _TRAIN and others & _TRAIN)
        return (_join(parent, match["run"]), mode) if pairs or match["run"] in beside else None


def _of_run(name: str, run: str) -> re.Match[str] | None:
    match = _OF_MODE.fullmatch(name)
    return match if match is not None and match["run"] == run else None


def _beside(kinds: Mapping[str, Set[SourceKind]]) -> dict[str, str]:
    """Return the folders of loggers that record one run in files of different kinds, each with the run's folder."""
    by_parent: defaultdict[str, set[str]] = defaultdict(set)
    for run in kinds:
        if run:
            by_parent[run.rpartition("/")[0]].add(run)
    found = {}
    for parent, runs in by_parent.items():
        every = [*sorted(runs), *([parent] if parent in kinds else [])]
        others = [run for run in every if run == parent or not _LOGGERS.fullmatch(_last(run))]
        if len(every) > 1 and len(others) <= 1 and _are_apart([kinds[run] for run in every]):
            found.update(dict.fromkeys(runs, parent))
    return found


def _are_apart(kinds: Sequence[Set[SourceKind]]) -> bool:
    return sum(map(len, kinds)) == len(set().union(*kinds))


def _kind(file: str) -> SourceKind:
    """Return the kind of a file; one whose name says nothing is a table."""
    found = match_scalar_file(file)
    return "csv" if found is None else found.kind


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
