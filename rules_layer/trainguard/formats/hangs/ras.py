"""Answers of NCCL's RAS subsystem: which ranks answer, which are dead, and how many collectives each has launched.

Format: ``ncclras -f json``; ``src/ras/client_support.cc`` of NVIDIA/nccl writes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.core.errors import UnusableError

# Communicators of one answer; a job of 1,024 ranks with four kinds of groups has some hundreds.
MOST_COMMUNICATORS = 100_000

# Ranks of all communicators of one answer.
MOST_RANKS = 2_000_000

# Kinds of collectives that are counted for a rank.
MOST_COUNTERS = 64


class RasError(UnusableError):
    sentence = "answer of NCCL RAS {place!r} cannot be read: {reason}"


@dataclass(frozen=True, slots=True)
class Process:
    """Where a rank runs: the host's address, the process, and its CUDA device."""

    host: str
    pid: int
    device: int


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank of a communicator, by its number in it; ``counts`` are the collectives that it has launched, by kind.

    A rank that did not answer ``is_missing``; then ``is_unresponsive`` says that its process did not, ``is_dead``
    that RAS has given it up.
    """

    rank: int
    process: Process
    counts: Mapping[str, int] = field(default_factory=dict)
    is_missing: bool = False
    is_unresponsive: bool = False
    is_dead: bool = False

    @property
    def launched(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator of NCCL; ``size`` counts its ranks, those that are missing among them."""

    size: int
    ranks: tuple[RasRank, ...]


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """One answer; ``odd`` counts ranks and communicators of no usable form, which are left out."""

    communicators: tuple[Communicator, ...]
    odd: int = 0


def is_ras_answer(begin: bytes) -> bool:
    """Say whether a file may be an answer, by its first bytes."""
    return begin.lstrip()[:1] == b"{" and (b'"communicators"' in begin or b'"communicators_count"' in begin)


def read_ras(data: bytes, name: str) -> RasAnswer:
    """Read an answer; raises RasError."""
    try:
        held = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise RasError(name, str(fault)) from fault
    listed = held.get("communicators") if isinstance(held, dict) else None
    if not isinstance(listed, list):
        raise RasError(name, "it has no list 'communicators', expected the output of ncclras -f json")
    if len(listed) > MOST_COMMUNICATORS:
        raise RasError(name, f"{len(listed):,} communicators, expected at most {MOST_COMMUNICATORS:,}")
    found, odd, ranks = [], 0, 0
    for each in listed:
        communicator, unusable = _communicator(each)
        odd += unusable
        if communicator is None:
            continue
        ranks += len(communicator.ranks)
        if ranks > MOST_RANKS:
            raise RasError(name, f"over {MOST_RANKS:,} ranks, expected fewer")
        found.append(communicator)
    return RasAnswer(tuple(found), odd)


def _communicator(value: Any) -> tuple[Communicator | None, int]:
    """Return a communicator, and how many parts of it have no usable form."""
    if not isinstance(value, dict):
        return None, 1
    read = [*_ranks(value, "ranks"), *_ranks(value, "missing_ranks")]
    ranks = tuple(each for each in read if each is not None)
    size = _whole(value.get("size"))
    return Communicator(len(ranks) if size is None else size, ranks), len(read) - len(ranks)


def _ranks(value: Mapping[str, Any], key: str) -> Iterator[RasRank | None]:
    listed = value.get(key)
    for each in listed if isinstance(listed, list) else ():
        yield _rank(each, is_missing=key == "missing_ranks") if isinstance(each, dict) else None


def _rank(value: Mapping[str, Any], *, is_missing: bool) -> RasRank | None:
    rank = _whole(value.get("rank"))
    if rank is None or rank < 0:
        return None
    status = value.get("status")
    said: Mapping[str, Any] = status if isinstance(status, dict) else {}
    process = Process(
        str(value.get("host", ""))[:200], _whole(value.get("pid")) or -1, _whole(value.get("cuda_dev")) or 0
    )
    return RasRank(
        rank=rank,
        process=process,
        counts=_counts(value.get("collective_counts")),
        is_missing=is_missing,
        is_unresponsive=said.get("unresponsive") is True,
        is_dead=said.get("considered_dead") is True,
    )


def _counts(value: Any) -> dict[str, int]:
    counts = list(value.items())[:MOST_COUNTERS] if isinstance(value, dict) else []
    return {str(name)[:40]: number for name, count in counts if (number := _whole(count)) is not None and number >= 0}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
