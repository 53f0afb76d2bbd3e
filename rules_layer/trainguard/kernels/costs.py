"""An operator's recorded inputs, and the cost of a call."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Annotated, Any

import msgspec

Shape = tuple[int, ...]

UNKNOWN = -1
_BETWEEN = "\x1f"
_FLOATS = ("float", "Float", "Half")
_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "int": 4, "long int": 8, "long": 8, "short": 2, "short int": 2,
    "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inputs:
    """An operator's inputs, in the order of its arguments.

    ``shapes`` are empty for what is no tensor, ``lists`` for what is no list of tensors; ``element_bytes`` is -1 where
    the type is unknown, as that of a list is, and ``kernel_bytes`` is that of the kernels' precision, -1 if unknown.
    ``values`` are other arguments as text, empty where none are recorded; ``packed`` says that the first tensor holds
    two elements a byte, of which its last dimension counts pairs. A trace that records shapes alone, as ranges of NVTX
    do, says neither types nor values: then the type is that of the kernels. ``strides`` are in elements, one for each
    dimension, empty where they say nothing; see `telling_strides`.
    """

    shapes: Sequence[tuple[int, ...]]
    lists: Sequence[Sequence[tuple[int, ...]]]
    element_bytes: Sequence[int]
    values: Sequence[str]
    kernel_bytes: int = UNKNOWN
    packed: bool = False
    strides: Sequence[tuple[int, ...]] = ()

    @property
    def has_values(self) -> bool:
        return any(self.values)

    def elements(self, place: int) -> int:
        """Return how many elements of a tensor memory holds: what `expand` repeats, with a stride of 0, is one."""
        shape = self.shapes[place]
        strides = self.strides[place] if place < len(self.strides) else ()
        if len(strides) != len(shape):
            return prod(shape)
        return prod(size for size, stride in zip(shape, strides, strict=True) if stride or not size)


COPY = "aten::copy_"


def inputs_text(shapes: bytes, types: bytes, values: bytes, strides: bytes = b"") -> str:
    """Return the JSON of an operator's dimensions, types, values and strides as one text; empty without dimensions."""
    parts = (shapes, types, values, *([strides] if strides else []))
    return _BETWEEN.join(part.decode("utf-8", "replace") for part in parts) if shapes else ""


@lru_cache(maxsize=4_096)
def telling_strides(shapes: bytes, strides: bytes, *, is_copy: bool) -> bytes:
    """Return the JSON of strides where they change what a call costs: something is expanded, or a copy turns a tensor.

    Others are dropped, so that calls which differ in them alone are those of one operator.
    """
    pairs = list(zip(_tensors(shapes), _tensors(strides), strict=False))
    told = any(is_expanded(*each) for each in pairs) or (is_copy and any(not is_contiguous(*each) for each in pairs))
    return strides if told else b""


def _tensors(text: bytes) -> list[Shape]:
    """Return the numbers of each tensor, in the order of the arguments; none of what is no tensor."""
    decoded = _decoded(text)
    found = decoded if isinstance(decoded, list) else []
    return [tuple(each) if isinstance(each, list) and all(type(size) is int for size in each) else () for each in found]


def is_expanded(shape: Shape, strides: Shape) -> bool:
    return len(shape) == len(strides) and any(
        not stride and size > 1 for size, stride in zip(shape, strides, strict=True)
    )


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Return whether a tensor's elements lie one behind the other; so it is where no strides of it are known."""
    if len(shape) != len(strides):
        return True
    behind = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != behind:
            return False
        behind *= size
    return True


def shapes_text(text: str) -> str:
    return "".join(text.partition(_BETWEEN)[0].split())


def short_shapes(shapes: str) -> str:
    """Return dimensions as people write them, ``64x512, 512``; what is no tensor is left out, a list is ``…``."""
    decoded = _decoded(shapes)
    if not isinstance(decoded, list):
        return ""
    known = (each for each in decoded if isinstance(each, list) and each)
    return ", ".join("x".join(map(str, each)) if all(type(size) is int for size in each) else "…" for each in known)


# The type of a list of tensors, whose dimensions newer profilers leave out.
LIST = "TensorList"


def read_inputs(text: str, kernel_bytes: int = UNKNOWN, list_elements: int = UNKNOWN) -> Inputs | None:
    """Return the inputs of a text of `inputs_text`; None where they cannot be read.

    ``list_elements`` are those of each list of tensors whose dimensions are not recorded, if that is known.
    """
    parts = [_decoded(part) for part in text.split(_BETWEEN)]
    if len(parts) not in (3, 4) or not isinstance(parts[0], list):
        return None
    try:
        read = [_shapes(each) for each in parts[0]]
    except msgspec.ValidationError:
        return None
    types, values = (part if isinstance(part, list) else [] for part in parts[1:3])
    count = max(len(read), len(values))  # some profilers write the dimensions of tensors alone
    read += [((), ())] * (count - len(read))
    shapes, lists = [shape for shape, _ in read], [each for _, each in read]
    if list_elements >= 0:
        kinds = [*types[:count], *[""] * (count - len(types))]
        lists = [
            [(list_elements,)] if kind == LIST and not known else known
            for kind, known in zip(kinds, lists, strict=True)
        ]
    untyped = UNKNOWN if types else kernel_bytes
    return Inputs(
        shapes=shapes,
        element_bytes=[element_bytes(str(each)) for each in types[:count]] + [untyped] * (count - len(types)),
        values=[str(each) for each in values[:count]] + [""] * (count - len(values)),
        lists=lists,
        kernel_bytes=kernel_bytes,
        strides=_tensors(text.rpartition(_BETWEEN)[2].encode()) if len(parts) == 4 else (),
        packed=bool(types) and str(types[0]).lower().removesuffix("_x2").endswith("float4_e2m1fn"),
    )


_Size = Annotated[int, msgspec.Meta(ge=0)]


def _shapes(found: Any) -> tuple[tuple[int, ...], Sequence[tuple[int, ...]]]:
    """Return the dimensions of a tensor, and those of a list of tensors; one of both is empty."""
    if isinstance(found, list) and found and isinstance(found[0], list):
        return (), msgspec.convert(found, list[tuple[_Size, ...]])
    return msgspec.convert(found, tuple[_Size, ...]), ()


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element of a type as PyTorch names it; -1 for another one."""
    return _BYTES.get(dtype.removeprefix("c10::").lower(), UNKNOWN)


def payload(elements_in: int, elements_out: int, dtype: str) -> int:
    """Return a collective's bytes: the larger one of input and output; -1 where the trace does not say them."""
    size, most = element_bytes(dtype), max(elements_in, elements_out)
    return size * most if size > 0 and most >= 0 else UNKNOWN


@lru_cache(maxsize=4_096)
def first_float(types: bytes) -> str:
    """Return the first floating type in the JSON of an operator's types; empty where there is none."""
    decoded = _decoded(types)
    if not isinstance(decoded, list):
        return ""
    for each in decoded:
        if isinstance(each, str) and (any(word in each for word in _FLOATS) or each == "double"):
            return each
    return ""


def _decoded(text: bytes | str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations, a multiplication and an addition counted each, and bytes to and from memory.

    ``held`` is the size of the tensors: one that is read and overwritten moves twice and is held once. Where shapes
    give bounds alone, ``flops`` are the least and ``most_flops`` the most; else the latter is None.
    """

    flops: int
    bytes: int
    held: int
    most_flops: int | None = None
