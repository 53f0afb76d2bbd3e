"""Arithmetic of operators by their shapes, against PyTorch's own counter."""

import json
import random
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from trainguard.kernels.costs import inputs_text, read_inputs
from trainguard.kernels.formulas.registry import cost

pytestmark = pytest.mark.torch
SEEDS = range(40)
aten = torch.ops.aten


def flops(name: str, *arguments: Any) -> int:
    """Return what the product counts for a call as the profiler records it."""
    shapes = [list(each.shape) if isinstance(each, torch.Tensor) else [] for each in arguments]
    types = ["float" if isinstance(each, torch.Tensor) else "Scalar" for each in arguments]
    values = ["" if isinstance(each, torch.Tensor) or each is None else str(each) for each in arguments]
    inputs = read_inputs(inputs_text(*(json.dumps(part).encode() for part in (shapes, types, values))))
    assert inputs is not None
    found = cost(name, inputs)
    assert found is not None
    return found.flops


def counted(operator: Any, *arguments: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        operator(*arguments)
    return counter.get_total_flops()


def made(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize("seed", SEEDS)
def test_products_as_torch_counts_them(seed: int) -> None:
    size = random.Random(seed).randint
    batch, rows, inner, columns = (size(1, 40) for _ in range(4))
    pairs = (made(rows, inner), made(inner, columns))
    assert flops("aten::mm", *pairs) == counted(aten.mm, *pairs)
    stacks = (made(batch, rows, inner), made(batch, inner, columns))
    assert flops("aten::bmm", *stacks) == counted(aten.bmm, *stacks)
    assert flops("aten::addmm", made(columns), *pairs, 1, 1) == counted(aten.addmm, made(columns), *pairs)
    assert flops("aten::baddbmm", made(columns), *stacks, 1, 1) == counted(aten.baddbmm, made(columns), *stacks)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions_as_torch_counts_them(seed: int, turned: bool) -> None:
    size = random.Random(seed).randint
    groups, steps, rim, apart = size(1, 3), [size(1, 3)] * 2, [size(0, 2)] * 2, [size(1, 2)] * 2
    taken, given = groups * size(1, 4), groups * size(1, 4)
    image = made(size(1, 3), taken, size(8, 20), size(8, 20))
    kernel = (size(1, 3), size(1, 3))
    weight = made(taken, given // groups, *kernel) if turned else made(given, taken // groups, *kernel)
    said = (steps, rim, apart, turned, [0, 0], groups)
    arguments = (image, weight, None, *said)
    assert flops("aten::convolution", *arguments) == counted(aten.convolution, *arguments)
    gradient = made(*aten.convolution(*arguments).shape)
    of_image, of_weight = [True, False, False], [False, True, False]
    # PyTorch counts a weight's gradient as if there were one group.
    for wanted in (of_image, of_weight, [True, True, False]) if groups == 1 else (of_image,):
        back = (gradient, image, weight, [given], *said, wanted)
        assert flops("aten::convolution_backward", *back) == counted(aten.convolution_backward, *back)


@pytest.mark.parametrize("seed", SEEDS)
def test_attention_as_torch_counts_it(seed: int) -> None:
    size = random.Random(seed).randint
    batch, heads, length, keys, width = (size(1, 40) for _ in range(5))
    query, key = made(batch, heads, length, width), made(batch, heads, keys, width)
    by_torch = flop_registry[aten._scaled_dot_product_flash_attention](query, key, key, out_val=None)
    assert flops("aten::_scaled_dot_product_flash_attention", query, key, key, 0.0, False) == by_torch
    back = (query, query, key, key, query, made(batch, heads, length))
    by_torch = flop_registry[aten._scaled_dot_product_flash_attention_backward](*back[:4], out_val=None)
    arguments = (*back, None, None, length, keys, 0.0, False)
    assert flops("aten::_scaled_dot_product_flash_attention_backward", *arguments) == by_torch
