"""Reductions of many tensors: few operators on the device, whatever their number, and nothing waits for it.

Tensors are cut into rows of one width, and rows of many tensors are reduced at once; the host joins what the rows of a
tensor gave (`folding`). What a tensor has beyond its whole rows, its tail, goes to the host as it is. Half precision is
reduced in float32.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from trainguard_collector.recorder.tensors.bits import dense

PIECE_ON_PROCESSOR = 256 * 1024
# Entries that are reduced at once: 1 MiB of float32, which stays in a cache; on a device 32 MiB, for fewer calls.
#
# A piece needs as much again for differences, and where tensors are put together or of half precision.
PIECE_ON_DEVICE = 8 * 1024 * 1024

# Tensors below so many entries have rows so wide: few numbers for the host of a large tensor, short tails of a small
# one.
WIDTHS = ((16 * 1024, 64), (1024 * 1024, 1024))

# A row on a device. On a processor a longer sum of squares than 1,024 would lose digits in float32.
WIDEST = 16 * 1024

_DTYPE, _DEVICE = attrgetter("dtype"), attrgetter("device")
_ABSOLUTE = "abs_"
_SUMMED = frozenset({"mean", "sum"})
_SPREAD = frozenset({"std", "variance"})
_GIVE_NORM = frozenset({"min", "max", "deviation"})


class Layout(NamedTuple):
    """How tensors of one dtype on one device are cut: ``places`` in what was given, and rows and tail of each there."""

    places: "tuple[int, ...]"
    width: int
    rows: "tuple[int, ...]"
    tails: "tuple[int, ...]"

    @property
    def sizes(self) -> "list[int]":
        return [rows * self.width + tail for rows, tail in zip(self.rows, self.tails)]


class Group(NamedTuple):
    """Tensors of a layout; ``parts`` are tensors of one dimension: for each need a number for each row, then tails."""

    layout: Layout
    needs: "tuple[str, ...]"
    parts: "list[Any]"


class Scratch:
    """Memory that reductions write to; a processor's is kept, as the first use of new memory is slow."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def take(self, use: str, like: Any, size: int) -> Any:
        """Return ``size`` entries of the dtype of ``like``, on its device, until the same use takes them again."""
        if not like.is_cpu:
            return like.new_empty(size)
        kept = self._kept.get((use, like.dtype))
        if kept is None or kept.shape[0] < size:
            kept = self._kept[use, like.dtype] = like.new_empty(max(size, PIECE_ON_PROCESSOR))
        return kept[:size]


def reduce_rows(torch: Any, tensors: Sequence[Any], kinds: Iterable[str], memory: Scratch) -> "list[Group]":
    """Return what the host needs for the reductions ``kinds`` of tensors, none of them empty."""
    needs = needed(tuple(kinds))
    sizes = tuple(map(torch.Tensor.numel, tensors))
    layouts = _layouts(sizes, tuple(map(_DTYPE, tensors)), tuple(map(_DEVICE, tensors)))
    return [_group(torch, tensors, layout, needs, memory) for layout in layouts]


# Saved steps have the same few lists of tensors.
@lru_cache(maxsize=16)
def _layouts(sizes: "tuple[int, ...]", dtypes: "tuple[Any, ...]", devices: "tuple[Any, ...]") -> "list[Layout]":
    """Return layouts, each with its smallest tensor first."""
    found: dict[Any, list[tuple[int, int]]] = {}
    for place, (size, dtype, device) in enumerate(zip(sizes, dtypes, devices)):
        found.setdefault((_width(size, device.type == "cpu"), dtype, device), []).append((size, place))
    layouts = []
    for (width, _, _), sized in found.items():
        lengths, places = zip(*sorted(sized))
        rows, tails = zip(*(divmod(length, width) for length in lengths))
        layouts.append(Layout(places, width, rows, tails))
    return layouts


def _width(size: int, is_cpu: bool) -> int:
    for below, width in WIDTHS:
        if size < below:
            return width
    return WIDTHS[-1][1] if is_cpu else WIDEST


@lru_cache(maxsize=64)
def needed(kinds: "tuple[str, ...]") -> "tuple[str, ...]":
    """Return the parts of which reductions are made; a deviation and a mean give the norm as well."""
    needs: set[str] = set()
    for kind in kinds:
        prefix, name = source(kind)
        if name in _SPREAD:
            needs |= {f"{prefix}mean", f"{prefix}deviation"}
        else:
            needs.add(f"{prefix}mean" if name in _SUMMED else f"{prefix}{name}")
    if needs >= _GIVE_NORM:
        needs.discard("l2")
    return tuple(sorted(needs))


