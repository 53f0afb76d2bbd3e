"""Which objects of a job are dumps and stacks of its ranks, and what those of its newest standstill say.

The collector writes ``<job>/hang-dumps/<node>/<time>/nccl_trace_rank_<N>`` and ``stack_rank_<N>.txt``. Dumps that the
flight recorder writes by itself (``TORCH_FR_DUMP_TEMP_FILE``) lie in another folder of the job.
"""

import hashlib
import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Protocol

import msgspec

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, UnusableError
from trainguard.core.layout import RESULTS_FOLDER, ProfileRoot, is_future
from trainguard.core.ports import ListedObject, ReadableObjects
from trainguard.core.text import one_line
from trainguard.formats.hangs.flight_recorder import Dump, Operation, is_dump, rank_of_name, read_dump
from trainguard.formats.hangs.ras import RasAnswer, is_ras_answer, read_ras
from trainguard.formats.hangs.stacks import StackError, ThreadStack, is_stacks, main_thread
from trainguard.hangs.verdict import Culprit, HangVerdict, hang_verdict, place_of
from trainguard.rules.rule_inputs import MOST_KNOWN, KnownHang, KnownRank

# Bytes of a file, unpacked.
MOST_BYTES = 64 * 1024 * 1024

# Newest operations of a group that are kept of a dump, beside all that have not ended: others say nothing of now.
KEPT_OPERATIONS = 64

# Stacks of a process whose rank is not known: their names end with its number.
_OF_PROCESS = "stack_process_"

_HEAD = 4_096
_GZIP = b"\x1f\x8b"


# The newest operation of a dump, how many it holds, when its file was written, epoch seconds, and its name.
_Age = tuple[int, int, float, str]


