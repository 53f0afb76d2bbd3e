"""Attention, forward and backward.

Sources: PyTorch's ``torch/utils/flop_counter.py`` (two products forward; five backward, one computes scores again), and
the signatures in ``native_functions.yaml`` and in ``flash_attn_interface.py`` of FlashAttention 2 and 3 (``hopper/``).
Of a causal mask and of a window the visible scores count, as in FlashAttention's own benchmark. Of sequences with
lengths of their own a trace records totals, how many there are and the longest: these give bounds.
"""

from dataclasses import dataclass
from math import prod

from trainguard.kernels.costs import Cost, Inputs, Shape
from trainguard.kernels.formulas.common import Formula, once, tensor

# Also the numbers of a mask of the memory-efficient kernels: from the top left, from the bottom right.
_CAUSAL = ("True", "1", "2")

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Signature:
    """Where an operator has its arguments.

    ``heads`` is the dimension of the heads, so that the length is the other one of the two in the middle. ``lengths``
    hold where sequences begin, queries first, behind them ``longest``; ``window`` is the first of two sides of a window
    around the diagonal, and ``others`` are tensors with which keys are not those that the shapes say.
    """

    heads: int
    causal: int | None
    lengths: tuple[int, ...] = ()
    longest: int | None = None
    window: int | None = None
    others: tuple[int, ...] = ()
    query: int = 0

    def forward(self, inputs: Inputs) -> Cost:
        query, key, value = self._tensors(inputs)
        result = prod(query[:-1]) * value[-1]
        return self._cost(inputs, 2 * (query[-1] + value[-1]), prod(query), prod(key), prod(value), result)

    def backward(self, inputs: Inputs) -> Cost:
        """Return the cost of five products: scores, and the gradients of value, scores, query and key."""
        query, key, value = self._tensors(inputs)
        result = prod(query[:-1]) * value[-1]
        sizes = (2 * prod(query), 2 * prod(key), 2 * prod(value), 2 * result)
        return self._cost(inputs, 2 * (3 * query[-1] + 2 * value[-1]), *sizes)

    def _tensors(self, inputs: Inputs) -> tuple[Shape, Shape, Shape]:
        query, key, value = (tensor(inputs, self.query + place) for place in range(3))
        return query, key, value

    def _cost(self, inputs: Inputs, of_score: int, *sizes: int) -> Cost:
        least, most = self._visible(inputs)
        moved = once(inputs, of_score * least, *sizes)
        return moved if least == most else Cost(moved.flops, moved.bytes, moved.held, of_score * most)

    def _visible(self, inputs: Inputs) -> Bounds:
        """Return the least and the most number of scores; raises ValueError where shapes bound neither."""
        if any(place < len(inputs.shapes) and inputs.shapes[place] for place in self.others):
            raise ValueError("keys in pages, or fewer than the shapes say")
        if any(inputs.shapes[place] for place in self.lengths):
            return self._of_lengths(inputs)
        query, key = inputs.shapes[self.query], inputs.shapes[self.query + 1]
        if len(query) != 4 or len(key) != 4:
            raise ValueError("neither a batch nor sequences with lengths of their own")
        length, other = query[3 - self.heads], key[3 - self.heads]
        stacks = query[0] * query[self.heads]
        left, right = self._sides(inputs)
        if max(left, right) < 0 or (length == 1 and right >= 0 > left):
            return stacks * length * other, stacks * length * other
        if length != other:
            raise ValueError("a mask that is no triangle")
        seen = stacks * (length + _beside(length, left) + _beside(length, right))
        return seen, seen

    def _sides(self, inputs: Inputs) -> Bounds:
        """Return how many keys before and behind its own a query sees; -1 for all."""
        said = [-1, -1]
        if self.window is not None and self.window + 1 < len(inputs.values):
            said = [int(each) if each else -1 for each in inputs.values[self.window : self.window + 2]]
        causal = self.causal is not None and inputs.values[self.causal] in _CAUSAL
        return said[0], 0 if causal else said[1]

    def _of_lengths(self, inputs: Inputs) -> Bounds:
        """Return bounds of the scores: sequences of one length have most, unless they are as long as the longest."""
        ends = [tensor(inputs, place) for place in self.lengths]
        query, key = (inputs.shapes[self.query + place] for place in range(2))
        heads, total, keys = query[-2], prod(query[:-2]), prod(key[:-2])
        count, of_keys = ends[0][0] - 1, ends[-1][0] - 1
        longest = [max(each, 1) for each in self._longest(inputs, total, keys)]
        left, right = self._sides(inputs)
        if count < 1 or count != of_keys or total > count * longest[0] or keys > count * longest[1]:
            raise ValueError("lengths that do not fit")
        if (total, longest[0]) != (keys, longest[1]):
            return self._across(total, keys, count, longest, masked=left >= 0 or right >= 0, heads=heads)
        most, rest = divmod(total, longest[0])
        short, more = divmod(total, count)
        one, longer, whole = (_seen(length, left, right) for length in (short, short + 1, longest[0]))
        return heads * ((count - more) * one + more * longer), heads * (most * whole + _seen(rest, left, right))

    def _longest(self, inputs: Inputs, total: int, keys: int) -> Bounds:
        said = () if self.longest is None else inputs.values[self.longest : self.longest + 2]
        known = [int(each) if each.isdecimal() else 0 for each in said]
        return known[0] if known and known[0] else total, known[1] if len(known) > 1 and known[1] else keys

    @staticmethod
    def _across(total: int, keys: int, count: int, longest: list[int], *, masked: bool, heads: int) -> Bounds:
        """Return bounds where queries and keys differ; sequences of one length on a side make them one number."""
        most = heads * min(total * longest[1], keys * longest[0])
        even = total == count * longest[0] or keys == count * longest[1]
        return 0 if masked or not even else most, most


