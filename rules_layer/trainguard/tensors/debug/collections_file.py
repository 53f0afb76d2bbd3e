"""Collections files: which tensors belong to which collection, and how many workers a run has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.debug.index_file import UNREADABLE
from trainguard.tensors.debug.keys import collections_name

MAX_COLLECTIONS_BYTES = 16 * 1024 * 1024
MOST_COLLECTIONS = 1_000
MOST_PATTERNS = 2_000
MOST_WORKERS = 4_096
EVERY_TENSOR = "all"
"""The hook writes this collection with empty lists."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]


@dataclass(frozen=True, slots=True)
class Collection:
    """Tensors that are listed, or whose name one of the regular expressions matches."""

    listed: frozenset[str]
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collections:
    """The collections of a run by name, and how many workers write."""

    by_name: Mapping[str, Collection]
    workers: int = 1


class _Collection(msgspec.Struct):
    include_regex: list[str] | None = None
    tensor_names: list[str] | None = None


class _Meta(msgspec.Struct):
    num_workers: _Count


class _File(msgspec.Struct):
    meta: _Meta = msgspec.field(name="_meta")
    collections: dict[str, _Collection] | None = None


_DECODER = msgspec.json.Decoder(_File)


def decode_collections(worker: str, body: bytes) -> Collections:
    """Read a worker's collections file.

    Raises
    ------
    TelemetryFormatError
        When it is larger than 16 MiB, is not such a file, has over 1,000 collections or 2,000 regular expressions, or
        names no number of workers from 1 to 4,096.
    """
    name = collections_name(worker)
    if len(body) > MAX_COLLECTIONS_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_COLLECTIONS_BYTES:,} bytes, expected collections of names")
    try:
        read = _DECODER.decode(body)
    except UNREADABLE as fault:
        raise TelemetryFormatError(name, f"{fault}, expected collections of names") from fault
    found = {
        each: Collection(frozenset(content.tensor_names or ()), tuple(content.include_regex or ()))
        for each, content in (read.collections or {}).items()
    }
    _check(name, found)
    return Collections(found, read.meta.num_workers)


def merge_collections(files: Sequence[Collections]) -> Collections:
    """Return the collections of a run from those of its workers: what any of them lists or matches.

    The number of workers is the one that the first file names; 1 where there is none.
    """
    merged: dict[str, Collection] = {}
    for file in files:
        for name, each in file.by_name.items():
            known = merged.get(name)
            merged[name] = each if known is None else _joined(known, each)
    return Collections(merged, files[0].workers if files else 1)


def _joined(one: Collection, other: Collection) -> Collection:
    if one == other:
        return one
    return Collection(one.listed | other.listed, tuple(dict.fromkeys((*one.patterns, *other.patterns))))


def _check(name: str, found: Mapping[str, Collection]) -> None:
    if len(found) > MOST_COLLECTIONS:
        raise TelemetryFormatError(name, f"{len(found):,} collections, expected at most {MOST_COLLECTIONS:,}")
    patterns = _counted(each.patterns for each in found.values())
    if patterns > MOST_PATTERNS:
        raise TelemetryFormatError(name, f"{patterns:,} regular expressions, expected at most {MOST_PATTERNS:,}")


def _counted(parts: Iterable[Sequence[str]]) -> int:
    return sum(len(part) for part in parts)
