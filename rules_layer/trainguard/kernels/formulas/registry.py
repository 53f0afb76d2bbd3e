"""The formula of an operator, by its name."""

import msgspec

from trainguard.kernels.costs import Cost, Inputs
from trainguard.kernels.formulas.attention import ATTENTION, flexible
from trainguard.kernels.formulas.common import Formula
from trainguard.kernels.formulas.moved import MOVED, fused, fused_product
from trainguard.kernels.formulas.products import PRODUCTS

FORMULAS: dict[str, Formula] = PRODUCTS | ATTENTION | MOVED
# Kernels of Inductor by the beginning of their names; others hold tensors that the names do not describe.
_FUSED: tuple[tuple[str, Formula], ...] = (
    ("triton_tem_fused_flex_attention_backward", flexible(3, 2)),
    ("triton_tem_fused_flex_attention", flexible(1, 1)),
    ("triton_poi_", fused),
    ("triton_red_", fused),
    ("triton_per_", fused),
    ("triton_tem_fused_mm", fused_product),
    ("triton_tem_fused_bmm", fused_product),
)


# More operations or bytes than that of one call are those of a broken shape.
MOST = 1 << 62


def is_product(operator: str) -> bool:
    return operator in PRODUCTS or operator in ATTENTION or operator.startswith("triton_tem_")


def cost(operator: str, inputs: Inputs) -> Cost | None:
    """Return the cost of one call; None for an operator without a formula, or where shapes or types lack."""
    formula = FORMULAS.get(operator)
    if formula is None:
        formula = next((each for begins, each in _FUSED if operator.startswith(begins)), None)
    return None if formula is None else computed(formula, inputs)


def computed(formula: Formula, inputs: Inputs) -> Cost | None:
    """Return the cost of inputs by a formula; None where they do not fit it, or no call costs so much."""
    try:
        found = formula(inputs)
    except (ArithmeticError, IndexError, ValueError, msgspec.MsgspecError):
        return None  # fewer inputs or dimensions than the operator has, or none that it could have
    most = found.flops if found.most_flops is None else found.most_flops
    return found if 0 <= found.flops <= most <= MOST and 0 <= found.bytes <= MOST else None