def _beside(length: int, side: int) -> int:
    """Return how many keys on one side of their own all queries of a sequence see, at most ``side`` each; -1: all."""
    reach = length - 1 if side < 0 else max(min(side, length - 1), 0)
    return reach * (reach + 1) // 2 + max(length - 1 - reach, 0) * reach


def _seen(length: int, left: int, right: int) -> int:
    return length + _beside(length, left) + _beside(length, right)


def flexible(of_query: int, of_value: int) -> Formula:
    """Return the formula of a kernel of FlexAttention, of which a trace does not say what its mask hides."""

    def of(inputs: Inputs) -> Cost:
        query, key, value = (tensor(inputs, place) for place in range(3))
        if len(query) != 4 or len(key) != 4:
            raise ValueError("no batch of heads")
        moved = once(inputs, 0, prod(query), prod(key), prod(value), prod(query[:3]) * value[3])
        each = 2 * (of_query * query[3] + of_value * value[3])
        return Cost(0, moved.bytes, moved.held, prod(query[:3]) * key[2] * each)

    return of


# Heads behind the length, and before it.
_BEHIND, _BEFORE = 2, 1

_VARLEN = _Signature(_BEHIND, 9, (3, 4), 5, 10, (15, 16, 17))
_VARLEN_BACK = _Signature(_BEHIND, 15, (9, 10), 11, 16, query=1)
_THREE = _Signature(_BEHIND, 24, (7, 8), 12, 25, (3, 9, 10, 11, 14))

ATTENTION: dict[str, Formula] = {
    "aten::_flash_attention_forward": _Signature(_BEHIND, 8, (3, 4), 5, 11, (13,)).forward,
    "aten::_scaled_dot_product_flash_attention": _Signature(_BEFORE, 4).forward,
    "aten::_efficient_attention_forward": _Signature(_BEHIND, 9, (4, 5), 6).forward,
    "aten::_scaled_dot_product_efficient_attention": _Signature(_BEFORE, 6).forward,
    "aten::_cudnn_attention_forward": _Signature(_BEFORE, 10, others=(4, 5)).forward,
    "aten::_scaled_dot_product_cudnn_attention": _Signature(_BEFORE, 6).forward,
    "aten::_flash_attention_backward": _Signature(_BEHIND, 11, (6, 7), 8, 15, query=1).backward,
    "aten::_scaled_dot_product_flash_attention_backward": _Signature(_BEFORE, 11, others=(6, 7), query=1).backward,
    "aten::_efficient_attention_backward": _Signature(_BEHIND, 14, (6, 7), 8, query=1).backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _Signature(_BEFORE, 11, query=1).backward,
    "aten::_cudnn_attention_backward": _Signature(_BEFORE, 14, others=(9, 10), query=1).backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _Signature(_BEFORE, 14, others=(9, 10), query=1).backward,
    "flash_attn::_flash_attn_forward": _Signature(_BEHIND, 5, window=6).forward,
    "flash_attn::_flash_attn_backward": _Signature(_BEHIND, 11, window=12, query=1).backward,
    "flash_attn::_flash_attn_varlen_forward": _VARLEN.forward,
    "flash_attn::_flash_attn_varlen_backward": _VARLEN_BACK.backward,
    "FlashAttnFunc": _Signature(_BEHIND, 5).forward,
    "FlashAttnVarlenFunc": _Signature(_BEHIND, 9, (3, 4), 5).forward,
    "flash_attn_3::fwd": _THREE.forward,
    "flash_attn_3::_flash_attn_forward": _THREE.forward,
    "flash_attn_3::bwd": _Signature(_BEHIND, 16, (9, 10), 13, 17, (11, 12), query=1).backward,
    "flash_attn_3::_flash_attn_backward": _Signature(_BEHIND, 16, (6, 7), 10, 17, (8, 9), query=1).backward,
    "aiter::_flash_attn_forward": _Signature(_BEHIND, 5, window=6).forward,
    "aiter::_flash_attn_backward": _Signature(_BEHIND, 11, window=12, query=1).backward,
}
