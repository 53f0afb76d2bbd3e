"""Dumps of PyTorch's flight recorder, one of a rank: the collectives that a process entered, and how far they came.

A dump is a pickle of plain values or JSON, of NCCL, RCCL or gloo; ``torch/csrc/distributed/c10d/FlightRecorder*.hpp``
of PyTorch writes it. It holds all operations of a ring buffer, or only those that have not ended.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from trainguard.core.errors import UnusableError
from trainguard.formats.plain_pickle import PickleError, read_plain

# Operations of one dump; the recorder's buffer holds 2,000 unless somebody asks for more.
MOST_OPERATIONS = 200_000

# Ranks that a group may name.
MOST_RANKS = 1_000_000

# Frames of one operation that are kept, innermost first.
MOST_FRAMES = 64

# The description of the group of all ranks.
DEFAULT_GROUP = "default_pg"

_RANK_IN_NAME = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|txt))?$")
_PEER = re.compile(r"^(send|recv|isend|irecv) (\d+)(?:->|<-)(\d+)$")


class DumpError(UnusableError):
    sentence = "dump {place!r} cannot be read: {reason}"


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective, or one side of a transfer between two ranks.

    order: Counts the operations of a process in the order in which it entered them.
    group: The name of its process group. sequence: Counts the collectives, or the transfers, of the group.
    peer: The place in the group of the other side of a transfer; None for a collective.
    is_over: It has ended, or was given up: gloo, and NCCL after a fault, do not say which.
    has_ended: It has ended for certain.
    inputs: Of each tensor the shape. where: Frames as ``file:line function``, innermost first.
    """

    order: int
    group: str
    name: str
    sequence: int
    peer: int | None
    is_over: bool
    has_ended: bool
    inputs: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    where: tuple[str, ...] = ()


# The last operation of a group that a rank entered, and the last that ended; -1 stands for none.
GroupProgress = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of one rank; ``progress`` by the process's own number of a group, ``group_ids`` by the group's name.

    odd: How many entries had no usable form; they are left out.
    """

    rank: int
    groups: Mapping[str, tuple[str, tuple[int, ...]]]
    operations: tuple[Operation, ...]
    progress: Mapping[int, GroupProgress]
    group_ids: Mapping[int, str] = field(default_factory=dict)
    odd: int = 0


def rank_of_name(name: str) -> int | None:
    """Return the rank that a dump's file name ends with, as the recorder writes it: ``nccl_trace_rank_12``."""
    found = _RANK_IN_NAME.search(name.rpartition("/")[2])
    return None if found is None or len(found[1]) > len(str(MOST_RANKS)) else int(found[1])


def is_dump(begin: bytes, name: str) -> bool:
    """Say whether a file may be a dump, by its first bytes and its name."""
    return rank_of_name(name) is not None and (begin[:1] == b"\x80" or begin.lstrip()[:1] == b"{")


def read_dump(data: bytes, name: str) -> Dump:
    """Read a dump; its rank is in its file's name. Raises DumpError."""
    rank = rank_of_name(name)
    if rank is None:
        raise DumpError(name, "its name ends with no rank, expected for example nccl_trace_rank_12")
    try:
        held = msgspec.json.decode(data) if data.lstrip()[:1] == b"{" else read_plain(data)
    except (msgspec.DecodeError, PickleError, RecursionError, UnicodeDecodeError) as fault:
        raise DumpError(name, str(fault)) from fault
    if not isinstance(held, dict) or not isinstance(held.get("entries"), list):
        # A job that records nothing writes its groups alone, without entries.
        if not isinstance(held, dict) or "pg_config" not in held:
            raise DumpError(name, "it has no list 'entries', expected a dump of PyTorch's flight recorder")
        held = {**held, "entries": []}
    entries = held["entries"]
    if len(entries) > MOST_OPERATIONS:
        raise DumpError(name, f"{len(entries):,} entries, expected at most {MOST_OPERATIONS:,}")
    frames = _FrameTexts()
    read = [_operation(each, frames) for each in entries]
    operations = sorted((each for each in read if each is not None), key=lambda each: each.order)
    return Dump(
        rank=rank,
        groups=_groups(held.get("pg_config")),
        operations=tuple(operations),
        progress=_progress(held.get("pg_status")),
        group_ids=_group_ids(entries),
        odd=len(read) - len(operations),
    )


