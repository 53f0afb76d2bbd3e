"""Reads packed series back, as the page's script does."""

import base64

import numpy as np

from trainguard.report.html.packed import MISSING, STEPS_A_PERCENT


def unpack_percents(text: str) -> list[float | None]:
    """Read what pack_percents wrote: exact to a quarter of a percent."""
    steps = np.frombuffer(base64.b64decode(text), np.uint8)
    return [None if each == MISSING else each / STEPS_A_PERCENT for each in steps.tolist()]


def unpack_floats(text: str) -> list[float | None]:
    """Read what pack_floats wrote."""
    found = np.frombuffer(base64.b64decode(text), "<f4")
    return [None if np.isnan(each) else float(each) for each in found]


def unpack_counts(text: str) -> list[int]:
    """Read what pack_counts wrote."""
    found, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found
