"""The JSON files of a run of debug-output: index files of a worker's step, and collections files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from trainguard.core.errors import IndexNotReadyError, TelemetryFormatError, UnreadableKeyError
from trainguard.formats.git_lfs import refuse_pointer
from trainguard.formats.tensors.debug.keys import bare_name, collections_name, index_name, match_name
from trainguard.formats.tensors.name_patterns import NamePattern, NamePatternError, name_pattern
from trainguard.formats.tensors.step_view import Mode

# An entry takes about 100 bytes: half a million tensors of one worker.
MAX_INDEX_BYTES = 64 * 1024 * 1024

LONGEST_NAME = 1_024
_FRAMING = 16
_MOST_DIMENSIONS = 32

# Nesting without end is included.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class FramePlace(NamedTuple):
    """Where a frame lies: offset and length in bytes, framing included, in the event file of that name."""

    file: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """What one worker saved at a step: frames by tensor name, shapes by tensor name."""

    mode: Mode
    mode_step: int
    frames: Mapping[str, FramePlace]
    shapes: Mapping[str, tuple[int, ...]]


class _IndexMeta(msgspec.Struct):
    mode: Mode
    mode_step: _Size
    event_file_name: str | None = None


class _Tensor(msgspec.Struct):
    tensorname: _Name
    start_idx: _Size
    length: Annotated[int, msgspec.Meta(gt=_FRAMING, le=2**53)]


class _Shape(msgspec.Struct):
    tensorname: _Name
    shape: Annotated[list[_Size], msgspec.Meta(max_length=_MOST_DIMENSIONS)]


class _Index(msgspec.Struct):
    meta: _IndexMeta
    tensor_payload: list[_Tensor] | None = None
    shape_payload: list[_Shape] | None = None


_INDEX = msgspec.json.Decoder(_Index)


def decode_index(step: int, worker: str, body: bytes) -> IndexFile:
    """Read an index file of a step and worker, as its own name says.

    Raises IndexNotReadyError when it is not JSON, or has no ``meta`` or neither of the two lists. Raises
    TelemetryFormatError when it is larger than 64 MiB, a field is not of its kind, or its event file is of another
    step.
    """
    name = index_name(step, worker)
    if len(body) > MAX_INDEX_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_INDEX_BYTES:,} bytes, expected the index of one step")
    refuse_pointer(name, body)
    read = _decoded(name, body)
    if read.tensor_payload is None and read.shape_payload is None:
        raise IndexNotReadyError(name, "neither tensor_payload nor shape_payload, expected at least one of them")
    file = read.meta.event_file_name
    if read.tensor_payload and (file is None or not _is_event_file(file, step)):
        raise TelemetryFormatError(name, f"event_file_name is {file!r}, expected events/{step:012d}/{step:012d}_…")
    return IndexFile(
        read.meta.mode,
        read.meta.mode_step,
        {each.tensorname: FramePlace(file or "", each.start_idx, each.length) for each in read.tensor_payload or ()},
        {each.tensorname: tuple(each.shape) for each in read.shape_payload or ()},
    )


def _decoded(name: str, body: bytes) -> _Index:
    try:
        return _INDEX.decode(body)
    except msgspec.ValidationError as fault:
        if _is_written(body):
            raise TelemetryFormatError(name, f"{fault}, expected an index of tensors") from fault
        raise IndexNotReadyError(name, "no whole JSON with a meta, expected an index of tensors") from fault
    except DECODE_ERRORS as fault:
        raise IndexNotReadyError(name, f"{fault}, expected JSON") from fault


def _is_written(body: bytes) -> bool:
    try:
        whole = msgspec.json.decode(body)
    except DECODE_ERRORS:
        return False
    return isinstance(whole, dict) and bool(whole.get("meta"))


def _is_event_file(name: str, step: int) -> bool:
    try:
        file = match_name(name)
    except UnreadableKeyError:
        return False
    return file is not None and file.kind == "events" and file.step == step


MAX_COLLECTIONS_BYTES = 16 * 1024 * 1024
MOST_COLLECTIONS = 1_000
MOST_PATTERNS = 2_000
MOST_WORKERS = 4_096
# The hook writes this collection with empty lists.
EVERY_TENSOR = "all"

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

    Raises TelemetryFormatError for more than 16 MiB, over 1,000 collections or 2,000 regular expressions, a number of
    workers outside 1 to 4,096, or any other file.
    """
    name = collections_name(worker)
    if len(body) > MAX_COLLECTIONS_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_COLLECTIONS_BYTES:,} bytes, expected collections of names")
    refuse_pointer(name, body)
    try:
        read = _DECODER.decode(body)
    except DECODE_ERRORS as fault:
        raise TelemetryFormatError(name, f"{fault}, expected collections of names") from fault
    found = {
        each: Collection(frozenset(content.tensor_names or ()), tuple(content.include_regex or ()))
        for each, content in (read.collections or {}).items()
    }
    if len(found) > MOST_COLLECTIONS:
        raise TelemetryFormatError(name, f"{len(found):,} collections, expected at most {MOST_COLLECTIONS:,}")
    patterns = sum(len(each.patterns) for each in found.values())
    if patterns > MOST_PATTERNS:
        raise TelemetryFormatError(name, f"{patterns:,} regular expressions, expected at most {MOST_PATTERNS:,}")
    return Collections(found, read.meta.num_workers)


