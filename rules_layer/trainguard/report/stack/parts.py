"""What the functions of a full report hand to one another in S3: the items to read, and digests of what was read.

All lies under ``<job>/rule-output/TrainGuardReport/parts/<run>/``: ``items.json`` for the whole run, ``training.json``
for what was read of debug-output and files of scalars, and
``nodes/<node>/<day>.<number>``, a part for each invocation that read some of that node's day. Where the plan has listed
a day for all nodes, ``keys/<node>/<day>`` has a node's keys, and ``keys/<node>/<day>.001`` more of them.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from trainguard.errors import ReportPartError, ReportRunError
from trainguard.layout import ProfileRoot
from trainguard.telemetry.unpack import UNREADABLE
from trainguard.timeline.axis import FINER, MAX_BUCKETS
from trainguard.timeline.series import TimeAxis

DAY_S = 86_400
LAST_DAY = 253_370_764_800
"""The year 9999: no later day has a name."""

MAX_PARTS = 24
"""Invocations for one node's day; what they have not read by then is named as missing."""

PARTS_TYPE = "application/octet-stream"
_PART_FORMAT = 1
_RUN = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PART_NAME = re.compile(r"(?P<node>[A-Za-z0-9.-]{1,64})/(?P<day>\d{4}-\d{2}-\d{2})\.(?P<number>\d{3})")


class DigestItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node's UTC day to digest, and how far that has come: what `digest_profile` takes, and gives back.

    Attributes
    ----------
    job, bucket, prefix : str
        The job, and where its folder lies.
    run : str
        The execution that the report is made in.
    node : str
    day : int
        Its first second, epoch seconds.
    axis : TimeAxis
        The axis that all parts of the report share.
    until : float or None
        Epoch seconds after which no more is read, so that the report is built before its execution ends.
    after : str
        The last key that was read; empty at the beginning.
    part : int
        Number of the next part.
    more : bool
        Whether something is left to be read.
    listed : bool
        Whether the plan has left lists of the node's keys of the day.
    lists : int
        How many; an item of before there were several has one.
    tensors : bool
        Whether this is the whole of debug-output and of files of scalars instead of a node's day.
    debug_output, scalars : bool
        Whether debug-output is part of it, and whether files of scalars are.
    confusion : dict of str to str
        The parameters of Confusion that name labels and predictions.
    other_runs : dict of str to int
        By the name of a file of scalars, the first step from which on its rows are of another run.
    scalar_names : dict of str to str
        The patterns of names of scalars that the job's settings replace, by meaning.
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
    scalar_names: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an axis that no plan makes: memory is taken for each of its buckets."""
        if not 0 <= self.axis.buckets <= MAX_BUCKETS * FINER:
            raise ValueError(f"the axis has {self.axis.buckets} buckets, expected at most {MAX_BUCKETS * FINER}")

    @property
    def date(self) -> str:
        """The day as ``YYYY-MM-DD``."""
        return _date(self.day)

    @property
    def place(self) -> "RunPlace":
        """Where the run's files lie."""
        return RunPlace(ProfileRoot.of_job(self.prefix, self.job), self.run)


class Part(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one invocation read of a node's day: the objects after the key ``after`` and up to ``through``.

    ``done`` says that there was no more. ``unread`` counts objects that were listed and could not be used. ``digest``
    is an encoded `NodeDigest`.
    """

    format: int = _PART_FORMAT
    after: str
    through: str
    done: bool
    unread: int
    digest: bytes


class RunPlace:
    """Names of a run's files in the bucket; raises ReportRunError for a run that is no name of an execution."""

    def __init__(self, root: ProfileRoot, run: str) -> None:
        if not _RUN.fullmatch(run):
            raise ReportRunError(run)
        self.all_runs = f"{root.report}parts/"
        self.folder = f"{self.all_runs}{run}/"
        self.items = f"{self.folder}items.json"
        self.nodes = f"{self.folder}nodes/"
        self.training = f"{self.folder}training.json"

    def part(self, item: DigestItem) -> str:
        """Return the key of the item's next part."""
        return f"{self.nodes}{item.node}/{item.date}.{item.part:03d}"

    def keys(self, node: str, day: int, number: int = 0) -> str:
        """Return the key of a list of what a node wrote on a day, which begins at ``day``, epoch seconds."""
        return f"{self.folder}keys/{node}/{_date(day)}" + (f".{number:03d}" if number else "")

    def parse_part(self, key: str) -> tuple[str, str, int] | None:
        """Return (node, date, number) of a part's key; None for any other object."""
        match = _PART_NAME.fullmatch(key.removeprefix(self.nodes))
        return None if match is None else (match["node"], match["day"], int(match["number"]))


def _date(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d")


def encode_items(items: list[DigestItem]) -> bytes:
    """Return the items as the JSON array that a Distributed Map reads."""
    return msgspec.json.encode(items)


def decode_items(key: str, body: bytes) -> list[DigestItem]:
    """Read the items back; raises ReportPartError when they are none."""
    try:
        return msgspec.json.decode(body, type=list[DigestItem])
    except UNREADABLE as fault:
        raise ReportPartError(key, str(fault)) from fault


def encode_part(part: Part) -> bytes:
    """Return a part as bytes."""
    return msgspec.msgpack.encode(part)


def decode_part(key: str, body: bytes) -> Part:
    """Read a part back; raises ReportPartError when it is none, or of another version of this code."""
    try:
        part = msgspec.msgpack.decode(body, type=Part)
    except UNREADABLE as fault:
        raise ReportPartError(key, str(fault)) from fault
    if part.format != _PART_FORMAT:
        raise ReportPartError(key, f"format {part.format}, expected {_PART_FORMAT}")
    return part
