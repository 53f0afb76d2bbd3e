"""What a tensor's reductions are made of: how tensors are cut, and a number for each need of each row."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

ABSOLUTE = "abs_"
_SUMMED = frozenset({"mean", "sum"})
_SPREAD = frozenset({"std", "variance"})
_GIVE_NORM = frozenset({"min", "max", "deviation"})


@dataclass(frozen=True, eq=False)
class Layout:
    """How tensors of one dtype on one device are cut: ``places`` in what was given, sizes, rows and tails of each.

    ``runs`` are the bounds of what is put together, ``most`` entries are reduced at once. Rows of a device have one
    ``width``; the first ``short`` tensors are all tail, the bounds of runs are among the others, and what follows them
    is large. On a processor ``lengths`` are those of each row, and nothing is left over for a tail.
    """

    places: "tuple[int, ...]"
    sizes: "tuple[int, ...]"
    rows: "tuple[int, ...]"
    tails: "tuple[int, ...]"
    runs: "tuple[tuple[int, int], ...]"
    most: int
    width: int = 0
    short: int = 0
    lengths: "tuple[int, ...]" = ()


class Group(NamedTuple):
    """Tensors of a layout; ``parts`` are tensors of one dimension: for each need a number for each row, then tails."""

    layout: Layout
    needs: "tuple[str, ...]"
    parts: "list[Any]"


class Scratch:
    """Memory of a processor that reductions write to; it is kept, as the first use of new memory is slow."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def take(self, use: str, like: Any, size: int) -> Any:
        """Return ``size`` entries of the dtype of ``like``, until the same use takes them again."""
        kept = self._kept.get((use, like.dtype))
        if kept is None or kept.shape[0] < size:
            kept = self._kept[use, like.dtype] = like.new_empty(size)
        return kept[:size]


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


def as_float(torch: Any, values: Any) -> Any:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def reduced(torch: Any, rows: Any, room: Any, needs: "tuple[str, ...]") -> "dict[str, Any]":
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
