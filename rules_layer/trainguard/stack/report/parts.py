"""Files between the functions of a full report in S3: the items to read, and digests of what was read.

All lies under ``<job>/rule-output/TrainGuardReport/parts/<run>/``: ``items.json``, ``training.json`` for debug-output
and files of scalars, and ``nodes/<node>/<day>.<number>``, a part for each invocation. ``keys/<node>/<day>`` (and
``<day>.001``, …) has a node's keys of a day that the plan has listed.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from trainguard.core.errors import ReportPartError, ReportRunError
from trainguard.core.layout import ProfileRoot
from trainguard.formats.profile.system import DECODE_ERRORS
from trainguard.formats.tensors.scalars.segments import Segments
from trainguard.report.timeline.series import FINER, MAX_BUCKETS, TimeAxis

DAY_S = 86_400
# The year 9999: no later day has a name.
LAST_DAY = 253_370_764_800

# Reading time: of the day that an execution has, a quarter is left to build the report.
READING_S = 18 * 3_600

# As many as an inline Map runs at once, and few beside the thousand functions that an account may run.
DIGESTS_AT_ONCE = 40

# Invocations for one node's day; what they have not read by then is named as missing.
MAX_PARTS = 24

PARTS_TYPE = "application/octet-stream"
_PART_FORMAT = 1
_RUN = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PART_NAME = re.compile(r"(?P<node>[A-Za-z0-9.-]{1,64})/(?P<day>\d{4}-\d{2}-\d{2})\.(?P<number>\d{3})")


class DigestItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node's UTC day to digest, and how far that has come: what `digest_profile` takes and returns.

    ``day`` is its first second, ``until`` when reading ends so that the report is built in time; epoch seconds.
    ``after`` is the last key that was read, ``part`` the number of the next part. ``lists`` counts those that the plan
    has left. ``tensors`` stands for all debug-output and scalars instead of a day. ``other_runs`` is the first step of
    another run by file, ``segments`` are of sources of scalars, ``scalar_names`` are replaced patterns by
    meaning.
    """

    job: str
    bucket: str
    prefix: str
    run: str
    node: str
    day: Annotated[int, msgspec.Meta(ge=0, le=LAST_DAY)]
    axis: TimeAxis
    until: float | None = None
    after: str = ""
    part: int = 0
    more: bool = True
    listed: bool = False
    lists: int = 1
    tensors: bool = False
    debug_output: bool = True
    scalars: bool = False
    confusion: dict[str, str] = msgspec.field(default_factory=dict)
    other_runs: dict[str, int] = msgspec.field(default_factory=dict)
    segments: dict[str, Segments] = msgspec.field(default_factory=dict)
    scalar_names: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for an axis that no plan makes: memory is taken for each of its buckets."""
        if not 0 <= self.axis.buckets <= MAX_BUCKETS * FINER:
            raise ValueError(f"the axis has {self.axis.buckets} buckets, expected at most {MAX_BUCKETS * FINER}")

    @property
    def date(self) -> str:
        return _date(self.day)

    @property
    def root(self) -> ProfileRoot:
        return ProfileRoot.of_job(self.prefix, self.job)

    @property
    def place(self) -> "RunPlace":
        return RunPlace(self.root, self.run)


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one invocation read of a node's day, ``after`` to ``through``; ``digest`` is an encoded `NodeDigest`."""

    format: int = _PART_FORMAT
    after: str
    through: str
    done: bool
    unread: int
    digest: bytes


class RunPlace:
    """Names of a run's files in the bucket; raises ReportRunError for an invalid name of an execution."""

    def __init__(self, root: ProfileRoot, run: str) -> None:
        if not _RUN.fullmatch(run):
            raise ReportRunError(run)
        self.all_runs = f"{root.report}parts/"
        self.folder = f"{self.all_runs}{run}/"
        self.items = f"{self.folder}items.json"
        self.nodes = f"{self.folder}nodes/"
        self.training = f"{self.folder}training.json"

    def part(self, item: DigestItem) -> str:
        return f"{self.nodes}{item.node}/{item.date}.{item.part:03d}"

    def keys(self, node: str, day: int, number: int = 0) -> str:
        """Return the key of a list of a node's keys on the day that begins at ``day``, epoch seconds."""
        return f"{self.folder}keys/{node}/{_date(day)}" + (f".{number:03d}" if number else "")

    def parse_part(self, key: str) -> tuple[str, str, int] | None:
        """Return (node, date, number) of a part's key; None for any other object."""
        match = _PART_NAME.fullmatch(key.removeprefix(self.nodes))
        return None if match is None else (match["node"], match["day"], int(match["number"]))


def _date(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d")


def encode_items(items: list[DigestItem]) -> bytes:
    return msgspec.json.encode(items)


def decode_items(key: str, body: bytes) -> list[DigestItem]:
    try:
        return msgspec.json.decode(body, type=list[DigestItem])
    except DECODE_ERRORS as fault:
        raise ReportPartError(key, str(fault)) from fault


def encode_part(part: ReportPart) -> bytes:
    return msgspec.msgpack.encode(part)


def decode_part(key: str, body: bytes) -> ReportPart:
    """Read a part back; raises ReportPartError, also for another version of this code."""
    try:
        part = msgspec.msgpack.decode(body, type=ReportPart)
    except DECODE_ERRORS as fault:
        raise ReportPartError(key, str(fault)) from fault
    if part.format != _PART_FORMAT:
        raise ReportPartError(key, f"format {part.format}, expected {_PART_FORMAT}")
    return part
