"""TFRecord frames: a length, its checksum, the payload, and a footer.

The footer is the masked CRC32C of the payload, as TensorFlow writes it. The SageMaker hook writes a constant instead,
the masked CRC32C of the text ``0x12345678``, which is why TensorBoard finds nothing in its files.
"""

import struct
from typing import cast

import google_crc32c

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