class HangFiles:
    """The files of a job that stands still; of two of a rank the newer counts, whichever comes first.

    unread: By file, why it was not read. size: Bytes of all that was read, unpacked.
    """

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        self.size = 0
        self._dumps: dict[int, tuple[_Age, Dump]] = {}
        self._stacks: dict[int, tuple[tuple[float, str], ThreadStack]] = {}
        self._answers: list[RasAnswer] = []

    @property
    def is_empty(self) -> bool:
        return not (self._dumps or self._stacks or self._answers)

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks of which there is a dump or a stack."""
        return frozenset({*self._dumps, *self._stacks})

    def refuse(self, name: str, reason: str) -> None:
        self.unread[one_line(name, 200)] = one_line(reason, 400)

    def add(self, name: str, data: bytes, at: float = 0.0) -> None:
        """Take in a file, packed or not, written at ``at``, epoch seconds; one that cannot be read is noted."""
        try:
            plain = unpacked(data)
        except zlib.error as fault:
            self.refuse(name, str(fault))
            return
        if len(plain) > MOST_BYTES:
            self.refuse(name, f"over {MOST_BYTES:,} bytes, expected fewer")
            return
        self.size += len(plain)
        try:
            self._take(name.removesuffix(".gz"), plain, at)
        except UnusableError as fault:
            self.refuse(name, fault.reason)

    def verdict(self) -> HangVerdict:
        dumps = [dump for _, dump in self._dumps.values()]
        stacks = {rank: stack for rank, (_, stack) in self._stacks.items()}
        return hang_verdict(dumps, stacks, self.unread, self._answers)

    def _take(self, name: str, data: bytes, at: float) -> None:
        head = data[:_HEAD]
        if is_ras_answer(head):
            self._answers.append(read_ras(data, name))
        elif is_stacks(head) or is_stacks(data[: 16 * _HEAD]):
            thread = main_thread(data, name)
            rank = None if _OF_PROCESS in name.rpartition("/")[2] else rank_of_name(name)
            if rank is None:
                place = place_of(thread).line
                raise StackError(
                    name, f"it is of no known rank, at {place}; a name ends with the rank, for example stack_12.txt"
                )
            known = self._stacks.get(rank)
            if known is None or known[0] <= (at, name):
                self._stacks[rank] = (at, name), thread
        elif is_dump(head, name):
            dump = read_dump(data, name)
            age = max((each.order for each in dump.operations), default=-1), len(dump.operations), at, name
            if dump.rank not in self._dumps or self._dumps[dump.rank][0] <= age:
                self._dumps[dump.rank] = age, _of_now(dump)


def _of_now(dump: Dump) -> Dump:
    """Return a dump without what ended long ago, and with lines of code where a rank may be: 2,000 take a megabyte."""
    kept: list[Operation] = []
    seen: Counter[tuple[str, bool]] = Counter()
    for each in reversed(dump.operations):
        kind = each.group, each.peer is not None
        seen[kind] += 1
        if not each.is_over:
            kept.append(each)
        elif seen[kind] <= KEPT_OPERATIONS:
            kept.append(replace(each, where=()))
    return replace(dump, operations=tuple(reversed(kept)))


def unpacked(data: bytes) -> bytes:
    """Return the bytes of a file, of one that is packed at most one more than are read; raises zlib.error."""
    if data[:2] != _GZIP:
        return data
    return zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES + 1)


# Characters of a line of code; of a longer one the end, which has the function.
LONGEST_LINE = 200

_NO_NODES: Mapping[int, str] = MappingProxyType({})


def known_hang(
    verdict: HangVerdict, nodes: Mapping[int, str] = _NO_NODES, *, version: str = "", at: float = 0.0, files: int = 0
) -> KnownHang:
    """Return the facts of a verdict; ``nodes`` are those that the files of ranks lie under."""
    ranks = sorted(nodes)
    return KnownHang(
        version=version,
        at=at,
        named=tuple(_known(each, verdict, nodes, ranks) for each in verdict.details[:MOST_KNOWN]),
        culprits=len(verdict.culprits),
        waiting=len(verdict.victims),
        without_dump=len(verdict.without_dump),
        ranks=verdict.ranks,
        operation=verdict.operation,
        group=verdict.group_description or verdict.group,
        sequence=verdict.sequence,
        waiting_line=verdict.waiting_line[-LONGEST_LINE:],
        files=files,
        unread=len(verdict.unread),
    )


def _known(culprit: Culprit, verdict: HangVerdict, nodes: Mapping[int, str], ranks: Sequence[int]) -> KnownRank:
    is_awaited = culprit.group == verdict.group
    return KnownRank(
        rank=culprit.rank,
        kind=culprit.kind,
        node=nodes.get(culprit.rank) or _node_between(culprit.rank, nodes, ranks),
        operation=culprit.operation,
        group=(verdict.group_description if is_awaited else "") or culprit.group,
        sequence=culprit.sequence,
        line=culprit.line[-LONGEST_LINE:],
        doing=culprit.doing,
        waiting=culprit.waiting,
    )


def _node_between(rank: int, nodes: Mapping[int, str], ranks: Sequence[int]) -> str:
    """Return the node of a rank without a file: that of the ranks before and behind it, where it is the same."""
    place = bisect_left(ranks, rank)
    if not 0 < place < len(ranks):
        return ""
    before, behind = nodes[ranks[place - 1]], nodes[ranks[place]]
    return before if before == behind else ""


HANG_FOLDER = "hang-dumps"
# Folders of a job in which the recorder's own dumps are looked for.
OWN_FOLDERS = ("checkpoints", "tensorboard-output", "trainer-output", "profiler-output")

OWN_NAME = "nccl_trace_rank_"
# The keys of dumps and stacks, as IAM writes them.
HANG_READS = (f"*/{HANG_FOLDER}/*", *(f"*/{folder}/{OWN_NAME}*" for folder in OWN_FOLDERS))

# The files of one standstill are written within so long: ranks give a collective up after 10 minutes.
WINDOW_S = 1_200.0

MOST_FILES = 20_000
# Bytes of all files together, unpacked: a thousand full dumps, which take five minutes.
MOST_ALL_BYTES = 384 * 1024 * 1024

# Beside the report: a `KnownHang`.
HANG_FILE = "hang.json"

# Its key, as IAM writes it.
KEPT_HANG = f"*/{RESULTS_FOLDER}/TrainGuardReport/{HANG_FILE}"

_MOST_KEPT_BYTES = 256 * 1024
_AT_ONCE = 10
_AHEAD = 40
FILE_NAME = re.compile(
    r"(?:nccl_trace_rank_\d{1,7}(?:\.json)?|stack_rank_\d{1,7}\.(?:json|txt)|stack_process_\d{1,9}\.(?:json|txt)|"
    r"(?:nccl)?ras[^/]{0,80}\.json)(?:\.gz)?"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")


@dataclass(frozen=True, slots=True)
class HangFile:
    """A dump, a stack, or an answer of RAS, taken ``at`` epoch seconds; ``node`` is empty where it is unknown."""

    key: str
    name: str
    node: str
    at: float
    modified_at: float
    mark: str

    @property
    def rank(self) -> int | None:
        is_of_rank = "_rank_" in self.name.rpartition("/")[2]
        return rank_of_name(self.name.removesuffix(".gz")) if is_of_rank else None


def hang_files(root: ProfileRoot, listed: Iterable[ListedObject]) -> list[HangFile]:
    """Return a job's files of its newest standstill among objects of it, in the order of their keys."""
    found = [file for each in islice(listed, MOST_FILES) if (file := _file(root, each)) is not None]
    newest = max((each.at for each in found), default=0.0)
    return sorted((each for each in found if newest - each.at <= WINDOW_S), key=lambda each: each.key)


