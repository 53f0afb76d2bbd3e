"""TFRecord frames: a length, its checksum, the payload, and a footer.

The footer is the masked CRC32C of the payload, as TensorFlow writes it. The SageMaker hook writes a constant instead,
the masked CRC32C of the text ``0x12345678``, which is why TensorBoard finds nothing in its files.
"""

import struct
from dataclasses import dataclass
from typing import cast

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from trainguard.errors import TelemetryFormatError

HEADER = 12
FOOTER = 4
FRAMING = HEADER + FOOTER
HOOK_FOOTER = 0x062DC0B3

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def masked(crc: int) -> int:
    """Return a CRC32C as frames hold it: rotated by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: bytes, crc: int = 0) -> int:
    """Return the CRC32C of bytes that follow those of which ``crc`` is it."""
    return cast("int", google_crc32c.extend(crc, content))


def payload_length(file: str, header: bytes) -> int:
    """Return the payload's length that the 12 bytes of a frame's header hold.

    Raises
    ------
    TelemetryFormatError
        When they are fewer, or the checksum of the length is another.
    """
    if len(header) < HEADER:
        raise TelemetryFormatError(file, f"{len(header)} bytes of a frame's header, expected {HEADER}")
    length, check = _HEADER.unpack_from(header)
    if masked(crc32c(header[:8])) != check:
        raise TelemetryFormatError(file, f"a frame's length {length:,} does not agree with its checksum")
    return cast("int", length)


def footer_value(file: str, footer: bytes) -> int:
    """Return the footer of a frame; raises TelemetryFormatError when it is cut."""
    if len(footer) < FOOTER:
        raise TelemetryFormatError(file, "a frame is cut, expected a footer")
    return cast("int", _FOOTER.unpack_from(footer)[0])


def check_payload(file: str, footer: int, crc: int) -> None:
    """Refuse a frame whose footer is neither the hook's constant nor the payload's checksum."""
    if footer not in {HOOK_FOOTER, masked(crc)}:
        raise TelemetryFormatError(file, "a frame's payload does not agree with its checksum, nor is that the hook's")


def payload_of(file: str, frame: bytes) -> bytes:
    """Return the payload of one whole frame.

    Raises
    ------
    TelemetryFormatError
        When the frame is not as long as it says, or a checksum is wrong.
    """
    length = payload_length(file, frame)
    if length + FRAMING != len(frame):
        raise TelemetryFormatError(
            file, f"a frame says {length:,} bytes of payload in {len(frame):,} bytes, framing included"
        )
    payload = frame[HEADER:-FOOTER]
    footer = footer_value(file, frame[-FOOTER:])
    if footer != HOOK_FOOTER:
        check_payload(file, footer, crc32c(payload))
    return payload


@dataclass(frozen=True, slots=True)
class Walk:
    """Frames of a part of a file: where their payloads start and how long they are; int64[F] each.

    ``end`` is where the last whole frame ends. ``wrong`` counts frames whose payload does not agree with its checksum;
    they are left out. ``cut`` is the length of a frame, framing included, of which a part only is there; 0 without one.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    end: int
    wrong: int
    cut: int


def walk(file: str, content: bytes) -> Walk:
    """Find the whole frames of a file that TensorBoard reads, from the beginning of a frame on.

    Raises
    ------
    TelemetryFormatError
        When the first frame's length does not agree with its checksum: what follows cannot be found. Where a later
        one does not, the walk ends before it.
    """
    starts: list[int] = []
    lengths: list[int] = []
    known: dict[int, int] = {}
    place, size, wrong, cut = 0, len(content), 0, 0
    unpack, footer_at, crc_of = _HEADER.unpack_from, _FOOTER.unpack_from, google_crc32c.value
    while place + HEADER <= size:
        length, check = unpack(content, place)
        if known.get(length) != check:
            if masked(crc_of(content[place : place + 8])) != check:
                if place:
                    break
                payload_length(file, content[:HEADER])
            known[length] = check
        start = place + HEADER
        end = start + length
        if end + FOOTER > size:
            cut = length + FRAMING
            break
        crc = crc_of(content[start:end])
        if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == footer_at(content, end)[0]:
            starts.append(start)
            lengths.append(length)
        else:
            wrong += 1
        place = end + FOOTER
    return Walk(np.array(starts, np.int64), np.array(lengths, np.int64), place, wrong, cut)
