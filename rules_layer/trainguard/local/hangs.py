"""Dumps and stacks of a job that stands still, in a folder or below a prefix of S3."""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainguard.core.errors import (
    KernelTraceError,
    ObjectMissingError,
    PortUnavailableError,
    ProfileSourceError,
    RemedyError,
)
from trainguard.core.text import one_line
from trainguard.formats.hangs.flight_recorder import Dump, DumpError, is_dump, rank_of_name, read_dump
from trainguard.formats.hangs.stacks import StackError, ThreadStack, is_stacks, main_thread
from trainguard.hangs.text import with_words
from trainguard.hangs.verdict import HangVerdict, hang_verdict
from trainguard.local.traces import FilesBelow, files_below

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of a file, unpacked."""

MOST_FILES = 20_000
"""Files that are looked at; a job of 8,192 ranks leaves two of each."""

_HEAD = 4_096
_GZIP = b"\x1f\x8b"


def judge_hang(place: str, clients: "Clients | None" = None) -> HangVerdict:
    """Judge the dumps and stacks at a file, a folder or ``s3://bucket/prefix``; raises RemedyError without any."""
    try:
        found = files_below(place, clients, alone=True)
    except KernelTraceError as fault:
        raise RemedyError(f"{fault.place!r} cannot be read: {fault.reason}", _EXPECTED) from fault
    names = sorted(found.names or found.changed, key=lambda name: found.changed[name])
    dumps: dict[str, Dump] = {}
    stacks: dict[int, ThreadStack] = {}
    unread: dict[str, str] = {}
    for name, data in _contents(found, names[:MOST_FILES], unread):
        try:
            _take(name, data, dumps, stacks)
        except (DumpError, StackError) as fault:
            unread[one_line(name, 200)] = one_line(fault.reason, 400)
    if len(names) > MOST_FILES:
        unread["…"] = f"{len(names) - MOST_FILES:,} more files, expected at most {MOST_FILES:,}"
    if not dumps and not stacks:
        faults = "".join(f" {name}: {reason}." for name, reason in list(unread.items())[:3])
        raise RemedyError(
            f"{place!r} holds no dump of the flight recorder and no stack.{faults}".rstrip("."), _EXPECTED
        )
    return with_words(hang_verdict(dumps.values(), stacks, unread))


_EXPECTED = (
    "A dump is named by its rank, such as nccl_trace_rank_12; a stack too, such as stack_12.txt, "
    "of py-spy dump or faulthandler."
)


def _take(name: str, data: bytes, dumps: dict[str, Dump], stacks: dict[int, ThreadStack]) -> None:
    head = data[:_HEAD]
    if is_stacks(head) or is_stacks(data[: 16 * _HEAD]):
        rank = rank_of_name(name)
        if rank is None:
            raise StackError(name, "its name ends with no rank, expected for example stack_12.txt")
        stacks[rank] = main_thread(data, name)
    elif is_dump(head, name):
        dumps[name] = read_dump(data, name)


def _contents(found: FilesBelow, names: list[str], unread: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Return the files, unpacked; the name without ``.gz``."""
    for name in names:
        try:
            with found.open(name) as opened:
                data = opened.read(MOST_BYTES + 1)
            if data[:2] == _GZIP:
                unpacked = zlib.decompressobj(wbits=31)
                data = unpacked.decompress(data, MOST_BYTES + 1)
        except (OSError, ObjectMissingError, PortUnavailableError, ProfileSourceError, zlib.error) as fault:
            unread[one_line(name, 200)] = one_line(str(fault), 400)
            continue
        if len(data) > MOST_BYTES:
            unread[one_line(name, 200)] = f"over {MOST_BYTES:,} bytes, expected fewer"
            continue
        yield name.removesuffix(".gz"), data
