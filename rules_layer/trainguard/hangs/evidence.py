"""What a job that stands still leaves behind, file by file and in any order: dumps, stacks, answers of NCCL RAS."""

import zlib
from collections import Counter
from dataclasses import replace

from trainguard.core.errors import UnusableError
from trainguard.core.text import one_line
from trainguard.formats.hangs.flight_recorder import Dump, Operation, is_dump, rank_of_name, read_dump
from trainguard.formats.hangs.ras import RasAnswer, is_ras_answer, read_ras
from trainguard.formats.hangs.stacks import StackError, ThreadStack, is_stacks, main_thread
from trainguard.hangs.verdict import HangVerdict, hang_verdict, place_of

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


class Evidence:
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