def listed_files(objects: ReadableObjects, bucket: str, root: ProfileRoot) -> list[HangFile]:
    """Return a job's files of its newest standstill; of other folders those directly in them. PortUnavailableError."""
    places = (f"{HANG_FOLDER}/", *(f"{folder}/{OWN_NAME}" for folder in OWN_FOLDERS))
    return hang_files(root, (each for place in places for each in objects.list(bucket, root.folder + place, "")))


def version_of(files: Sequence[HangFile]) -> str:
    """Return a hash of the files: another one when one comes late; empty without any."""
    held = "\n".join(f"{each.key}\n{each.mark}" for each in files)
    return hashlib.sha256(held.encode()).hexdigest()[:20] if files else ""


class WritableObjects(ReadableObjects, Protocol):
    """The objects of all buckets, to read and write."""

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole."""


def hang_of(objects: WritableObjects, bucket: str, root: ProfileRoot) -> KnownHang | None:
    """Return what a job's files say, None without any; what was read is kept beside the report, and read once.

    Raises PortUnavailableError.
    """
    files = listed_files(objects, bucket, root)
    if not files:
        return None
    kept = kept_hang(objects, bucket, root)
    if kept is not None and kept.version == version_of(files):
        return kept
    found = read_hang(objects, bucket, files)
    objects.put(bucket, root.report + HANG_FILE, msgspec.json.encode(found), "application/json")
    return found


def kept_hang(objects: ReadableObjects, bucket: str, root: ProfileRoot) -> KnownHang | None:
    """Return what was read last; None before, and of another version of this code. Raises PortUnavailableError."""
    try:
        body = objects.get(bucket, root.report + HANG_FILE, _MOST_KEPT_BYTES)
        return msgspec.json.decode(body, type=KnownHang)
    except (ObjectMissingError, msgspec.DecodeError):
        return None


def read_hang(objects: ReadableObjects, bucket: str, files: Sequence[HangFile]) -> KnownHang | None:
    """Return what files say, None without any; one that cannot be read costs itself. Raises PortUnavailableError."""
    if not files:
        return None
    evidence, left_out = HangFiles(), []
    for file, data in _contents(objects, bucket, files):
        if evidence.size >= MOST_ALL_BYTES:
            left_out.append(file)
        elif isinstance(data, bytes):
            evidence.add(file.name, data, file.at)
        else:
            evidence.refuse(file.name, str(data))
    unknown = {each.rank for each in left_out} - evidence.ranks
    verdict = evidence.verdict()
    if unknown:
        # Who left a dump that was not read has left one.
        details = [each for each in verdict.details if each.kind != "no_dump" or each.rank not in unknown]
        without = [rank for rank in verdict.without_dump if rank not in unknown]
        named = [each.rank for each in details]
        verdict = msgspec.structs.replace(verdict, details=details, culprits=named, without_dump=without)
    nodes = {each.rank: each.node for each in files if each.rank is not None and each.node}
    at = max(each.at for each in files)
    read = len(files) - len(left_out)
    known = known_hang(verdict, nodes, version=version_of(files), at=at, files=read)
    return msgspec.structs.replace(known, left_out=len(left_out))


_Content = bytes | Exception


def _contents(objects: ReadableObjects, bucket: str, files: Sequence[HangFile]) -> Iterator[tuple[HangFile, _Content]]:
    """Yield the files in order with what they hold, or why that cannot be read; some are read ahead."""

    def read(file: HangFile) -> _Content:
        try:
            return objects.get(bucket, file.key, MOST_BYTES)
        except (ObjectMissingError, ProfileSourceError, OSError) as fault:
            return fault

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="hang-dumps") as readers:
        for start in range(0, len(files), _AHEAD):
            ahead = files[start : start + _AHEAD]
            yield from zip(ahead, readers.map(read, ahead), strict=True)


def _file(root: ProfileRoot, listed: ListedObject) -> HangFile | None:
    folder, _, below = listed.key.removeprefix(root.folder).partition("/")
    *parts, file = below.split("/")
    if not listed.key.startswith(root.folder) or folder == RESULTS_FOLDER or not FILE_NAME.fullmatch(file):
        return None
    if folder not in {HANG_FOLDER, *OWN_FOLDERS} or (folder != HANG_FOLDER and not file.startswith(OWN_NAME)):
        return None
    known = HangFile(
        key=listed.key,
        name=f"{folder}/{below}",
        node="",
        at=listed.last_modified,
        modified_at=listed.last_modified,
        mark=listed.etag or f"{listed.size} {listed.last_modified}",
    )
    if folder != HANG_FOLDER or not parts:
        return known
    at = _seconds(parts[-1])
    node = parts[0] if at is None or len(parts) > 1 else ""
    is_time = at is not None and not is_future(at, listed.last_modified)
    return replace(known, node=node[:120], at=at if is_time and at is not None else listed.last_modified)


def _seconds(text: str) -> float | None:
    """Return the time that a folder's name says, epoch seconds."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H-%M-%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
