"""Dumps and stacks of a job that stands still, and answers of NCCL RAS, in a folder or below a prefix of S3."""

from typing import TYPE_CHECKING

from trainguard.core.errors import (
    KernelTraceError,
    ObjectMissingError,
    PortUnavailableError,
    ProfileSourceError,
    RemedyError,
)
from trainguard.hangs.evidence import MOST_BYTES, Evidence
from trainguard.hangs.text import with_words
from trainguard.hangs.verdict import HangVerdict
from trainguard.local.traces import files_below

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

MOST_FILES = 20_000
"""Files that are looked at; a job of 8,192 ranks leaves two of each."""

_EXPECTED = (
    "A dump is named by its rank, such as nccl_trace_rank_12; a stack too, such as stack_12.txt, "
    "of py-spy dump or faulthandler. An answer of NCCL RAS is the output of ncclras -f json."
)


def judge_hang(place: str, clients: "Clients | None" = None) -> HangVerdict:
    """Judge what lies at a file, a folder or ``s3://bucket/prefix``; raises RemedyError without any dump or stack."""
    try:
        found = files_below(place, clients, alone=True)
    except KernelTraceError as fault:
        raise RemedyError(f"{fault.place!r} cannot be read: {fault.reason}", _EXPECTED) from fault
    names = found.names or list(found.changed)
    evidence = Evidence()
    for name in sorted(names)[:MOST_FILES]:
        try:
            with found.open(name) as opened:
                data = opened.read(MOST_BYTES + 1)
        except (OSError, ObjectMissingError, PortUnavailableError, ProfileSourceError) as fault:
            evidence.refuse(name, str(fault))
            continue
        evidence.add(name, data, found.changed[name])
    if len(names) > MOST_FILES:
        evidence.refuse("…", f"{len(names) - MOST_FILES:,} more files, expected at most {MOST_FILES:,}")
    if evidence.is_empty:
        faults = "".join(f" {name}: {reason}." for name, reason in list(evidence.unread.items())[:3])
        raise RemedyError(
            f"{place!r} holds no dump of the flight recorder and no stack.{faults}".rstrip("."), _EXPECTED
        )
    return with_words(evidence.verdict())
