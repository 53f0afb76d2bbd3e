"""Why a product's shape is slow on a GPU, and which one would be faster.

Sources: NVIDIA's "Matrix Multiplication Background User's Guide" (alignment, tiles, waves) and "Convolutional Layers
User's Guide" (channels).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, prod

import msgspec

from trainguard.kernels.costs import COPY, Inputs, Shape
from trainguard.kernels.formulas.attention import ATTENTION

# The usual side of the block of the result that one multiprocessor computes.
TILE = 128

# Elements of 16 bits in the 16 bytes that tensor cores load at once.
ALIGNED = 8

# A multiple of this fills whole tiles, lines of a cache and banks.
FASTER = 64

NARROW = 64
# Tiles and waves that are this full are no reason.
FULL = 0.75

# A reason that leaves so much of the GPU explains what reaches at least this part of that.
EXPLAINS = 0.6

FEW_CHANNELS = 16
# Fewer rows leave tensor cores' smallest block empty in part.
FEW_ROWS = 16

SMALL_IMAGE = 14 * 14
SHORT_SEQUENCE = 512
WIDE_HEAD = 128


class Reason(StrEnum):
    MISALIGNED = "misaligned"
    NARROW = "narrow"
    FEW_TILES = "few_tiles"
    TILES = "tiles"
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
    STRIDED = "strided"
    MEMORY = "memory"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, its numbers by name, and the shape that would be faster, empty where none is known."""

    reason: Reason
    numbers: Mapping[str, int] = field(default_factory=dict)
    faster: str = ""


_UNKNOWN = Why(Reason.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Measured:
    """How slow an operator is: ``reached`` of what good kernels do, which memory bounds; ``sms`` is 0 if unknown."""

    sms: int
    reached: float
    by_memory: bool


def why_slow(operator: str, shapes: str, measured: Measured) -> Why:
    """Return what the shapes of an operator, as JSON, say about its speed."""
    try:
        return _why(operator, [tuple(each) for each in msgspec.json.decode(shapes, type=list[list[int]])], measured)
    except (msgspec.MsgspecError, IndexError, ValueError):
        return _UNKNOWN


def strided_copy(operator: str, inputs: Inputs | None) -> Why | None:
    """Return how far apart a copy reads or writes neighbours, where the other of both has them side by side."""
    if operator != COPY or inputs is None or len(inputs.strides) < 2:
        return None
    steps = [
        next((stride for size, stride in zip(shape[::-1], strides[::-1], strict=False) if size > 1), 0)
        for shape, strides in zip(inputs.shapes[:2], inputs.strides, strict=False)
    ]
    return Why(Reason.STRIDED, {"stride": max(steps)}) if min(steps) == 1 < max(steps) else None


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


@dataclass(frozen=True, slots=True)
class FusedExperts:
    """Experts of one operator: each token, ``hidden`` wide, goes through ``chosen`` of them.

    ``are_all`` says that no input maps the router's experts to those of this GPU.
    """

    experts: int
    tokens: int
    chosen: int
    hidden: int
    are_all: bool

    @property
    def rows(self) -> int:
        return self.tokens * self.chosen

    @property
    def are_starved(self) -> bool:
        return self.rows < FEW_ROWS * self.experts


def fused_experts(operator: str, shapes: str) -> FusedExperts | None:
    """Return the experts that an operator computes at once; None of another operator, and of shapes that do not fit."""
    try:
        return _fused_experts(operator, msgspec.json.decode(shapes, type=list[list[int]]))
    except (msgspec.MsgspecError, IndexError, ValueError):
        return None


def _fused_experts(operator: str, shapes: Sequence[Sequence[int]]) -> FusedExperts | None:
    if "fused_moe" not in operator and "fused_experts" not in operator:
        return None
    (tokens, hidden), (experts, *_), _, (_, chosen) = shapes[:4]
    return FusedExperts(
        experts=experts,
        tokens=tokens,
        chosen=chosen,
        hidden=hidden,
        are_all=not any(len(each) == 1 and each[0] > experts for each in shapes[4:]),
    )


def _why(operator: str, shapes: list[Shape], measured: Measured) -> Why:
    if operator in _MATRICES:
        left, right = (shapes[place] for place in _MATRICES[operator])
        if operator == "aten::linear":
            return _product(_Product(1, prod(left[:-1]), left[-1], right[0]), measured)
        return _product(_Product(prod(left[:-2]), left[-2], left[-1], right[-1]), measured)
    if (fused := _fused_experts(operator, shapes)) is not None:
        starved = Why(Reason.FEW_ROWS, {"experts": fused.experts, "rows": fused.rows})
        return starved if fused.are_starved else _UNKNOWN
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


@dataclass(frozen=True, slots=True)
class _Product:
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def sides(self) -> tuple[int, int, int]:
        return self.rows, self.inner, self.columns

    @property
    def tiles(self) -> int:
        return self.batch * ceil(self.rows / TILE) * ceil(self.columns / TILE)

    @property
    def full_tiles(self) -> float:
        """How much of its tiles the result fills."""
        return self.batch * self.rows * self.columns / (self.tiles * TILE * TILE)

    def __str__(self) -> str:
        return " x ".join(map(str, self.sides))


def _product(product: _Product, measured: Measured) -> Why:
    # Rows of the result lie one behind the other, those of the left matrix mostly do: their number aligns nothing.
    odd = [size for size in (product.columns, product.inner) if size % ALIGNED]
    if odd:
        inner, columns = (_up(size, FASTER if size in odd else 1) for size in (product.inner, product.columns))
        return Why(Reason.MISALIGNED, {"odd_size": odd[0]}, str(replace(product, inner=inner, columns=columns)))
    narrow = Why(Reason.NARROW, {"narrowest": min(product.sides)})
    if measured.by_memory and min(product.sides) < NARROW:
        return narrow
    if 0 < product.tiles < measured.sms:
        return Why(Reason.FEW_TILES, {"tiles": product.tiles, "tile_side": TILE, "multiprocessors": measured.sms})
    return narrow if measured.by_memory else _quantised(product, measured)


def _quantised(product: _Product, measured: Measured) -> Why:
    """Return what tiles and waves that are partly empty explain; a batch that fills them computes more in the time."""
    waves = ceil(product.tiles / measured.sms) if measured.sms > 0 else 0
    full_waves = product.tiles / (waves * measured.sms) if waves else 1.0
    least = min(product.full_tiles, full_waves)
    if least >= FULL or measured.reached < EXPLAINS * least:
        return _UNKNOWN
    if product.full_tiles <= full_waves:
        full = replace(product, rows=_up(product.rows, TILE), columns=_up(product.columns, TILE))
        return Why(Reason.TILES, {"tile_side": TILE, "narrowest": min(product.rows, product.columns)}, str(full))
    faster = _filled(product, waves * measured.sms)
    if faster.tiles <= product.tiles:
        return _UNKNOWN
    return Why(Reason.WAVES, {"tiles": product.tiles, "multiprocessors": measured.sms}, str(faster))


def _filled(product: _Product, tiles: int) -> _Product:
    """Return the product with more rows, else with more columns, that fills as many of so many tiles as it can."""
    high, wide = product.batch * ceil(product.rows / TILE), product.batch * ceil(product.columns / TILE)
    rows, columns = tiles // wide * TILE, tiles // high * TILE
    if rows > _up(product.rows, TILE):
        return replace(product, rows=rows)
    return replace(product, columns=columns)


def _up(size: int, multiple: int) -> int:
    return ceil(size / multiple) * multiple


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
