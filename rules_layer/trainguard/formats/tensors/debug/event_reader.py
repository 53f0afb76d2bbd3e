"""Frames of a run's event files, read by ranges: small ones with their neighbours, large ones in blocks.

A request takes as long as reading one or two megabytes: a small frame is read with the 256 KiB around it. Of a frame
over 1 MiB beginning and footer are read first, and nothing is allocated before they agree with the file's length.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np

from trainguard.core.errors import TelemetryFormatError, TensorTooLargeError
from trainguard.core.ports import Files
from trainguard.formats.tensors.bounded import ByteCache
from trainguard.formats.tensors.debug.json_files import FramePlace
from trainguard.formats.tensors.frames import (
    FOOTER,
    FRAMING,
    HEADER,
    HOOK_FOOTER,
    Content,
    check_payload,
    check_shape,
    crc32c,
    dtype_of,
    find_content,
    footer_value,
    is_text,
    numbers,
    parse_event,
    payload_length,
    payload_of,
    text,
    texts,
)
from trainguard.formats.tensors.step_view import Tensor

MIB = 1024 * 1024
PAGE_BYTES = MIB // 4
SMALL_FRAME_BYTES = MIB
BLOCK_BYTES = 4 * MIB
VALUE_CAP_BYTES = 64 * MIB
# Each rule reads a larger tensor again.
KEPT_TENSOR_BYTES = 16 * MIB

PAGES_BYTES = 16 * MIB
KEPT_BYTES = VALUE_CAP_BYTES
_HEAD_BYTES = 64 * 1024
_ENTRY_BYTES = 512
_ONE_ENTRY: tuple[list[int], list[int]] = ([1], [])
_NUMBERS = {1: Struct("<f"), 2: Struct("<d")}


# What a small frame holds: when it was saved (epoch seconds), and entries.
SavedTensor = tuple[float, Tensor]


@dataclass(frozen=True, slots=True)
class _Large:
    content: Content
    payload: int
    footer: int
    before: bytes


class EventReader:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._pages: ByteCache[bytes] = ByteCache(PAGES_BYTES)
        self._small: ByteCache[SavedTensor] = ByteCache(KEPT_BYTES // 2)
        self._values: ByteCache[Tensor] = ByteCache(KEPT_BYTES)
        self._large: ByteCache[_Large] = ByteCache(MIB)

    def saved_at(self, place: FramePlace, tensor: str) -> float:
        """Return when a frame was saved, epoch seconds; raises TelemetryFormatError."""
        if place.length <= SMALL_FRAME_BYTES:
            return self._read_small(place, tensor)[0]
        # The hook writes the time first; of a large frame no other field is looked at for it.
        head = self._files.get_range(place.file, place.start + HEADER, 9)
        if len(head) < 9 or head[0] != 0x09:
            raise TelemetryFormatError(place.file, f"the frame of tensor {tensor} does not begin with a time")
        return float(np.frombuffer(head, "<f8", 1, 1)[0])

    def shape(self, place: FramePlace, tensor: str) -> tuple[int, ...]:
        if place.length <= SMALL_FRAME_BYTES:
            return self._read_small(place, tensor)[1].shape
        return self._locate(place, tensor).content.shape

    def value(self, step: int, place: FramePlace, tensor: str) -> Tensor:
        if place.length <= SMALL_FRAME_BYTES:
            return self._read_small(place, tensor)[1]
        kept = self._values.get(place)
        if kept is not None:
            return kept
        large = self._locate(place, tensor)
        if large.content.size > VALUE_CAP_BYTES:
            raise TensorTooLargeError(tensor, step, large.content.size, VALUE_CAP_BYTES)
        entries = np.empty(large.content.size // dtype_of(place.file, large.content.dtype).itemsize, self._kind(large))
        filled = 0
        for block in self._stream(place, large):
            entries[filled : filled + block.size] = block
            filled += block.size
        entries.flags.writeable = False
        shaped = entries.reshape(large.content.shape)
        self._values.put(place, shaped, large.content.size)
        return shaped

    def number(self, place: FramePlace, tensor: str) -> float:
        """Return a tensor of one real number; raises TelemetryFormatError where it holds anything else."""
        if place.length > SMALL_FRAME_BYTES:
            raise TelemetryFormatError(place.file, f"{tensor} has {place.length:,} bytes, expected one real number")
        proto = _value(place.file, payload_of(place.file, self._frame(place)), tensor)[1]
        content, unpack = proto.tensor_content, _NUMBERS.get(proto.dtype)
        sizes = [each.size for each in proto.tensor_shape.dim]
        if unpack is not None and len(content) == unpack.size and sizes in _ONE_ENTRY:
            return float(unpack.unpack(content)[0])
        entries = _entries(place.file, proto)
        if entries.size != 1 or entries.dtype.kind not in "fiub":
            raise TelemetryFormatError(place.file, f"{tensor} has {entries.size} entries, expected one real number")
        return float(entries.reshape(-1)[0])

    def blocks(self, step: int, place: FramePlace, tensor: str) -> Iterator[Tensor]:
        """Iterate over a tensor's entries in C order in blocks of up to 4 MiB; raises TelemetryFormatError."""
        if place.length > KEPT_TENSOR_BYTES:
            yield from self._stream(place, self._locate(place, tensor))
            return
        entries = self.value(step, place, tensor).reshape(-1)
        most = max(BLOCK_BYTES // max(entries.itemsize, 1), 1)
        for start in range(0, entries.size, most):
            yield entries[start : start + most]

    def _read_small(self, place: FramePlace, tensor: str) -> SavedTensor:
        kept = self._small.get((place, tensor))
        if kept is None:
            at, proto = _value(place.file, payload_of(place.file, self._frame(place)), tensor)
            kept = at, _entries(place.file, proto)
            self._small.put((place, tensor), kept, place.length + _ENTRY_BYTES)
        return kept

    def _frame(self, place: FramePlace) -> bytes:
        """Read adjoining pages that are missing in one request."""
        first, last = place.start // PAGE_BYTES, (place.start + place.length - 1) // PAGE_BYTES
        if first == last and (kept := self._pages.get((place.file, first))) is not None:
            return _cut(place, kept, first * PAGE_BYTES)
        pages: dict[int, bytes] = {}
        missing: list[int] = []
        for number in range(first, last + 1):
            page = self._pages.get((place.file, number))
            if page is None:
                missing.append(number)
            else:
                pages[number] = page
        if missing:
            start, end = missing[0], missing[-1] + 1
            read = self._files.get_range(place.file, start * PAGE_BYTES, (end - start) * PAGE_BYTES)
            for number in range(start, end):
                pages[number] = read[(number - start) * PAGE_BYTES : (number - start + 1) * PAGE_BYTES]
                self._pages.put((place.file, number), pages[number], PAGE_BYTES)
        joined = b"".join(pages[number] for number in range(first, last + 1))
        return _cut(place, joined, first * PAGE_BYTES)

    def _locate(self, place: FramePlace, tensor: str) -> _Large:
        kept = self._large.get((place, tensor))
        if kept is not None:
            return kept
        file = place.file
        head = self._files.get_range(file, place.start, _HEAD_BYTES)
        payload = payload_length(file, head[:HEADER])
        if payload + FRAMING != place.length:
            raise TelemetryFormatError(
                file, f"a frame has {payload:,} bytes of payload, its index says {place.length:,}"
            )
        footer = footer_value(file, self._files.get_range(file, place.start + place.length - FOOTER, FOOTER))
        content = find_content(file, head[HEADER:], payload)
        _check_tag(file, content.tag, tensor)
        check_shape(file, content.shape, content.size, dtype_of(file, content.dtype).itemsize)
        found = _Large(content, payload, footer, head[HEADER : HEADER + content.offset])
        self._large.put((place, tensor), found, _ENTRY_BYTES + len(found.before))
        return found

    def _stream(self, place: FramePlace, large: _Large) -> Iterator[Tensor]:
        """Check the checksum, where the frame has a true one, at the end."""
        content, start = large.content, place.start + HEADER
        checked = large.footer != HOOK_FOOTER
        crc = crc32c(large.before) if checked else 0
        for block in self._ranges(place.file, start + content.offset, content.size):
            crc = crc32c(block, crc) if checked else 0
            yield np.frombuffer(block, self._kind(large))
        if checked:
            after = content.offset + content.size
            for block in self._ranges(place.file, start + after, large.payload - after):
                crc = crc32c(block, crc)
            check_payload(place.file, large.footer, crc)

    def _ranges(self, file: str, start: int, size: int) -> Iterator[bytes]:
        for offset in range(0, size, BLOCK_BYTES):
            length = min(BLOCK_BYTES, size - offset)
            read = self._files.get_range(file, start + offset, length)
            if len(read) < length:
                raise TelemetryFormatError(file, f"ends {length - len(read):,} bytes before the end of a frame")
            yield read

    @staticmethod
    def _kind(large: _Large) -> "np.dtype[np.generic]":
        return dtype_of("", large.content.dtype)


def _cut(place: FramePlace, content: bytes, starts: int) -> bytes:
    offset = place.start - starts
    frame = content[offset : offset + place.length]
    if len(frame) < place.length:
        raise TelemetryFormatError(place.file, f"ends within a frame of {place.length:,} bytes at {place.start:,}")
    return frame


def _value(file: str, payload: bytes, tensor: str) -> tuple[float, Any]:
    """Return when a frame was saved, epoch seconds, and its TensorProto."""
    event = parse_event(file, payload)
    values = event.summary.value
    if len(values) != 1:
        raise TelemetryFormatError(file, f"a frame holds {len(values)} tensors, expected 1")
    value = values[0]
    _check_tag(file, text(file, value.tag), tensor)
    return event.wall_time, value.tensor


def _entries(file: str, proto: Any) -> Tensor:
    shape = [each.size for each in proto.tensor_shape.dim]
    if is_text(proto.dtype):
        return texts(file, shape, proto.string_val)
    return numbers(file, proto.dtype, shape, proto.tensor_content)


def _check_tag(file: str, tag: str, tensor: str) -> None:
    if tag != tensor:
        raise TelemetryFormatError(file, f"a frame holds tensor {tag!r}, its index says {tensor!r}")