class _FrameTexts:
    """Texts of frames; the recorder's pickles share one dict among the operations of a place."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, int, str], str] = {}

    def of(self, frames: Any) -> tuple[str, ...]:
        if not isinstance(frames, list | tuple):
            return ()
        return tuple(text for each in frames[:MOST_FRAMES] if (text := self._text(each)))

    def _text(self, frame: Any) -> str:
        if not isinstance(frame, dict):
            return ""
        file, line, name = str(frame.get("filename", ""))[:400], _whole(frame.get("line")), str(frame.get("name", ""))
        if not file:
            return ""
        key = (file, -1 if line is None else line, name[:200])
        return self._texts.setdefault(key, f"{file}:{key[1]} {key[2]}" if line is not None else f"{file} {key[2]}")


def _operation(entry: Any, frames: _FrameTexts) -> Operation | None:
    if not isinstance(entry, dict):
        return None
    group = entry.get("process_group")
    order, name = _whole(entry.get("record_id", entry.get("id"))), entry.get("profiling_name")
    if not isinstance(group, list | tuple) or not group or order is None or not isinstance(name, str):
        return None
    is_transfer = entry.get("is_p2p") is True
    # Until PyTorch 2.4 one number counted both.
    counted = entry.get("p2p_seq_id" if is_transfer else "collective_seq_id", entry.get("seq_id"))
    sequence = _whole(counted)
    if sequence is None:
        return None
    plain = name.rpartition(":")[2][:200]
    transfer = _PEER.match(plain)
    state = entry.get("state")
    return Operation(
        order=order,
        group=str(group[0])[:200],
        name=transfer[1] if transfer else plain,
        sequence=sequence,
        peer=int(transfer[3][:8]) if transfer else None,
        is_over=state == "completed" or entry.get("retired") is True,
        has_ended=state == "completed",
        inputs=_shapes(entry.get("input_sizes")),
        dtypes=tuple(str(each)[:40] for each in _listed(entry.get("input_dtypes"))),
        where=frames.of(entry.get("frames")),
    )


def _shapes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size for one in _listed(each) if (size := _whole(one)) is not None) for each in _listed(sizes))


def _listed(values: Any) -> list[Any] | tuple[Any, ...]:
    return values[:1000] if isinstance(values, list | tuple) else ()


def _whole(value: Any) -> int | None:
    """Return a whole number of a dump, which JSON may hold as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = value.removeprefix("-") if isinstance(value, str) else ""
    return int(value) if 0 < len(text) < 20 and text.isdecimal() else None


def _groups(config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, note in config.items() if isinstance(config, dict) else ():
        if isinstance(note, dict):
            ranks = _ranks(note.get("ranks"))
            found[str(note.get("name", name))[:200]] = str(note.get("desc", ""))[:200], ranks
    return found


def _ranks(written: Any) -> tuple[int, ...]:
    """Return the ranks of a group, which the recorder writes as the text of a list."""
    if isinstance(written, str):
        return _ranks_of_text(written)
    values = (_whole(each) for each in written) if isinstance(written, list | tuple) else ()
    return tuple(rank for rank in values if rank is not None and 0 <= rank <= MOST_RANKS)


@lru_cache(maxsize=256)  # every dump writes the same groups
def _ranks_of_text(written: str) -> tuple[int, ...]:
    return _ranks([each.strip() for each in written.strip("[] ").split(",")])


def _progress(status: Any) -> dict[int, GroupProgress]:
    found: dict[int, GroupProgress] = {}
    for key, note in status.items() if isinstance(status, dict) else ():
        number = _whole(key)
        if number is None or not isinstance(note, dict):
            continue
        entered = _whole(note.get("last_enqueued_collective"))
        ended = _whole(note.get("last_completed_collective"))
        if entered is not None and ended is not None:
            found[number] = entered, ended
    return found


def _group_ids(entries: list[Any]) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("process_group"), list | tuple) and entry["process_group"]:
            number = _whole(entry.get("pg_id"))
            if number is not None:
                found[number] = str(entry["process_group"][0])[:200]
    return found
