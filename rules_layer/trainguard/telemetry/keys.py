"""The grammar of S3 keys: which objects of a bucket are profile objects, of which job, node and time.

A job that SageMaker knows has the name that SageMaker gives it. One outside SageMaker has that of its place: the name
of its folder and, below a prefix, the prefix too, as in ``my-run@team-a/``. So no name is anybody else's: SageMaker's
have no at sign, and each place has its own.

A key comes from outside and may be hostile. EventBridge's wildcards let look-alikes through (the managed service's own
``rule-output/<rule>-…/profiler-output/…`` is one), so this grammar, not the event pattern, decides.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote

from trainguard.errors import ForeignKeyError
from trainguard.plain_text import is_plain

MINUTE_S = 60
EARLIEST_MINUTE = 1_420_070_400
"""2015-01-01: no training job is older, so an earlier name is not a time."""

TF_TRACE = "tf_trace"
"""The kind of a trace of TensorFlow's profiler; the keys of timelines carry their kind in their name."""

UNNAMED_PROCESS = "trace"
"""The process of a TensorFlow trace whose metadata names the host alone."""

_MAX_KEY_LENGTH = 1_024
_LONGEST_PREFIX = 200
"""Of a prefix in a job's name; what a longer one begins with is followed by its hash."""

_JOB = r"(?P<job>[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62})"
_NODE = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62}[A-Za-z0-9])?"
_ROOT = rf"(?P<prefix>(?:[^/]+/)*){_JOB}/profiler-output/"
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
_JOB_FILE = re.compile(rf"(?P<prefix>(?:(?!profiler-output/)[^/]+/)*)(?!profiler-output/){_JOB}/job\.json")


@dataclass(frozen=True, slots=True)
class ProfileRoot:
    """Where a job's profile lies: ``<prefix><job>/profiler-output/``; ``prefix`` is empty or ends in a slash."""

    prefix: str
    job: str

    @classmethod
    def of_job(cls, prefix: str, name: str) -> "ProfileRoot":
        """Return the root of a job by the prefix of its place and its name, of whichever kind that is."""
        return cls(prefix, name.replace(_at(prefix), "", 1) if prefix else name)

    @classmethod
    def named(cls, name: str) -> "ProfileRoot":
        """Return the root of a job that has not been met, as far as its name says where it lies."""
        job, _, place = name.partition("@")
        prefix = unquote(place)
        return cls(prefix, job) if prefix and _at(prefix) == f"@{place}" else cls("", name)

    @property
    def place_name(self) -> str:
        """Name of the job of this place while SageMaker does not know it."""
        return f"{self.job}{_at(self.prefix)}" if self.prefix else self.job

    @property
    def folder(self) -> str:
        """Key prefix of all that is the job's: its profile, its own file, its reports."""
        return f"{self.prefix}{self.job}/"

    @property
    def system(self) -> str:
        """Key prefix of the system metrics."""
        return f"{self.prefix}{self.job}/profiler-output/system/incremental/"

    @property
    def framework_all(self) -> str:
        """Key prefix of all that frameworks write: timelines, and traces of TensorFlow's profiler after them."""
        return f"{self.prefix}{self.job}/profiler-output/framework/"

    @property
    def framework(self) -> str:
        """Key prefix of the framework events."""
        return f"{self.framework_all}pevents/"

    @property
    def tensorflow(self) -> str:
        """Key prefix of the traces of TensorFlow's profiler."""
        return f"{self.framework_all}tensorflow/detailed_profiling/"

    @property
    def job_file(self) -> str:
        """Key of the file by which a job outside SageMaker says what it is."""
        return f"{self.prefix}{self.job}/job.json"

    @property
    def report(self) -> str:
        """Key prefix of what TrainGuard writes."""
        return f"{self.prefix}{self.job}/rule-output/TrainGuardReport/"


@dataclass(frozen=True, slots=True)
class SystemKey:
    """System metrics of one node and minute; ``minute`` is the name's epoch second, the object's sequence number."""

    root: ProfileRoot
    node: str
    minute: int


@dataclass(frozen=True, slots=True)
class FrameworkKey:
    """Framework events of one process up to ``end_us``, the end of its last event in epoch microseconds.

    ``lane`` names the process and file kind, for example ``905/pythontimeline``: the stream of which ``end_us`` is the
    sequence number.

    A trace of TensorFlow's profiler says neither its process nor its times; the empty ``.metadata`` object beside it
    does. So that object's key stands for the trace, with ``kind`` TF_TRACE and ``start_us``, the origin of its times.
    """

    root: ProfileRoot
    node: str
    process: str
    kind: str
    end_us: int
    start_us: int | None = None

    @property
    def lane(self) -> str:
        """The process's stream of files of this kind."""
        return f"{self.process}/{self.kind}"


