"""The grammar of debug-output: which objects are a run's collections, index and event files, and the mark of its end.

A key may be hostile. A base name is split at its first underscore only: names of TensorFlow's devices hold more.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast, get_args

from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import JOB_ROOT, MAX_KEY_LENGTH, EndKey, ProfileRoot, root_of
from trainguard.core.ports import BucketFiles, Files, ReadableObjects
from trainguard.formats.tensors.step_view import ReductionKind

FOLDER = "debug-output"
STREAM = "training"
# A step is complete only over all workers.
ALL_WORKERS = "all-workers"

STEPS_PER_FOLDER = 1_000
LARGEST_STEP = 999_999_999_999

EXPECTED_KEYS = (
    "<job>/debug-output/collections/<9 digits>/<worker>_collections.json, "
    "…/index/<step // 1000, 9 digits>/<step, 12 digits>_<worker>.json, "
    "…/events/<step>/<step>_<worker>.tfevents, …/claim.smd or …/training_job_end.ts"
)

_WORKER = r"(?P<worker>[A-Za-z0-9_.=-]{1,128})"
_NAMES = {
    "collections": re.compile(rf"collections/\d{{9}}/{_WORKER}_collections\.json"),
    "index": re.compile(rf"index/(?P<folder>\d{{9}})/(?P<step>\d{{12}})_{_WORKER}\.json"),
    "events": re.compile(rf"events/(?P<folder>\d{{12}})/(?P<step>\d{{12}})_{_WORKER}\.tfevents"),
}
# The second is the name before the service's release.
END_NAMES = frozenset({"training_job_end.ts", "END_OF_JOB.ts"})

_CLAIM = "claim.smd"
_KEY = re.compile(rf"{JOB_ROOT}/{FOLDER}/(?P<name>.+)")

FileKind = Literal["collections", "index", "events", "claim", "end"]


@dataclass(frozen=True, slots=True)
class RunFile:
    """What the name of a file of a run says; ``step`` and ``worker`` where it names them."""

    kind: FileKind
    worker: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class TensorKey:
    root: ProfileRoot
    file: RunFile
    node: str = ALL_WORKERS
    stream: str = STREAM
    named_at: float | None = None


def match_name(name: str) -> RunFile | None:
    """Read a file's name; None where it is of no run. Raises UnreadableKeyError for a folder that is not its step's."""
    kind, _, _ = name.partition("/")
    if match := _NAMES[kind].fullmatch(name) if kind in _NAMES else None:
        step = int(match["step"]) if kind != "collections" else 0
        expected = {"index": f"{step // STEPS_PER_FOLDER:09d}", "events": f"{step:012d}"}.get(kind)
        if expected is not None and match["folder"] != expected:
            raise UnreadableKeyError(name, f"step {step} lies in folder {match['folder']}, expected {expected}")
        return RunFile(cast("FileKind", kind), match["worker"], step)
    if name in END_NAMES:
        return RunFile("end")
    return RunFile("claim") if name == _CLAIM else None


def match_key(key: str) -> TensorKey | EndKey | None:
    """Read a key of debug-output; None when it is of another layout.

    Raises UnreadableKeyError when it is of the layout, and lies in a folder that is not its step's.
    """
    match = _KEY.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    file = None if match is None else match_name(match["name"])
    if match is None or file is None:
        return None
    return EndKey(root_of(match), STREAM) if file.kind == "end" else TensorKey(root_of(match), file)


def matched_files(files: Files, prefix: str) -> Iterator[RunFile]:
    """Iterate over the files of a run that a listing shows, without those of another layout."""
    for listed in files.list(prefix):
        try:
            file = match_name(listed.key)
        except UnreadableKeyError:
            continue
        if file is not None:
            yield file


def run_prefix(root: ProfileRoot) -> str:
    return f"{root.folder}{FOLDER}/"


def run_files(objects: ReadableObjects, bucket: str, root: ProfileRoot) -> BucketFiles:
    return BucketFiles(objects, bucket, run_prefix(root))


def index_name(step: int, worker: str) -> str:
    return f"index/{step // STEPS_PER_FOLDER:09d}/{step:012d}_{worker}.json"


def collections_name(worker: str) -> str:
    return f"collections/000000000/{worker}_collections.json"


KINDS: tuple[ReductionKind, ...] = get_args(ReductionKind)
_NAME = re.compile(rf"smdebug/reductions/(?P<abs>abs_)?(?P<kind>{'|'.join(KINDS)})/(?P<tensor>.+)", re.DOTALL)
_OUTPUT = re.compile(r":\d+")


# Which reduction of which tensor, and whether it is one of the absolute values.
Reduction = tuple[str, ReductionKind, bool]


def parse_reduction(name: str) -> Reduction | None:
    """Return what a saved reduction's name says; None for a tensor. `bare_name` is the tensor's name in it."""
    match = _NAME.fullmatch(name)
    return match and (match["tensor"], cast("ReductionKind", match["kind"]), match["abs"] is not None)


def bare_name(tensor: str) -> str:
    """Return a tensor's name as the hook puts it into the names of its reductions: without ``:0``."""
    return _OUTPUT.sub("", tensor)
