"""Reductions on a processor: small tensors of one shape side by side, a row each, others piece by piece where they lie.

Each pass reads what the pass before has left in a cache. A norm and a sum give a deviation without a pass for
differences; where that loses digits, a piece is read again in float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from trainguard_collector.recorder.tensors.bits import dense
from trainguard_collector.recorder.tensors.parts import ABSOLUTE, Group, Layout, Scratch, as_float, reduced

# Entries that are reduced at once: 2 MiB of float32.
PIECE = 512 * 1024
# Longer sums of squares would lose digits in float32: those of a row, and those by BLAS, which adds several up at once.
WIDEST, _SQUARED_AT_ONCE = 4 * 1024, 128 * 1024
# Fewer tensors of a shape are reduced alone, which costs each as much as three have together.
_FEWEST = 3
# A share of the squares: where less is left than the mean's square, the difference has lost digits.
_LEAST_LEFT = 0.1


def lay_out(shaped: "Iterable[tuple[tuple[int, ...], int]]", most: int) -> Layout:
    """Return the layout of tensors of one dtype, given as shapes and places."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for shape, place in shaped:
        by_shape.setdefault(shape, []).append(place)
    places: list[int] = []
    sizes: list[int] = []
    runs: list[tuple[int, int]] = []
    alone: list[tuple[int, int]] = []
    for shape, same in by_shape.items():
        size = prod(shape)
        if len(same) < _FEWEST or size > WIDEST or not shape:
            alone += [(place, size) for place in same]
            continue
        step = max(most // size, 1)
        runs += [
            (first, min(first + step, len(places) + len(same)))
            for first in range(len(places), len(places) + len(same), step)
        ]
        places += same
        sizes += [size] * len(same)
    pieces = [[min(most, size - begin) for begin in range(0, size, most)] for _, size in alone]
    rows = [1] * len(places) + [len(each) for each in pieces]
    lengths = [*sizes, *(length for each in pieces for length in each)]
    places += [place for place, _ in alone]
    sizes += [size for _, size in alone]
    return Layout(
        tuple(places), tuple(sizes), tuple(rows), (0,) * len(places), tuple(runs), most, lengths=tuple(lengths)
    )


def reduce_here(torch: Any, tensors: Sequence[Any], layout: Layout, needs: "tuple[str, ...]", memory: Scratch) -> Group:
    """Return the numbers of tensors of a processor."""
    columns: dict[str, list[Any]] = {name: [] for name in needs}
    for first, end in layout.runs:
        members, size = [tensors[place] for place in layout.places[first:end]], layout.sizes[first]
        room = memory.take("together", members[0], len(members) * size)
        # Along the first dimension of all, which needs no view of each.
        torch.cat(members, out=room.view(-1, *members[0].shape[1:]))
        rows = as_float(torch, room).view(-1, size)
        differences = memory.take("differences", rows, rows.numel()).view(rows.shape)
        for name, column in reduced(torch, rows, differences, needs).items():
            columns[name].append(column)
    together = layout.runs[-1][1] if layout.runs else 0
    if together < len(layout.places):
        for name, column in _of_pieces(torch, tensors, layout, needs, memory).items():
            columns[name].append(column)
    return Group(layout, needs, [column for name in needs for column in columns[name]])


def _of_pieces(
    torch: Any, tensors: Sequence[Any], layout: Layout, needs: "tuple[str, ...]", memory: Scratch
) -> "dict[str, Any]":
    """Return a column for each need: a number for each piece of the tensors that are reduced alone."""
    wanted = {prefix: _wanted(prefix, needs) for prefix in ("", ABSOLUTE)}
    found: dict[str, list[Any]] = {f"{prefix}{name}": [] for prefix, names in wanted.items() for name in names}
    square: Any = None
    for piece in _pieces(tensors, layout):
        values = as_float(torch, piece)
        if square is None:
            square, dtype = _square(torch, values.dtype), values.dtype
        _add_numbers(torch, found, "", values, wanted[""], square)
        if wanted[ABSOLUTE]:
            room = memory.take("differences", values, values.shape[0])
            _add_numbers(torch, found, ABSOLUTE, torch.abs(values, out=room), wanted[ABSOLUTE], square)
    columns = {name: torch.stack(numbers) for name, numbers in found.items()}
    for prefix, names in wanted.items():
        if "squares" in names:
            _add_spread(torch, columns, prefix, tensors, layout, needs)
    return {name: columns[name].to(dtype) for name in needs}


def _wanted(prefix: str, needs: "tuple[str, ...]") -> "frozenset[str]":
    names = {name.removeprefix(prefix) for name in needs if name.startswith(ABSOLUTE) == bool(prefix)}
    if names & {"l2", "deviation"}:
        names = names - {"l2", "deviation"} | {"squares", "sum"}
    return frozenset(names)


def _square(torch: Any, dtype: Any) -> "Callable[[Any], Any]":
    """Return what adds squares up: BLAS, unless the script lets it round entries to half precision."""
    told = _told(torch, dtype)
    is_exact = float(torch.dot(told, told)) > told.shape[0]
    return (lambda values: torch.dot(values, values)) if is_exact else (lambda values: values.square().sum())


@lru_cache(maxsize=4)
def _told(torch: Any, dtype: Any) -> Any:
    return torch.full((8192,), 1.0 + 2.0**-10, dtype=dtype)


def _pieces(tensors: Sequence[Any], layout: Layout) -> "Iterator[Any]":
    together = layout.runs[-1][1] if layout.runs else 0
    for place, size in zip(layout.places[together:], layout.sizes[together:]):
        flat = dense(tensors[place]).flatten()
        if size > layout.most:
            yield from flat.split(layout.most)
        else:
            yield flat


def _add_numbers(
    torch: Any,
    found: "dict[str, list[Any]]",
    prefix: str,
    values: Any,
    names: "frozenset[str]",
    square: "Callable[[Any], Any]",
) -> None:
    if "sum" in names:
        found[f"{prefix}sum"].append(torch.sum(values))
    if "squares" in names:
        parts = values.split(_SQUARED_AT_ONCE) if values.shape[0] > _SQUARED_AT_ONCE else (values,)
        found[f"{prefix}squares"] += map(square, parts)
    if "min" in names and "max" in names:
        low, high = torch.aminmax(values)
        found[f"{prefix}min"].append(low)
        found[f"{prefix}max"].append(high)
    else:
        for name, function in (("min", torch.amin), ("max", torch.amax)):
            if name in names:
                found[f"{prefix}{name}"].append(function(values))
    if "prod" in names:
        found[f"{prefix}prod"].append(torch.prod(values))


def _add_spread(
    torch: Any,
    columns: "dict[str, Any]",
    prefix: str,
    tensors: Sequence[Any],
    layout: Layout,
    needs: "tuple[str, ...]",
) -> None:
    """Add norms of pieces and deviations from their means, both from squares and sums."""
    lengths, parts = _lengths(torch, layout)
    squares = columns[f"{prefix}squares"].double()
    if parts is not None:
        squares = torch.segment_reduce(squares, "sum", lengths=parts, unsafe=True)
    left = squares - columns[f"{prefix}sum"].double() ** 2 / lengths
    norm, deviation = squares.sqrt(), left.sqrt()
    is_lost = squares.isinf()
    if f"{prefix}deviation" in needs:
        is_lost |= left < _LEAST_LEFT * squares
    if bool(is_lost.any()):
        lost = set(is_lost.nonzero().flatten().tolist())
        for number, piece in enumerate(_pieces(tensors, layout)):
            if number in lost:
                exact = piece.double().abs() if prefix else piece.double()
                norm[number] = torch.linalg.vector_norm(exact)
                deviation[number] = torch.linalg.vector_norm(exact - exact.mean())
    columns[f"{prefix}l2"], columns[f"{prefix}deviation"] = norm, deviation


@lru_cache(maxsize=16)
def _lengths(torch: Any, layout: Layout) -> "tuple[Any, Any]":
    """Return the lengths of pieces, and how many parts their squares have, None where each has one."""
    together = layout.runs[-1][1] if layout.runs else 0
    lengths = layout.lengths[together:]
    parts = [-(-length // _SQUARED_AT_ONCE) for length in lengths]
    return torch.tensor(lengths, dtype=torch.float64), torch.tensor(parts) if max(parts) > 1 else None