@dataclass(frozen=True, slots=True, order=True)
class TraceKey:
    """A trace of TensorFlow's profiler: ``run`` is named by the time at which it was saved; ordered by it."""

    run: str
    host: str
    folder: str
    key: str


@dataclass(frozen=True, slots=True)
class EndKey:
    """The empty object that marks the end of a job's stream."""

    root: ProfileRoot
    stream: str


ProfileKey = SystemKey | FrameworkKey | EndKey


def parse_key(key: str) -> ProfileKey:
    """Read a key as EventBridge and ListObjectsV2 give it: never URL-encoded.

    Raises
    ------
    ForeignKeyError
        When the key is no profile object that TrainGuard reads, with the reason.
    """
    if len(key) > _MAX_KEY_LENGTH:
        raise ForeignKeyError(key[:80] + "…", f"{len(key)} characters long, expected at most {_MAX_KEY_LENGTH}")
    if not is_plain(key):
        raise ForeignKeyError(key, "holds a line break, or a character that is not seen")
    if "rule-output" in key.split("/"):
        raise ForeignKeyError(key, "lies under rule-output, which holds results and not profiles")
    if match := _SYSTEM.fullmatch(key):
        return SystemKey(_root(match), match["node"], _minute(key, match["minute"]))
    if match := _FRAMEWORK.fullmatch(key):
        host = match["host"] or match["process"]
        return FrameworkKey(_root(match), host, match["process"], match["kind"], _microsecond(key, match["end_us"]))
    if match := _TF_METADATA.fullmatch(key):
        return _tf_key(key, match)
    if match := _END.fullmatch(key):
        return EndKey(_root(match), match["stream"])
    raise ForeignKeyError(
        key,
        "expected <job>/profiler-output/system/incremental/<YYYYMMDDHH>/<epoch s>.<node>.json, "
        "…/framework/pevents/<YYYYMMDDHH>/<epoch us>_<pid>-<node>_<kind>.json, "
        "…/framework/tensorflow/detailed_profiling/<YYYYMMDDHH>/<step>/<node>_<start us>_<end us>.metadata "
        "or …/training_job_end.ts",
    )


def parse_job_file_key(key: str) -> ProfileRoot | None:
    """Return whose job file a key is, the file beside ``profiler-output``; None for any other object."""
    if len(key) > _MAX_KEY_LENGTH or not is_plain(key) or "rule-output" in key.split("/"):
        return None
    match = _JOB_FILE.fullmatch(key)
    return None if match is None else _root(match)


def parse_trace_key(key: str) -> TraceKey | None:
    """Read the key of a trace of TensorFlow's profiler; None for any other object."""
    match = _TF_TRACE.fullmatch(key) if len(key) <= _MAX_KEY_LENGTH else None
    return None if match is None else TraceKey(match["run"], match["host"], match["folder"], key)


def system_key(root: ProfileRoot, node: str, minute: int) -> str:
    """Return the key of a node's minute."""
    return f"{root.system}{hour_folder(minute)}/{minute:010d}.{node}.json"


def hour_folder(epoch_s: int) -> str:
    """Return the UTC hour folder ``YYYYMMDDHH`` of a time in epoch seconds."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%d%H")


@lru_cache(maxsize=256)
def _at(prefix: str) -> str:
    """Return how a prefix stands in a name: nothing in it but letters, digits and ``/ = + _ - % ~`` survives.

    So a name can be pasted into a shell, is no address to a program that looks for some, and is as long as it may be.
    """
    encoded = quote(prefix, safe="/=+").replace(".", "%2E").replace("~", "%7E")
    if len(encoded) > _LONGEST_PREFIX:
        encoded = f"{encoded[: _LONGEST_PREFIX - 40]}~{sha256(prefix.encode()).hexdigest()[:32]}/"
    return f"@{encoded}"


def _root(match: re.Match[str]) -> ProfileRoot:
    return ProfileRoot(match["prefix"], match["job"])


def _tf_key(key: str, match: re.Match[str]) -> FrameworkKey:
    start_us, end_us = _microsecond(key, match["start_us"]), _microsecond(key, match["end_us"])
    if start_us > end_us:
        raise ForeignKeyError(key, f"its start {start_us} lies after its end {end_us}")
    return FrameworkKey(_root(match), match["host"], match["process"] or UNNAMED_PROCESS, TF_TRACE, end_us, start_us)


def _microsecond(key: str, digits: str) -> int:
    time_us = int(digits)
    if time_us < EARLIEST_MINUTE * 1_000_000:
        raise ForeignKeyError(key, f"its time {time_us} lies before 2015")
    return time_us


def _minute(key: str, digits: str) -> int:
    minute = int(digits)
    if minute < EARLIEST_MINUTE:
        raise ForeignKeyError(key, f"its minute {minute} lies before 2015")
    return minute
