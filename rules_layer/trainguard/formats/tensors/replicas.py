"""What the collector's recorder writes of tensors that several ranks hold copies of: a hash of each one's bits.

A step has of each rank ``trainguard/replicas/<rank>``, int64 of one tensor each, and as bytes ``…/about``, JSON that
says what was hashed at which moment, and ``…/tensors``, zlib's JSON of names, types and shapes.
"""

import re
import zlib
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.tensors.step_view import StepView

VERSION = 1
PREFIX, ABOUT, TENSORS = "trainguard/replicas/", "/about", "/tensors"
_ABOUT = re.compile(rf"{PREFIX}(?P<rank>[0-9]{{1,6}}){ABOUT}")
_MOST_BYTES = 64 * 1024 * 1024

Hashes = NDArray[np.int64]
_Short = Annotated[str, msgspec.Meta(max_length=256)]
_Text = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class CopySet(msgspec.Struct, frozen=True):
    """Tensors of one rank of which the same ranks hold copies.

    ``of`` is ``parameters``, ``buffers`` or ``optimizer``, ``ranks`` the text that names the ranks, ``copies`` of them.
    ``sure`` is False where nothing but a guess says that they hold copies. ``moment`` are collectives that each group
    of processes had begun, ``layout`` a digest of names, types and shapes.
    """

    of: _Short
    ranks: _Text
    copies: _Count
    count: _Count
    layout: _Short
    sure: bool = True
    moment: Annotated[tuple[int, ...], msgspec.Meta(max_length=64)] = ()
    device: _Short = ""


class About(msgspec.Struct, frozen=True):
    """When a rank took its hashes, epoch seconds, in which attempt, and of what."""

    version: int
    at: float
    mode_step: int
    sets: Annotated[tuple[CopySet, ...], msgspec.Meta(max_length=4_096)] = ()
    attempt: _Short = ""
    left_out: _Count = 0


_DECODER = msgspec.json.Decoder(About)
_NAMES = msgspec.json.Decoder(list[list[tuple[_Text, _Short, list[int]]]])


class RankHashes(msgspec.Struct, frozen=True):
    """What one rank holds; ``hashes`` are by set."""

    rank: int
    about: About
    hashes: tuple[Hashes, ...]


def ranks_of(step: StepView) -> list[int]:
    found = (_ABOUT.fullmatch(name) for name in step.names if name.startswith(PREFIX))
    return sorted(int(each["rank"]) for each in found if each is not None)


def read_rank(step: StepView, rank: int) -> RankHashes:
    """Read a rank's hashes; raises TelemetryFormatError for others than the recorder writes, TensorMissingError."""
    name = f"{PREFIX}{rank}"
    try:
        about = _DECODER.decode(_bytes(step, name + ABOUT))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise TelemetryFormatError(name + ABOUT, f"{fault}, expected what was hashed") from fault
    if about.version != VERSION:
        raise TelemetryFormatError(name + ABOUT, f"version {about.version}, expected {VERSION}")
    counts = [each.count for each in about.sets]
    values = step.value(name) if counts else np.empty(0, np.int64)
    if values.dtype != np.int64 or values.ndim != 1 or values.size != sum(counts):
        raise TelemetryFormatError(
            name, f"{values.dtype} of shape {list(values.shape)}, expected {sum(counts):,} numbers of type int64"
        )
    ends = np.cumsum(counts, dtype=np.int64)
    return RankHashes(rank, about, tuple(values[end - count : end] for end, count in zip(ends, counts, strict=True)))


def tensor_names(step: StepView, rank: int, place: int) -> list[str]:
    """Return the names of the tensors of a rank's set; raises TelemetryFormatError, TensorMissingError."""
    name = f"{PREFIX}{rank}{TENSORS}"
    try:
        unpacked = zlib.decompressobj()
        listed = _NAMES.decode(unpacked.decompress(_bytes(step, name), _MOST_BYTES))
        return [each[0] for each in listed[place]]
    except (zlib.error, msgspec.DecodeError, UnicodeError, RecursionError, IndexError) as fault:
        raise TelemetryFormatError(name, f"{fault}, expected names of tensors") from fault


def _bytes(step: StepView, name: str) -> bytes:
    values = step.value(name)
    if values.dtype != np.uint8:
        raise TelemetryFormatError(name, f"numbers of type {values.dtype}, expected uint8")
    return values.tobytes()
