"""Reductions of many tensors: few operators on the device, whatever their number, and nothing waits for it.

Tensors are cut into rows of one width, and rows of many tensors are reduced at once; the host joins what the rows of a
tensor gave (`folding`). What a tensor has beyond its whole rows, its tail, goes to the host as it is. Half precision is
reduced in float32.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from trainguard_collector.recorder.tensors.bits import dense

PIECE_ON_PROCESSOR = 256 * 1024
# Entries that are reduced at once: 1 MiB of float32, which stays in a cache; on a device 32 MiB, for fewer calls.
#
# A piece needs as much again for differences, and where tensors are put together or of half precision.
PIECE_ON_DEVICE = 8 * 1024 * 1024

# Tensors below so many entries have rows so wide, or of the next width where their rows of that leave no tail: few
# numbers for the host of a large tensor, short tails of a small one.
WIDTHS = ((16 * 1024, 64), (1024 * 1024, 1024))

# Rows of the largest. On a processor a longer sum of squares would lose digits in float32.
WIDEST, WIDEST_ON_PROCESSOR = 16 * 1024, 4 * 1024
# A share of the squares: where less is left of a row's than its mean's, their difference has lost digits.
_LEAST_LEFT = 0.01

_DTYPE, _DEVICE = attrgetter("dtype"), attrgetter("device")
ABSOLUTE = "abs_"
_SUMMED = frozenset({"mean", "sum"})
_SPREAD = frozenset({"std", "variance"})
_GIVE_NORM = frozenset({"min", "max", "deviation"})


@dataclass(frozen=True, eq=False)
class Layout:
    """How tensors of one dtype on one device are cut, the smallest first: ``places`` in what was given, rows and tails.

    The first ``short`` are all tail. ``runs`` are the bounds, among the others, of what is put together; the rest are
    large. ``most`` entries are reduced at once.
    """

    places: "tuple[int, ...]"
    width: int
    rows: "tuple[int, ...]"
    tails: "tuple[int, ...]"
    short: int
    runs: "tuple[tuple[int, int], ...]"
    most: int

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
    pieces = PIECE_ON_PROCESSOR, PIECE_ON_DEVICE
    layouts = _layouts(sizes, tuple(map(_DTYPE, tensors)), tuple(map(_DEVICE, tensors)), pieces)
    return [_group(torch, tensors, layout, needs, memory) for layout in layouts]


# Saved steps have the same few lists of tensors.
@lru_cache(maxsize=16)
def _layouts(
    sizes: "tuple[int, ...]", dtypes: "tuple[Any, ...]", devices: "tuple[Any, ...]", pieces: "tuple[int, int]"
) -> "list[Layout]":
    found: dict[Any, list[tuple[int, int]]] = {}
    for place, (size, dtype, device) in enumerate(zip(sizes, dtypes, devices)):
        is_here = device.type == "cpu"
        found.setdefault((_width(size, is_cpu=is_here), is_here, dtype, device), []).append((size, place))
    layouts = []
    for (width, is_here, _, _), sized in found.items():
        lengths, places = zip(*sorted(sized))
        rows, tails = zip(*(divmod(length, width) for length in lengths))
        piece = pieces[0 if is_here else 1]
        most = max(min(piece // width, sum(rows)), 1) * width
        short, least = rows.count(0), piece // 2
        runs = tuple(_runs([count * width for count in rows[short:]], most, least))
        layouts.append(Layout(places, width, rows, tails, short, runs, most))
    return layouts


def _width(size: int, *, is_cpu: bool) -> int:
    wider = [width for _, width in WIDTHS[1:]] + [WIDEST_ON_PROCESSOR if is_cpu else WIDEST]
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


@lru_cache(maxsize=64)
def needed(kinds: "tuple[str, ...]") -> "tuple[str, ...]":
    """Return the parts of which reductions are made; a deviation and a sum give the norm as well."""
    needs: set[str] = set()
    for kind in kinds:
        prefix, name = source(kind)
        if name in _SPREAD:
            needs |= {f"{prefix}sum", f"{prefix}deviation"}
        else:
            needs.add(f"{prefix}sum" if name in _SUMMED else f"{prefix}{name}")
    if needs >= _GIVE_NORM:
        needs.discard("l2")
    return tuple(sorted(needs))


def source(kind: str) -> "tuple[str, str]":
    """Return what a reduction is made of, entries (empty) or their absolute values, and which reduction of that."""
    if kind == "l1":
        return ABSOLUTE, "sum"
    if not kind.startswith(ABSOLUTE):
        return "", kind
    name = kind[len(ABSOLUTE) :]
    return ("", "l2") if name == "l2" else (ABSOLUTE, "sum" if name == "l1" else name)


def _group(torch: Any, tensors: Sequence[Any], layout: Layout, needs: "tuple[str, ...]", memory: Scratch) -> Group:
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
    columns = _columns(torch, _put_together(torch, whole, layout, memory), layout, needs, memory)
    first = layout.runs[-1][1] if layout.runs else 0
    if first < len(whole):
        for name, column in _of_large(torch, whole[first:], layout, needs, memory).items():
            columns[name] += column
    parts = [column for name in needs for column in columns[name]]
    if ends:
        # One alone is no copy, and the training goes on with it.
        together = ends[0].flatten().clone() if len(ends) == 1 else _flat(torch, ends)
        parts.append(_as_float(torch, together))
    return Group(layout, needs, parts)


def _put_together(torch: Any, whole: "list[Any]", layout: Layout, memory: Scratch) -> "Iterator[Any]":
    for first, end in layout.runs:
        room = memory.take("together", whole[first], layout.most) if whole[first].is_cpu else None
        yield _flat(torch, whole[first:end], room)


def _flat(torch: Any, tensors: "list[Any]", room: Any = None) -> Any:
    """Return the entries of contiguous tensors in one dimension, in ``room`` where there is some."""
    flatten = getattr(torch._utils, "_flatten_dense_tensors", None)
    if room is None and flatten is not None:
        return flatten(tensors)  # one call, not one for each tensor
    flat = [tensor.flatten() for tensor in tensors]  # quicker than `reshape` for those of one dimension
    return torch.cat(flat) if room is None else torch.cat(flat, out=room[: sum(each.shape[0] for each in flat)])


def _of_large(
    torch: Any, tensors: "list[Any]", layout: Layout, needs: "tuple[str, ...]", memory: Scratch
) -> "dict[str, list[Any]]":
    """Return the columns of tensors that are cut into pieces where they lie.

    A processor takes as long for each pass over them: there a deviation comes of norm and sum, without a pass for
    differences, unless it would lose digits.
    """

    def columns(asked: "tuple[str, ...]") -> "dict[str, list[Any]]":
        pieces = (piece for each in tensors for piece in each.flatten().split(layout.most))
        return _columns(torch, pieces, layout, asked, memory)

    if not (tensors[0].is_cpu and "deviation" in needs):
        return columns(needs)
    found = columns(tuple(sorted({*needs, "l2"} - {"deviation"})))
    norm = torch.cat(found["l2"])
    squares = norm.double() ** 2
    left = squares - torch.cat(found["sum"]).double() ** 2 / layout.width
    if bool((left < _LEAST_LEFT * squares).any()):
        found["deviation"] = columns(("deviation", "sum"))["deviation"]
    else:
        found["deviation"] = [left.sqrt().to(norm.dtype)]
    return {name: found[name] for name in needs}


def _columns(
    torch: Any, pieces: "Iterable[Any]", layout: Layout, needs: "tuple[str, ...]", memory: Scratch
) -> "dict[str, list[Any]]":
    columns: dict[str, list[Any]] = {name: [] for name in needs}
    scratch: Any = None
    for piece in pieces:
        matrix = _as_float(torch, piece).view(-1, layout.width)
        if scratch is None:
            scratch = memory.take("differences", matrix, layout.most)
        room = scratch[: matrix.numel()].view(matrix.shape)
        for name, column in _reduced(torch, matrix, room, needs).items():
            columns[name].append(column)
        del piece, matrix  # before the next is made
    return columns


def _as_float(torch: Any, values: Any) -> Any:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _reduced(torch: Any, rows: Any, room: Any, needs: "tuple[str, ...]") -> "dict[str, Any]":
    """Return each part, a number for each of float[rows, entries]; ``room``, of the same shape, is overwritten."""
    found: dict[str, Any] = {}
    if any(each.startswith(ABSOLUTE) for each in needs):
        _reduce_into(torch, found, ABSOLUTE, torch.abs(rows, out=room), room, needs)
    _reduce_into(torch, found, "", rows, room, needs)
    return found


def _reduce_into(
    torch: Any, found: "dict[str, Any]", prefix: str, rows: Any, room: Any, needs: "tuple[str, ...]"
) -> None:
    for name, function in (("min", torch.amin), ("max", torch.amax), ("sum", torch.sum), ("prod", torch.prod)):
        if f"{prefix}{name}" in needs:
            found[f"{prefix}{name}"] = function(rows, dim=1)
    norm = torch.linalg.vector_norm
    if f"{prefix}l2" in needs:
        found[f"{prefix}l2"] = norm(rows, 2, dim=1)
    if f"{prefix}deviation" in needs:
        apart = torch.sub(rows, found[f"{prefix}sum"].unsqueeze(1), alpha=1.0 / rows.shape[1], out=room)
        found[f"{prefix}deviation"] = norm(apart, 2, dim=1)
