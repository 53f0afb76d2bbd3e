"""A small picture of palette colours as a PNG, in the page itself: no library, and a few kilobytes."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np

Palette = Sequence[tuple[int, int, int]]
Pixels = np.ndarray[tuple[int, int], np.dtype[np.uint8]]

VIRIDIS: Palette = (
    *((68, 1, 84), (71, 45, 123), (59, 82, 139)),
    *((44, 114, 142), (33, 145, 140), (40, 174, 128)),
    *((94, 201, 98), (173, 220, 48), (253, 231, 37)),
)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE_COLOURS = 3
_LEVEL = 9


def png_url(pixels: Pixels, colours: Palette) -> str:
    """Return a ``data:`` URL of a picture.

    ``pixels``, uint8[rows, columns], are places in at most 255 ``colours``; what is no place there is transparent.
    """
    rows, columns = pixels.shape
    clear = len(colours)
    held = np.minimum(pixels, clear).astype(np.uint8)
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), held], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, _PALETTE_COLOURS, 0, 0, 0)),
        (b"PLTE", bytes([*(channel for colour in colours for channel in colour), 0, 0, 0])),
        (b"tRNS", bytes([255] * clear + [0])),
        (b"IDAT", zlib.compress(lines.tobytes(), _LEVEL)),
        (b"IEND", b""),
    )
    body = _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(body).decode("ascii")


def palette(stops: Palette, shades: int) -> Palette:
    """Return so many colours from the first stop to the last, each channel straight between two of them."""
    places = np.linspace(0.0, len(stops) - 1.0, shades)
    channels = [np.interp(places, range(len(stops)), [stop[channel] for stop in stops]) for channel in range(3)]
    return [(round(red), round(green), round(blue)) for red, green, blue in zip(*channels, strict=True)]
