"""The grammar of S3 keys: which objects of a bucket are profile objects, of which job, node and time.

A job outside SageMaker has the name of its place, as ``my-run@team-a/``: SageMaker's names have no at sign, so no two
jobs share a name. Keys may be hostile; EventBridge's wildcards let look-alikes through, so this grammar decides.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import JOB_ROOT, MAX_KEY_LENGTH, EndKey, ProfileRoot, check_key, hour_folder, root_of

MINUTE_S = 60
# 2015-01-01: no training job is older, so an earlier name is not a time.
EARLIEST_MINUTE = 1_420_070_400

EXPECTED_KEYS = (
    "<job>/profiler-output/system/incremental/<YYYYMMDDHH>/<epoch s>.<node>.json, "
    "…/framework/pevents/<YYYYMMDDHH>/<epoch us>_<pid>-<node>_<kind>.json, "
    "…/framework/tensorflow/detailed_profiling/<YYYYMMDDHH>/<step>/<node>_<start us>_<end us>.metadata "
    "or …/training_job_end.ts"
)

TF_TRACE = "tf_trace"

# The process of a TensorFlow trace whose metadata names the host alone.
UNNAMED_PROCESS = "trace"

_NODE = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62}[A-Za-z0-9])?"
_ROOT = rf"{JOB_ROOT}/profiler-output/"
_HOUR = r"\d{10}"
_SYSTEM = re.compile(rf"{_ROOT}system/incremental/{_HOUR}/(?P<minute>\d{{10}})\.(?P<node>{_NODE})\.json")
_FRAMEWORK = re.compile(
    rf"{_ROOT}framework/pevents/{_HOUR}/(?P<end_us>\d{{16}})_(?P<process>[A-Za-z0-9]{{1,20}})"
    rf"(?:-(?P<host>{_NODE}))?(?:_\d{{4}})?_(?P<kind>pythontimeline|model_timeline|horovod_timeline|smdataparallel_timeline)\.json"
)
_TF_METADATA = re.compile(
    rf"{_ROOT}framework/tensorflow/detailed_profiling/{_HOUR}/\d{{1,20}}/"
    rf"(?:(?P<process>\d{{1,20}})-)?(?P<host>{_NODE})_(?P<start_us>\d{{16}})_(?P<end_us>\d{{16}})\.metadata"
)
_TF_TRACE = re.compile(
    rf"(?P<folder>{_ROOT}framework/tensorflow/detailed_profiling/{_HOUR}/\d{{1,20}}/)"
    rf"plugins/profile/(?P<run>[A-Za-z0-9_.:-]{{1,64}})/(?P<host>{_NODE})\.trace\.json\.gz"
)
_END = re.compile(rf"{_ROOT}(?P<stream>system|framework)/training_job_end\.ts")


@dataclass(frozen=True, slots=True)
class SystemKey:
    """System metrics of one node and minute; ``minute`` is the name's epoch second, the object's sequence number."""

    stream: ClassVar[str] = "system"

    root: ProfileRoot
    node: str
    minute: int

    @property
    def named_at(self) -> float:
        return float(self.minute)


@dataclass(frozen=True, slots=True)
class FrameworkKey:
    """Framework events of one process up to ``end_us``, the end of its last event in epoch microseconds.

    A trace of TensorFlow's profiler says neither process nor times; the ``.metadata`` object beside it does. So that
    object's key stands for the trace, with ``kind`` TF_TRACE and ``start_us``, the origin of its times.
    """

    stream: ClassVar[str] = "framework"

    root: ProfileRoot
    node: str
    process: str
    kind: str
    end_us: int
    start_us: int | None = None

    @property
    def named_at(self) -> float:
        return self.end_us / 1_000_000

    @property
    def position(self) -> int:
        return self.end_us

    @property
    def partition(self) -> str:
        return f"{self.process}/{self.kind}"


@dataclass(frozen=True, slots=True, order=True)
class TraceKey:
    """A trace of TensorFlow's profiler: ``run`` is named by the time at which it was saved; ordered by it."""

    run: str
    host: str
    folder: str
    key: str


ProfileKey = SystemKey | FrameworkKey | EndKey

# A key, what it says, and when S3 got the object (epoch seconds).
FrameworkName = tuple[str, FrameworkKey, float]


def match_key(key: str) -> ProfileKey | None:
    """Read a key of a profile; None for another layout. Raises UnreadableKeyError for times that cannot be."""
    if match := _SYSTEM.fullmatch(key):
        return SystemKey(root_of(match), match["node"], _time(key, match["minute"], "minute"))
    if match := _FRAMEWORK.fullmatch(key):
        host = match["host"] or match["process"]
        return FrameworkKey(root_of(match), host, match["process"], match["kind"], _time(key, match["end_us"]))
    if match := _TF_METADATA.fullmatch(key):
        start_us, end_us = _time(key, match["start_us"]), _time(key, match["end_us"])
        if start_us > end_us:
            raise UnreadableKeyError(key, f"its start {start_us} lies after its end {end_us}")
        process = match["process"] or UNNAMED_PROCESS
        return FrameworkKey(root_of(match), match["host"], process, TF_TRACE, end_us, start_us)
    if match := _END.fullmatch(key):
        return EndKey(root_of(match), match["stream"])
    return None


def parse_key(key: str) -> ProfileKey:
    """Read a key, never URL-encoded; raises UnreadableKeyError when it is no profile object that TrainGuard reads."""
    check_key(key)
    parsed = match_key(key)
    if parsed is None:
        raise UnreadableKeyError(key, f"expected {EXPECTED_KEYS}")
    return parsed


def parse_trace_key(key: str) -> TraceKey | None:
    match = _TF_TRACE.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    return None if match is None else TraceKey(match["run"], match["host"], match["folder"], key)


def system_key(root: ProfileRoot, node: str, minute: int) -> str:
    return f"{root.system}{hour_folder(minute)}/{minute:010d}.{node}.json"


def _time(key: str, digits: str, what: str = "time") -> int:
    """Return a minute in seconds, or a time in microseconds."""
    found = int(digits)
    if found < EARLIEST_MINUTE * (1 if what == "minute" else 1_000_000):
        raise UnreadableKeyError(key, f"its {what} {found} lies before 2015")
    return found
