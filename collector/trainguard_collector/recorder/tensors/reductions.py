"""Reductions of many tensors, on the device that holds them: nothing here waits for it.

Small tensors of one size are stacked, large ones cut, so that a piece stays in the cache. Half precision is reduced in
float32; ``std`` and ``variance`` are the population's. Deviations of pieces are joined by the formula of Chan, Golub
and LeVeque (1979), so that a mean far from zero costs no digits.
"""

from collections.abc import Iterable, Sequence
from typing import Any

PIECE_ON_PROCESSOR = 128 * 1024
PIECE_ON_DEVICE = 4 * 1024 * 1024
"""512 KiB of float32, less than a core's cache; on a device 16 MiB, for fewer calls."""

_SHORT = 1024
"""Squares that are summed in a row in float32; the sums of these are summed after that."""

_ABSOLUTE = "abs_"
_SUMMED = frozenset({"mean", "sum"})
_SPREAD = frozenset({"std", "variance"})


def reduce_all(torch: Any, tensors: Sequence[Any], kinds: Sequence[str]) -> "list[tuple[list[int], Any]]":
    """Return the reductions of all tensors as pairs of positions in ``tensors`` and float32[positions, kinds]."""
    groups: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.numel(), tensor.dtype, tensor.device), []).append(place)
    needs = _needed(kinds)
    found = []
    for (size, _, device), places in groups.items():
        most = PIECE_ON_PROCESSOR if device.type == "cpu" else PIECE_ON_DEVICE
        rows = max(most // max(size, 1), 1)
        for start in range(0, len(places), rows):
            chunk = places[start : start + rows]
            if size > most:
                parts = _joined(torch, tensors[chunk[0]].reshape(-1).split(most), needs)
            elif len(chunk) == 1:
                parts = _parts(torch, tensors[chunk[0]].reshape(1, -1), needs)
            else:
                parts = _parts(torch, torch.stack([tensors[place].reshape(-1) for place in chunk]), needs)
            columns = [_column(kind, parts, size).float() for kind in kinds]
            found.append((chunk, torch.stack(columns, dim=1)))
    return found


def _needed(kinds: Iterable[str]) -> "frozenset[str]":
    needs: set[str] = set()
    for kind in kinds:
        prefix, name = _source(kind)
        if name in _SPREAD:
            needs |= {f"{prefix}mean", f"{prefix}deviation"}
        else:
            needs.add(f"{prefix}mean" if name in _SUMMED else f"{prefix}{name}")
    return frozenset(needs)


def _source(kind: str) -> "tuple[str, str]":
    """Return what a reduction is made of, entries (empty) or their absolute values, and which reduction of that."""
    if kind == "l1":
        return _ABSOLUTE, "sum"
    if not kind.startswith(_ABSOLUTE):
        return "", kind
    name = kind[len(_ABSOLUTE) :]
    return ("", "l2") if name == "l2" else (_ABSOLUTE, "sum" if name == "l1" else name)


def _parts(torch: Any, rows: Any, needs: "frozenset[str]") -> "dict[str, Any]":
    """Return each part of which reductions are made, for each of float[rows, entries]."""
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float()
    found = _parts_of(torch, rows, "", needs)
    if any(each.startswith(_ABSOLUTE) for each in needs):
        found.update(_parts_of(torch, rows.abs(), _ABSOLUTE, needs))
    return found


def _parts_of(torch: Any, rows: Any, prefix: str, needs: "frozenset[str]") -> "dict[str, Any]":
    found = {}
    for name, function in (("min", torch.amin), ("max", torch.amax), ("mean", torch.mean), ("prod", torch.prod)):
        if f"{prefix}{name}" in needs:
            found[f"{prefix}{name}"] = function(rows, dim=1)
    if f"{prefix}l2" in needs:
        found[f"{prefix}l2"] = _norm(torch, rows)
    if f"{prefix}deviation" in needs:
        found[f"{prefix}deviation"] = _norm(torch, rows - found[f"{prefix}mean"].unsqueeze(1))
    return found


def _norm(torch: Any, rows: Any) -> Any:
    """Return the norm of each of float[rows, entries]; one long sum of squares would lose digits in float32."""
    norm, size = torch.linalg.vector_norm, rows.shape[1]
    if size <= _SHORT:
        return norm(rows, 2, dim=1)
    whole = size - size % _SHORT
    parts = norm(rows[:, :whole].unflatten(1, (-1, _SHORT)), 2, dim=2)
    if whole < size:
        parts = torch.cat((parts, norm(rows[:, whole:], 2, dim=1, keepdim=True)), dim=1)
    return norm(parts, 2, dim=1)


def _joined(torch: Any, pieces: Sequence[Any], needs: "frozenset[str]") -> "dict[str, Any]":
    by_piece = [_parts(torch, piece.unsqueeze(0), needs) for piece in pieces]
    device = pieces[0].device
    wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    of_all = {name: torch.cat([parts[name] for parts in by_piece]).to(wide) for name in needs}
    # Filled on the device: numbers that are copied there would be waited for.
    sizes = torch.full((len(pieces),), pieces[0].numel(), dtype=wide, device=device)
    sizes[-1].fill_(pieces[-1].numel())
    found = {}
    for name in sorted(needs, key=lambda each: each.endswith("deviation")):  # it needs the mean
        values, kind = of_all[name], name.rpartition("_")[2]
        if kind in ("min", "max"):
            found[name] = (torch.amin if kind == "min" else torch.amax)(values)
        elif kind == "mean":
            found[name] = (values * sizes).sum() / sizes.sum()
        elif kind == "prod":
            found[name] = values.prod()
        elif kind == "l2":
            found[name] = torch.linalg.vector_norm(values)
        else:
            mean = name[: -len("deviation")] + "mean"
            apart = (of_all[mean] - found[mean]) * sizes.sqrt()
            found[name] = torch.linalg.vector_norm(torch.cat((values, apart)))
    return {name: value.reshape(1) for name, value in found.items()}


def _column(kind: str, parts: "dict[str, Any]", size: int) -> Any:
    prefix, name = _source(kind)
    if name == "sum":
        return parts[f"{prefix}mean"] * size
    if name == "std":
        return parts[f"{prefix}deviation"] / size**0.5
    if name == "variance":
        return (parts[f"{prefix}deviation"] / size**0.5) ** 2
    return parts[f"{prefix}{name}"]
