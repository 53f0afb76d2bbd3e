"""A small picture of palette colours as a PNG, in the page itself: no library, and a few kilobytes."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np

Palette = Sequence[tuple[int, int, int]]
Pixels = np.ndarray[tuple[int, int], np.dtype[np.uint8]]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE_COLOURS = 3
_LEVEL = 9


def png_url(pixels: Pixels, palette: Palette) -> str:
    """Return a ``data:`` URL of a picture.

    Parameters
    ----------
    pixels : uint8[rows, columns]
        Places in the palette; what is no place there is transparent.
    palette : sequence of (int, int, int)
        Red, green and blue, at most 255 colours.
    """
    rows, columns = pixels.shape
    clear = len(palette)
    held = np.minimum(pixels, clear).astype(np.uint8)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), held], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, _PALETTE_COLOURS, 0, 0, 0)),
        (b"PLTE", bytes([*(channel for colour in palette for channel in colour), 0, 0, 0])),
        (b"tRNS", bytes([255] * clear + [0])),
        (b"IDAT", zlib.compress(lines.tobytes(), _LEVEL)),
        (b"IEND", b""),
    )
    body = _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)
    return "data:image/png;base64," + base64.b64encode(body).decode("ascii")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