def source(kind: str) -> "tuple[str, str]":
    """Return what a reduction is made of, entries (empty) or their absolute values, and which reduction of that."""
    if kind == "l1":
        return _ABSOLUTE, "sum"
    if not kind.startswith(_ABSOLUTE):
        return "", kind
    name = kind[len(_ABSOLUTE) :]
    return ("", "l2") if name == "l2" else (_ABSOLUTE, "sum" if name == "l1" else name)


def _group(torch: Any, tensors: Sequence[Any], layout: Layout, needs: "tuple[str, ...]", memory: Scratch) -> Group:
    places, width, rows, tails = layout
    whole, ends = [], []
    for place, count, tail in zip(places, rows, tails):
        tensor = tensors[place]
        if not tensor.is_contiguous():
            tensor = dense(tensor)
        if not tail:
            whole.append((count * width, tensor))
        elif not count:
            ends.append(tensor)
        else:
            flat = tensor.reshape(-1)
            whole.append((count * width, flat[: count * width]))
            ends.append(flat[count * width :])
    most = PIECE_ON_PROCESSOR if tensors[places[0]].is_cpu else PIECE_ON_DEVICE
    most = max(min(most // width, sum(rows)), 1) * width
    columns: dict[str, list[Any]] = {name: [] for name in needs}
    scratch: Any = None
    for piece in _pieces(torch, whole, most, memory):
        matrix = _as_float(torch, piece).view(-1, width)
        if scratch is None:
            scratch = memory.take("differences", matrix, most)
        room = scratch[: matrix.numel()].view(matrix.shape)
        for name, column in _reduced(torch, matrix, room, needs).items():
            columns[name].append(column)
        del piece, matrix  # before the next is made
    parts = [column for name in needs for column in columns[name]]
    if ends:
        together = _together(torch, ends)
        # One alone is no copy, and the training goes on with it.
        parts.append(_as_float(torch, together.clone() if len(ends) == 1 else together))
    return Group(layout, needs, parts)


def _pieces(torch: Any, whole: "list[tuple[int, Any]]", most: int, memory: Scratch) -> "Iterator[Any]":
    """Yield all entries of tensors, in order and the smallest first: small ones together, parts of large ones."""
    together: list[Any] = []
    length = 0
    room: Any = None
    for size, tensor in whole:
        is_large = 2 * size > most
        if together and (is_large or length + size > most):
            yield _together(torch, together, room)
            together, length = [], 0
        if is_large:
            yield from tensor.reshape(-1).split(most)
        else:
            if room is None and tensor.is_cpu:
                room = memory.take("together", tensor, most)
            together.append(tensor)
            length += size
    if together:
        yield _together(torch, together, room)


def _together(torch: Any, tensors: "list[Any]", room: Any = None) -> Any:
    """Return the entries of contiguous tensors in one dimension, in ``room`` where there is some."""
    flatten = getattr(torch._utils, "_flatten_dense_tensors", None)
    if room is None and flatten is not None:
        return flatten(tensors)  # one call, not one for each tensor
    flat = [tensor.reshape(-1) for tensor in tensors]
    return torch.cat(flat) if room is None else torch.cat(flat, out=room[: sum(each.shape[0] for each in flat)])


def _as_float(torch: Any, values: Any) -> Any:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _reduced(torch: Any, rows: Any, room: Any, needs: "tuple[str, ...]") -> "dict[str, Any]":
    """Return each part, a number for each of float[rows, entries]; ``room``, of the same shape, is overwritten."""
    found: dict[str, Any] = {}
    if any(each.startswith(_ABSOLUTE) for each in needs):
        _reduce_into(torch, found, _ABSOLUTE, torch.abs(rows, out=room), room, needs)
    _reduce_into(torch, found, "", rows, room, needs)
    return found


def _reduce_into(
    torch: Any, found: "dict[str, Any]", prefix: str, rows: Any, room: Any, needs: "tuple[str, ...]"
) -> None:
    for name, function in (("min", torch.amin), ("max", torch.amax), ("mean", torch.mean), ("prod", torch.prod)):
        if f"{prefix}{name}" in needs:
            found[f"{prefix}{name}"] = function(rows, dim=1)
    norm = torch.linalg.vector_norm
    if f"{prefix}l2" in needs:
        found[f"{prefix}l2"] = norm(rows, 2, dim=1)
    if f"{prefix}deviation" in needs:
        apart = torch.sub(rows, found[f"{prefix}mean"].unsqueeze(1), out=room)
        found[f"{prefix}deviation"] = norm(apart, 2, dim=1)
