"""Attention, forward and backward.

Sources: PyTorch's ``torch/utils/flop_counter.py`` (two products forward; five backward, one computes scores again), and
the signatures in ``native_functions.yaml`` and in ``flash_attn_interface.py`` of FlashAttention 2 and 3. Of a causal
mask the visible scores count, as in FlashAttention's own benchmark.
"""

from dataclasses import dataclass
from math import prod

from trainguard.kernels.costs import Cost, Inputs
from trainguard.kernels.formulas.common import Formula, once, tensor

_CAUSAL = ("True", "1", "2")
"""Also the numbers of a mask of the memory-efficient kernels: from the top left, from the bottom right."""


@dataclass(frozen=True, slots=True)
class _Signature:
    """Where an operator has its arguments; ``lengths`` are those that hold sequences with lengths of their own.

    ``heads`` is the dimension of the heads, so that the length is the other one of the two in the middle.
    """

    heads: int
    causal: int | None
    lengths: tuple[int, ...] = ()
    query: int = 0

    def forward(self, inputs: Inputs) -> Cost:
        query, key, value = (tensor(inputs, self.query + place) for place in range(3))
        products = self._visible(inputs) * 2 * (query[3] + value[3])
        result = prod(query[:3]) * value[3]
        return once(inputs, products, prod(query), prod(key), prod(value), result)

    def backward(self, inputs: Inputs) -> Cost:
        """Return the cost of five products: scores, and the gradients of value, scores, query and key."""
        query, key, value = (tensor(inputs, self.query + place) for place in range(3))
        products = self._visible(inputs) * 2 * (3 * query[3] + 2 * value[3])
        result = prod(query[:3]) * value[3]
        return once(inputs, products, 2 * prod(query), 2 * prod(key), 2 * prod(value), 2 * result)

    def _visible(self, inputs: Inputs) -> int:
        """Return the number of scores; raises ValueError where the mask's place is unknown."""
        query, key = inputs.shapes[self.query], inputs.shapes[self.query + 1]
        if len(query) != 4 or len(key) != 4 or any(inputs.shapes[place] for place in self.lengths):
            raise ValueError("sequences with lengths of their own")
        length, other = query[3 - self.heads], key[3 - self.heads]
        stacks = query[0] * query[self.heads]
        if self.causal is None or inputs.values[self.causal] not in _CAUSAL or length == 1:
            return stacks * length * other
        if length != other:
            raise ValueError("a causal mask that is no triangle")
        return stacks * length * (length + 1) // 2


_BEHIND, _BEFORE = 2, 1
"""Heads behind the length, and before it."""

ATTENTION: dict[str, Formula] = {
    "aten::_flash_attention_forward": _Signature(_BEHIND, 8, (3, 4)).forward,
    "aten::_scaled_dot_product_flash_attention": _Signature(_BEFORE, 4).forward,
    "aten::_efficient_attention_forward": _Signature(_BEHIND, 9, (4, 5)).forward,
    "aten::_scaled_dot_product_efficient_attention": _Signature(_BEFORE, 6).forward,
    "aten::_cudnn_attention_forward": _Signature(_BEFORE, 10, (4, 5)).forward,
    "aten::_scaled_dot_product_cudnn_attention": _Signature(_BEFORE, 6).forward,
    "aten::_flash_attention_backward": _Signature(_BEHIND, 11, (6, 7), 1).backward,
    "aten::_scaled_dot_product_flash_attention_backward": _Signature(_BEFORE, 11, (6, 7), 1).backward,
    "aten::_efficient_attention_backward": _Signature(_BEHIND, 14, (6, 7), 1).backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _Signature(_BEFORE, 11, (), 1).backward,
    "aten::_cudnn_attention_backward": _Signature(_BEFORE, 14, (9, 10), 1).backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _Signature(_BEFORE, 14, (9, 10), 1).backward,
    "flash_attn::_flash_attn_forward": _Signature(_BEHIND, 5).forward,
    "flash_attn::_flash_attn_backward": _Signature(_BEHIND, 11, (), 1).backward,
    "FlashAttnFunc": _Signature(_BEHIND, 5).forward,
    "flash_attn_3::fwd": _Signature(_BEHIND, 24, (7, 8, 9)).forward,
    "flash_attn_3::_flash_attn_forward": _Signature(_BEHIND, 24, (7, 8, 9)).forward,
    "flash_attn_3::bwd": _Signature(_BEHIND, 16, (9, 10), 1).backward,
    "aiter::_flash_attn_forward": _Signature(_BEHIND, 5).forward,
    "aiter::_flash_attn_backward": _Signature(_BEHIND, 11, (), 1).backward,
}
