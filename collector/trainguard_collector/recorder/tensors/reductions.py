"""Reductions of many tensors, on the device that holds them: nothing here waits for it.

``std`` and ``variance`` are those of the population, as the rules' are. Norms of half precision are summed in float32.
"""

from collections.abc import Sequence
from typing import Any

LARGEST_STACKED = 256 * 1024
STACKED_ENTRIES = 4 * 1024 * 1024
"""Tensors of up to so many entries are stacked, up to so many entries at a time: 16 MiB of float32."""


def reduce_all(torch: Any, tensors: Sequence[Any], kinds: Sequence[str]) -> "list[tuple[list[int], Any]]":
    """Return the reductions of all tensors as pairs of positions in ``tensors`` and float32[positions, kinds].

    Small tensors of one size are reduced together: a call for each of them would take longer than the work.
    """
    groups: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        size = tensor.numel()
        key = (size, tensor.dtype, tensor.device) if size <= LARGEST_STACKED else place
        groups.setdefault(key, []).append(place)
    found = []
    for places in groups.values():
        most = max(STACKED_ENTRIES // max(tensors[places[0]].numel(), 1), 1)
        for start in range(0, len(places), most):
            chunk = places[start : start + most]
            if len(chunk) == 1:
                columns = _columns(torch, tensors[chunk[0]], kinds, {})
            else:
                rows = torch.stack([tensors[place].reshape(-1) for place in chunk])
                columns = _columns(torch, rows, kinds, {"dim": 1})
            found.append((chunk, torch.stack(columns, dim=1)))
    return found


def _columns(torch: Any, tensor: Any, kinds: Sequence[str], along: "dict[str, int]") -> "list[Any]":
    """Return each reduction of a tensor, or of its rows, as float32[1] or float32[rows]."""
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    known: dict[str, Any] = {}
    return [_one(torch, tensor, kind, known, along).reshape(-1).float() for kind in kinds]


def _one(torch: Any, tensor: Any, kind: str, known: "dict[str, Any]", along: "dict[str, int]") -> Any:
    """Return one reduction; what comes of one pass over the tensor is kept in ``known``."""
    if kind in known:
        return known[kind]
    order = _ORDERS.get(kind, 0)
    if order:
        norm = torch.linalg.vector_norm(tensor, order, dtype=_wide(torch, tensor), **along)
        known[kind] = norm / (tensor.shape[1] if along else tensor.numel()) if kind == "abs_mean" else norm
    elif kind in ("min", "max"):
        known["min"], known["max"] = torch.aminmax(tensor, **along)
    elif kind in ("mean", "std"):
        known["std"], known["mean"] = _std_mean(torch, tensor, along)
    elif kind == "variance":
        known[kind] = torch.var(tensor, correction=0, **along)
    elif kind.startswith("abs_"):
        known[kind] = _one(torch, tensor.abs(), kind[4:], {}, along)
    else:
        known[kind] = getattr(torch, kind)(tensor, dtype=_wide(torch, tensor), **along)
    return known[kind]


def _std_mean(torch: Any, tensor: Any, along: "dict[str, int]") -> "tuple[Any, Any]":
    """Return deviation and mean; of what is small in two passes, which is several times as fast on a processor."""
    count = tensor.shape[1] if along else tensor.numel()
    if count > LARGEST_STACKED:
        deviation, mean = torch.std_mean(tensor, correction=0, **along)
        return deviation, mean
    wide = _wide(torch, tensor)
    mean = torch.mean(tensor, dtype=wide, **along)
    centred = tensor - (mean.unsqueeze(1) if along else mean)
    return torch.linalg.vector_norm(centred, 2, dtype=wide, **along) / count**0.5, mean


_ORDERS = {"l1": 1, "abs_l1": 1, "abs_sum": 1, "abs_mean": 1, "l2": 2, "abs_l2": 2}


def _wide(torch: Any, tensor: Any) -> Any:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def checksum(torch: Any, tensors: Sequence[Any]) -> Any:
    """Return one float64 number, exact, that is the same where all bits of all tensors are; below 2^52.

    Each tensor's bits are summed as whole numbers, so the order of addition does not matter; sums are weighted by the
    tensor's place.
    """
    sums = []
    for tensor in tensors:
        flat = tensor.detach().contiguous().reshape(-1)
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
        sums.append(flat.view(whole).sum(dtype=torch.int64))
    stacked = torch.stack(sums)
    weights = (torch.arange(1, len(sums) + 1, device=stacked.device, dtype=torch.int64) * 2_654_435_761) % (2**31) | 1
    return ((stacked * weights).sum() & (2**52 - 1)).double()
