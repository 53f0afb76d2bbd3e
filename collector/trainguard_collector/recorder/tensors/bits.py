"""Hashes of tensors' bits, one int64 each, on the device that holds them: nothing here waits for it.

A tensor's bytes are read as whole numbers of 32 bits, its lanes; a hash is the sum of lane times weight modulo 2^64.
Weights are odd, so any change within one lane changes the hash: the difference of a lane is below 2^32, and stays above
0 when an odd number multiplies it. They are drawn at random by place, so several changed lanes cancel each other with a
chance of about 2^-32 where all are sign bits of a lane, 2^-63 else. Whole numbers add up to the same in any order, on
any device.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

LANES_ON_PROCESSOR = 256 * 1024
# Lanes that are multiplied at once: 5 and 40 MiB with weights and products, which stay in a cache.
LANES_ON_DEVICE = 2 * 1024 * 1024

_MOST_PLANS = 64
_ODD = -7046029254386353131
# Constants of splitmix64 (Steele, Lea and Flood 2014) as signed numbers.
_MIX = (-4658895280553007687, -7723592293110705685)


class _Together(NamedTuple):
    """Places of small tensors that are hashed side by side, and where the lanes of each begin and end."""

    places: "list[int]"
    begins: Any
    ends: Any
    lanes: int


class BitHashes:
    """Hashes lists of tensors; where lanes lie is sent to a device once for each list of sizes."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plans: dict[Any, list[_Together]] = {}

    def of(self, tensors: Sequence[Any]) -> "tuple[list[int], Any]":
        """Return the order of the hashes, as places in ``tensors`` of one device, and int64[tensors].

        A hash depends on the tensor's bits, the sizes of all tensors of the list, and the kind of the device. A tensor
        of half a chunk or more is hashed alone, smaller ones side by side. Raises for one whose bits cannot be seen.
        """
        torch = self._torch
        with torch.no_grad():
            lanes = [lanes_of(torch, each) for each in tensors]
            sizes = tuple(sum(part.numel() for part in parts) for parts in lanes)
            device = tensors[0].device
            most = LANES_ON_PROCESSOR if device.type == "cpu" else LANES_ON_DEVICE
            large = [place for place, size in enumerate(sizes) if size > most // 2]
            plan = self._plan(sizes, most, device)
            longest = max([0, *(min(sizes[place], most) for place in large), *(each.lanes for each in plan)])
            weights = _weights(torch, longest, device)
            products = torch.zeros(longest + 1, dtype=torch.int64, device=device)
            found = [self._alone(lanes[place], most, weights, products) for place in large]
            packed = torch.empty(max((each.lanes for each in plan), default=0), dtype=torch.int32, device=device)
            found += [self._side_by_side(each, lanes, weights, products, packed) for each in plan]
            return [*large, *(place for each in plan for place in each.places)], torch.cat(found)

    def _plan(self, sizes: "tuple[int, ...]", most: int, device: Any) -> "list[_Together]":
        plan = self._plans.get((sizes, device))
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            groups: list[list[int]] = []
            room = 0
            for place, size in enumerate(sizes):
                if size > most // 2:
                    continue
                if not groups or size > room:
                    groups.append([])
                    room = most
                groups[-1].append(place)
                room -= size
            plan = self._plans[sizes, device] = [self._together(places, sizes, device) for places in groups]
        return plan

    def _together(self, places: "list[int]", sizes: "tuple[int, ...]", device: Any) -> _Together:
        bounds = [0]
        for place in places:
            bounds.append(bounds[-1] + sizes[place])
        both = self._torch.tensor([bounds[:-1], bounds[1:]], device=device)
        return _Together(places, both[0], both[1], bounds[-1])

    def _alone(self, parts: "list[Any]", most: int, weights: Any, products: Any) -> Any:
        torch = self._torch
        total: Any = None
        for part in parts:
            for piece in part.split(most):
                size = piece.numel()
                product = torch.mul(piece, weights[:size], out=products[1 : size + 1])
                own = product.sum()
                # An odd factor: a piece's difference is not lost by those after it.
                total = own if total is None else torch.add(own, total, alpha=_ODD)
        return total.reshape(1)

    def _side_by_side(
        self, together: _Together, lanes: "list[list[Any]]", weights: Any, products: Any, packed: Any
    ) -> Any:
        torch, size = self._torch, together.lanes
        torch.cat([part for place in together.places for part in lanes[place]], out=packed[:size])
        torch.mul(packed[:size], weights[:size], out=products[1 : size + 1])
        products[0].zero_()
        sums = products[: size + 1].cumsum_(0)
        return sums.index_select(0, together.ends) - sums.index_select(0, together.begins)


def lanes_of(torch: Any, tensor: Any) -> "list[Any]":
    """Return a tensor's bytes as views of int32, in the order of its memory; the last up to three are widened."""
    flat = dense(tensor.detach()).reshape(-1)
    size = flat.element_size()
    if size >= 4:
        return [flat.view(torch.int32)]
    each = 4 // size
    whole = flat.numel() // each * each
    parts = []
    if whole:
        body = flat[:whole]
        parts.append((body.clone() if body.storage_offset() % each else body).view(torch.int32))
    if whole < flat.numel():
        parts.append(flat[whole:].view(torch.int8 if size == 1 else torch.int16).to(torch.int32))
    return parts


def dense(tensor: Any) -> Any:
    """Return a tensor with its dimensions in the order of its memory, a copy where it has gaps."""
    if tensor.is_contiguous():
        return tensor
    order = sorted(range(tensor.dim()), key=lambda dimension: -tensor.stride(dimension))
    turned = tensor.permute(order)
    return turned if turned.is_contiguous() else tensor.contiguous()


def _weights(torch: Any, size: int, device: Any) -> Any:
    """Return odd numbers, int64[size], by splitmix64 of each place."""
    mixed = torch.arange(1, size + 1, dtype=torch.int64, device=device).mul_(_ODD)
    for shift, factor in zip((30, 27), _MIX):
        mixed = _shifted(mixed, shift).mul_(factor)
    return _shifted(mixed, 31).bitwise_or_(1)


def _shifted(mixed: Any, by: int) -> Any:
    """Return numbers, each mixed with its own higher bits, which zeros follow."""
    return mixed ^ mixed.bitwise_right_shift(by).bitwise_and_((1 << (64 - by)) - 1)