def merge_collections(files: Sequence[Collections]) -> Collections:
    """Return what any of the workers lists or matches; the first file says how many workers there are, else 1."""
    merged: dict[str, Collection] = {}
    for file in files:
        for name, each in file.by_name.items():
            known = merged.get(name)
            if known is not None and known != each:
                patterns = tuple(dict.fromkeys((*known.patterns, *each.patterns)))
                merged[name] = Collection(known.listed | each.listed, patterns)
            else:
                merged[name] = each
    return Collections(merged, files[0].workers if files else 1)


# More names are asked for again.
MOST_REMEMBERED = 100_000

# Steps of all searches of a run at worst, about 20 s; a hundred thousand names take a quarter of it.
SEARCH_BUDGET = 2_000_000_000


class Membership:
    """Answers whether a tensor belongs to a collection: it is listed, or a regular expression is found in it.

    ``unusable`` are expressions that were not searched in every name, and why.
    """

    def __init__(self, collections: Collections) -> None:
        self.unusable: dict[str, str] = {}
        self._listed = {
            name: each.listed | {bare_name(tensor) for tensor in each.listed}
            for name, each in collections.by_name.items()
        }
        self._patterns = {name: self._compiled(each) for name, each in collections.by_name.items()}
        self._left = SEARCH_BUDGET
        self._answers: dict[tuple[str, str], bool] = {}

    @property
    def names(self) -> Iterable[str]:
        return self._listed.keys()

    def members(self, collection: str, names: Iterable[str]) -> frozenset[str]:
        """Return the tensors that a collection holds: ``loss:0`` also by the name of its reductions, ``loss``."""
        if collection == EVERY_TENSOR:
            return frozenset(names)
        if collection not in self._listed:
            return frozenset()
        return frozenset(name for name in names if self._holds(collection, name))

    def _holds(self, collection: str, name: str) -> bool:
        if name in self._listed[collection]:
            return True
        if not self._patterns[collection]:
            return False
        answer = self._answers.get((collection, name))
        if answer is None:
            answer = any(self._found(pattern, name) for pattern in self._patterns[collection])
            if len(self._answers) < MOST_REMEMBERED:
                self._answers[collection, name] = answer
        return answer

    def _found(self, pattern: NamePattern, name: str) -> bool:
        self._left -= pattern.cost(name)
        if self._left < 0:
            self.unusable[pattern.text] = "searches in all names of the run could take too long"
            return False
        try:
            return pattern.matches(name)
        except NamePatternError as fault:
            self.unusable[pattern.text] = str(fault)
            return False

    def _compiled(self, collection: Collection) -> list[NamePattern]:
        patterns = []
        for text in collection.patterns:
            try:
                patterns.append(name_pattern(text))
            except NamePatternError as fault:
                self.unusable[text] = str(fault)
        return patterns
