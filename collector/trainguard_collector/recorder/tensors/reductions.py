"""Reductions of many tensors: few operators on a device, whatever their number, and nothing waits for it.

There tensors are cut into rows of one width, and rows of many tensors are reduced at once; the host joins what the rows
of a tensor gave (`folding`). What a tensor has beyond its whole rows, its tail, goes to the host as it is. Half
precision is reduced in float32. A processor has a way of its own (`processor`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import Any, Optional

from trainguard_collector.recorder.tensors import processor
from trainguard_collector.recorder.tensors.bits import dense
from trainguard_collector.recorder.tensors.parts import Group, Layout, Scratch, as_float, needed, reduced

# Entries that are reduced at once: 32 MiB of float32, for few calls.
#
# A piece needs as much again for differences, and where tensors are put together or of half precision.
PIECE_ON_DEVICE = 8 * 1024 * 1024

# Tensors below so many entries have rows so wide, or of the next width where their rows of that leave no tail: few
# numbers for the host of a large tensor, short tails of a small one.
WIDTHS = ((16 * 1024, 64), (1024 * 1024, 1024))
WIDEST = 16 * 1024

_SHAPE, _DTYPE, _DEVICE, _IS_HERE = map(attrgetter, ("shape", "dtype", "device", "is_cpu"))


def reduce_rows(torch: Any, tensors: Sequence[Any], kinds: Iterable[str], memory: Scratch) -> "list[Group]":
    """Return what the host needs for the reductions ``kinds`` of tensors, none of them empty."""
    needs = needed(tuple(kinds))
    devices = None if all(map(_IS_HERE, tensors)) else tuple(map(_DEVICE, tensors))
    pieces = processor.PIECE, PIECE_ON_DEVICE
    layouts = _layouts(tuple(map(_SHAPE, tensors)), tuple(map(_DTYPE, tensors)), devices, pieces)
    return [
        _group(torch, tensors, layout, needs)
        if layout.width
        else processor.reduce_here(torch, tensors, layout, needs, memory)
        for layout in layouts
    ]


# Saved steps have the same few lists of tensors.
@lru_cache(maxsize=16)
def _layouts(
    shapes: "tuple[tuple[int, ...], ...]",
    dtypes: "tuple[Any, ...]",
    devices: "Optional[tuple[Any, ...]]",
    pieces: "tuple[int, int]",
) -> "list[Layout]":
    """Return layouts of tensors, each of one dtype on one device; without ``devices`` all are the processor's."""
    here: dict[Any, list[tuple[tuple[int, ...], int]]] = {}
    found: dict[Any, list[tuple[int, int]]] = {}
    for place, (shape, dtype) in enumerate(zip(shapes, dtypes)):
        device = devices[place] if devices else None
        if device is None or device.type == "cpu":
            here.setdefault(dtype, []).append((shape, place))
        else:
            size = prod(shape)
            found.setdefault((_width(size), dtype, device), []).append((size, place))
    layouts = [processor.lay_out(shaped, pieces[0]) for shaped in here.values()]
    for (width, _, _), sized in found.items():
        sizes, places = zip(*sorted(sized))
        rows, tails = zip(*(divmod(size, width) for size in sizes))
        most = max(min(pieces[1] // width, sum(rows)), 1) * width
        short, least = rows.count(0), pieces[1] // 2
        runs = tuple(_runs([count * width for count in rows[short:]], most, least))
        layouts.append(Layout(places, sizes, rows, tails, runs, most, width, short))
    return layouts


def _width(size: int) -> int:
    wider = [*(width for _, width in WIDTHS[1:]), WIDEST]
    for (below, width), next_width in zip(WIDTHS, wider):
        if size < below:
            return width if size % next_width else next_width
    return wider[-1]


def _runs(sizes: "list[int]", most: int, least: int) -> "Iterator[tuple[int, int]]":
    """Yield the bounds of what is put together: as many tensors of less than ``least`` as fit into a piece."""
    first = length = 0
    for place, size in enumerate(sizes):
        is_large = size >= least
        if first < place and (is_large or length + size > most):
            yield first, place
            first, length = place, 0
        if is_large:
            return
        length += size
    if first < len(sizes):
        yield first, len(sizes)


def _group(torch: Any, tensors: Sequence[Any], layout: Layout, needs: "tuple[str, ...]") -> Group:
    ordered = [tensors[place] for place in layout.places]
    if not all(map(torch.Tensor.is_contiguous, ordered)):
        ordered = [dense(each) for each in ordered]
    ends, whole = ordered[: layout.short], ordered[layout.short :]
    if any(layout.tails[layout.short :]):
        for place, (count, tail) in enumerate(zip(layout.rows[layout.short :], layout.tails[layout.short :])):
            if tail:
                flat, whole[place] = whole[place].flatten(), None
                whole[place] = flat[: count * layout.width]
                ends.append(flat[count * layout.width :])
    columns: dict[str, list[Any]] = {name: [] for name in needs}
    scratch: Any = None
    for piece in _pieces(torch, whole, layout):
        rows = as_float(torch, piece).view(-1, layout.width)
        if scratch is None:
            scratch = rows.new_empty(layout.most)
        for name, column in reduced(torch, rows, scratch[: rows.numel()].view(rows.shape), needs).items():
            columns[name].append(column)
        del piece, rows  # before the next is made
    parts = [column for name in needs for column in columns[name]]
    if ends:
        # One alone is no copy, and the training goes on with it.
        together = ends[0].flatten().clone() if len(ends) == 1 else _flat(torch, ends)
        parts.append(as_float(torch, together))
    return Group(layout, needs, parts)


def _pieces(torch: Any, whole: "list[Any]", layout: Layout) -> "Iterator[Any]":
    """Yield what is reduced at once: small tensors together, large ones cut where they lie."""
    for first, end in layout.runs:
        yield _flat(torch, whole[first:end])
    for each in whole[layout.runs[-1][1] if layout.runs else 0 :]:
        yield from each.flatten().split(layout.most)


def _flat(torch: Any, tensors: "list[Any]") -> Any:
    """Return the entries of contiguous tensors in one dimension."""
    flatten = getattr(torch._utils, "_flatten_dense_tensors", None)
    # One call, not one for each tensor.
    return flatten(tensors) if flatten else torch.cat([tensor.flatten() for tensor in tensors])
