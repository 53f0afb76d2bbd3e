"""Why a product's shape is slow on a GPU, and which one would be faster.

Sources: NVIDIA's "Matrix Multiplication Background User's Guide" (alignment, tiles, waves) and "Convolutional Layers
User's Guide" (channels).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, prod

import msgspec

from trainguard.kernels.costs import Shape
from trainguard.kernels.formulas.attention import ATTENTION

TILE = 128
"""The usual side of the block of the result that one multiprocessor computes."""

ALIGNED = 8
"""Elements of 16 bits in the 16 bytes that tensor cores load at once."""

FASTER = 64
"""A multiple of this fills whole tiles, lines of a cache and banks."""

NARROW = 64
FULL_WAVES = 0.75
FEW_CHANNELS = 16
FEW_ROWS = 16
"""Fewer rows leave tensor cores' smallest block empty in part."""

SMALL_IMAGE = 14 * 14
SHORT_SEQUENCE = 512
WIDE_HEAD = 128


class Reason(StrEnum):
    """What a shape, or other calls, say about an operator's speed."""

    MISALIGNED = "misaligned"
    NARROW = "narrow"
    FEW_TILES = "few_tiles"
    WAVES = "waves"
    FEW_ROWS = "few_rows"
    UNEVEN = "uneven"
    SINGLE = "single"
    HEADS = "heads"
    SHORT = "short"
    ATTENTION = "attention"
    DEPTHWISE = "depthwise"
    CHANNELS = "channels"
    SMALL_IMAGES = "small_images"
    CONVOLUTION = "convolution"
    MEMORY = "memory"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, its numbers by name, and the shape that would be faster, empty where none is known."""

    reason: Reason
    numbers: Mapping[str, int] = field(default_factory=dict)
    faster: str = ""


_UNKNOWN = Why(Reason.UNKNOWN)


def why_slow(operator: str, shapes: str, sms: int) -> Why:
    """Return what the shapes of an operator, as JSON, say on a GPU with so many multiprocessors (0 if unknown)."""
    try:
        return _why(operator, [tuple(each) for each in msgspec.json.decode(shapes, type=list[list[int]])], sms)
    except (msgspec.MsgspecError, IndexError, ValueError):
        return _UNKNOWN


def rows_of_weight(operator: str, shapes: str) -> tuple[int, Shape] | None:
    """Return how many rows a product has, and the dimensions of the matrix that they go through; None of another."""
    if operator not in _MATRICES:
        return None
    try:
        decoded = msgspec.json.decode(shapes, type=list[list[int]])
        left, right = (decoded[place] for place in _MATRICES[operator])
    except (msgspec.MsgspecError, IndexError):
        return None
    return (prod(left[:-1]), tuple(right)) if left else None


def _why(operator: str, shapes: list[Shape], sms: int) -> Why:
    if operator in _MATRICES:
        left, right = (shapes[place] for place in _MATRICES[operator])
        columns = right[0] if operator == "aten::linear" else right[-1]
        rows, inner = (prod(left[:-1]), left[-1]) if operator == "aten::linear" else left[-2:]
        return _product(1 if operator == "aten::linear" else prod(left[:-2]), rows, inner, columns, sms)
    if "fused_moe" in operator or "fused_experts" in operator:
        return _experts(shapes[0][0] * shapes[3][1], shapes[1][0])
    if operator in ATTENTION:
        return _attention(shapes[1 if "backward" in operator or "bwd" in operator else 0])
    if "conv" in operator:
        first = 1 if "backward" in operator else 0
        return _convolution(shapes[first], shapes[first + 1])
    return Why(Reason.MEMORY)


_MATRICES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::linear", "aten::_scaled_mm"), (0, 1)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmm_", "aten::_addmm_activation"), (1, 2)),
}


def _product(batch: int, rows: int, inner: int, columns: int, sms: int) -> Why:
    odd = [size for size in (rows, inner, columns) if size % ALIGNED]
    if odd:
        padded = " x ".join(
            f"{ceil(size / FASTER) * FASTER if size % ALIGNED else size}" for size in (rows, inner, columns)
        )
        return Why(Reason.MISALIGNED, {"odd_size": odd[0]}, padded)
    if min(rows, inner, columns) < NARROW:
        return Why(Reason.NARROW, {"narrowest": min(rows, inner, columns)})
    tiles = batch * ceil(rows / TILE) * ceil(columns / TILE)
    counts = {"tiles": tiles, "multiprocessors": sms}
    if 0 < tiles < sms:
        return Why(Reason.FEW_TILES, counts)
    if sms > 0 and tiles < FULL_WAVES * ceil(tiles / sms) * sms:
        return Why(Reason.WAVES, counts)
    return _UNKNOWN


def _experts(rows: int, experts: int) -> Why:
    return Why(Reason.FEW_ROWS, {"experts": experts, "rows": rows}) if rows < FEW_ROWS * experts else _UNKNOWN


def _attention(query: Shape) -> Why:
    length, width = max(query[1:3]), query[3]
    if width > WIDE_HEAD or width % FASTER:
        return Why(Reason.HEADS, {"head_width": width})
    return Why(Reason.SHORT if length <= SHORT_SEQUENCE else Reason.ATTENTION, {"sequence": length})


def _convolution(image: Shape, weight: Shape) -> Why:
    channels, wanted = image[1], weight[0]
    if weight[1] == 1 and channels > 1:
        return Why(Reason.DEPTHWISE, {"channels": channels})
    if min(channels, wanted) < FEW_CHANNELS or channels % ALIGNED or wanted % ALIGNED:
        return Why(Reason.CHANNELS, {"channels": channels, "channels_out": wanted})
    if prod(image[2:]) <= SMALL_IMAGE:
        return Why(Reason.SMALL_IMAGES, {"positions": prod(image[2:])})
    return Why(Reason.CONVOLUTION)
