"""An index file: which tensors of a step one worker saved, and where in its event file each of them lies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from trainguard.errors import ForeignKeyError, IndexNotReadyError, TelemetryFormatError
from trainguard.tensors.debug.keys import index_name, match_name
from trainguard.tensors.step_view import Mode

MAX_INDEX_BYTES = 64 * 1024 * 1024
"""An entry takes about 100 bytes: half a million tensors and reductions of one worker."""

LONGEST_NAME = 1_024
_FRAMING = 16
_MOST_DIMENSIONS = 32

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What the decoder raises for bytes that it cannot read, nesting without end included."""

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


class _Meta(msgspec.Struct):
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


class _File(msgspec.Struct):
    meta: _Meta
    tensor_payload: list[_Tensor] | None = None
    shape_payload: list[_Shape] | None = None


_DECODER = msgspec.json.Decoder(_File)


def decode_index(step: int, worker: str, body: bytes) -> IndexFile:
    """Read an index file.

    Parameters
    ----------
    step, worker
        Whose it is, as its own name says.
    body : bytes

    Raises
    ------
    IndexNotReadyError
        When it is not JSON, or has no ``meta`` or neither of the two lists.
    TelemetryFormatError
        When it is larger than 64 MiB, a field is not of its kind, or its event file is not one of the same step.
    """
    name = index_name(step, worker)
    if len(body) > MAX_INDEX_BYTES:
        raise TelemetryFormatError(name, f"larger than {MAX_INDEX_BYTES:,} bytes, expected the index of one step")
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


def _decoded(name: str, body: bytes) -> _File:
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as fault:
        if _is_written(body):
            raise TelemetryFormatError(name, f"{fault}, expected an index of tensors") from fault
        raise IndexNotReadyError(name, "no whole JSON with a meta, expected an index of tensors") from fault
    except UNREADABLE as fault:
        raise IndexNotReadyError(name, f"{fault}, expected JSON") from fault


def _is_written(body: bytes) -> bool:
    """Whether a file of the wrong shape is whole JSON and has the ``meta`` that the hook writes."""
    try:
        whole = msgspec.json.decode(body)
    except UNREADABLE:
        return False
    return isinstance(whole, dict) and bool(whole.get("meta"))


def _is_event_file(name: str, step: int) -> bool:
    try:
        file = match_name(name)
    except ForeignKeyError:
        return False
    return file is not None and file.kind == "events" and file.step == step
