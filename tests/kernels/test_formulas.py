"""Costs of attention, narrow products, normalisation, optimizers and moved bytes, against a count by loops."""

import json
from collections.abc import Sequence
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.kernels.costs import Cost, Inputs, inputs_text, read_inputs
from trainguard.kernels.formulas.registry import cost

BF16, FP8, FP4 = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2"
sizes = st.integers(1, 6)


def called(
    shapes: Sequence[object],
    types: list[str] | str = BF16,
    values: dict[int, str] | None = None,
    kernel_bytes: int = -1,
) -> Inputs:
    kinds = types if isinstance(types, list) else [types if shape else "" for shape in shapes]
    said = [(values or {}).get(place, "") for place in range(len(shapes))]
    found = read_inputs(inputs_text(*(json.dumps(part).encode() for part in (shapes, kinds, said))), kernel_bytes)
    assert found is not None
    return found


def products(shape: list[int], keys: int, width: int, value: int, *, causal: bool) -> int:
    """Count the operations of scores and of their product with the values, one score after the other."""
    count = 0
    for _ in range(shape[0] * shape[1]):
        for query in range(shape[2]):
            for key in range(keys):
                count += (2 * width + 2 * value) if not causal or key <= query else 0
    return count


@given(sizes, sizes, sizes, sizes, st.integers(1, 8), st.booleans())
def test_attention_counts_each_score(batch: int, heads: int, length: int, keys: int, width: int, causal: bool) -> None:
    keys = length if causal else keys
    masked = {10: str(causal), 4: str(causal), 6: str(causal), 8: str(causal), 5: str(causal)}
    before = [[batch, heads, length, width], [batch, heads, keys, width], [batch, heads, keys, width]]
    behind = [[batch, length, heads, width], [batch, keys, heads, width], [batch, keys, heads, width]]
    counted = products(before[0], keys, width, width, causal=causal)
    moved = 2 * 2 * (prod(before[0]) + prod(before[1]))
    for name, shapes in (
        ("aten::_scaled_dot_product_flash_attention", before),
        ("aten::_scaled_dot_product_cudnn_attention", before),
        ("aten::_cudnn_attention_forward", before),
        ("aten::_flash_attention_forward", behind),
        ("flash_attn::_flash_attn_forward", behind),
    ):
        found = cost(name, called([*shapes, *[[]] * 8], values=masked))
        assert found == Cost(counted, moved, moved), name


BACKWARD = [[2, 4, 128, 64]] * 5
BEHIND = [[2, 128, 4, 64]] * 5


@pytest.mark.parametrize(
    ("name", "shapes", "causal"),
    [
        ("aten::_scaled_dot_product_flash_attention_backward", [*BACKWARD, [2, 4, 128], *[[]] * 8], 11),
        ("aten::_scaled_dot_product_efficient_attention_backward",
         [BACKWARD[0]] * 4 + [[]] + BACKWARD[:2] + [[]] * 5, 11),
        ("aten::_cudnn_attention_backward", [*BACKWARD, [2, 4, 128, 1], *[[]] * 10], 14),
        ("aten::_flash_attention_backward", [*BEHIND, [2, 4, 128], *[[]] * 8], 11),
        ("flash_attn::_flash_attn_backward", [*BEHIND, [2, 4, 128], *BEHIND[:3], *[[]] * 6], 11),
        ("flash_attn_3::bwd", [*BEHIND, [2, 4, 128], *BEHIND[:3], *[[]] * 12], 16),
    ],
)  # fmt: skip
def test_backward_attention_has_five_products(name: str, shapes: list[object], causal: int) -> None:
    size = 2 * 4 * 128 * 64
    for masked, seen in (("False", 128), ("True", 64.5)):
        found = cost(name, called(shapes, values={causal: masked}))
        assert found == Cost(round(10 * size * seen), 2 * 8 * size, 2 * 8 * size)


def test_sequences_with_lengths_of_their_own_have_no_cost() -> None:
    shapes = [*[[2, 512, 3, 64]] * 3, [3], [3], *[[]] * 6]
    assert cost("aten::_flash_attention_forward", called(shapes, values={8: "True"})) is None
    assert cost("flash_attn::_flash_attn_varlen_forward", called([[512, 3, 64]] * 3)) is None


@given(sizes, sizes, sizes, sizes)
def test_products_by_group_add_up(groups: int, rows: int, inner: int, columns: int) -> None:
    flops = groups * 2 * rows * inner * columns
    tokens = groups * rows
    for shapes in (
        [[tokens, inner], [groups, inner, columns], [groups]],
        [[groups, rows, inner], [groups, inner, columns], []],
    ):
        moved = 2 * (tokens * inner + groups * inner * columns + tokens * columns)
        assert cost("aten::_grouped_mm", called(shapes)) == Cost(flops, moved, moved)
    both = cost("aten::_grouped_mm", called([[rows, groups * inner], [groups * inner, columns], [groups]]))
    assert both is not None
    assert both.flops == flops


MOE = [[16, 4096], [64, 22016, 4096], [64, 4096, 11008], [16, 2]]
EXPERT = 22016 * 4096 + 4096 * 11008
PARAMETERS = [[64, 64], [64]]


@pytest.mark.parametrize(
    ("name", "inputs", "flops", "moved"),
    [
        ("aten::_scaled_mm", called([[8, 16], [16, 4], [], [], [], [], [], []], FP8, {6: "15"}), 1024,
         8 * 16 + 64 + 64),
        ("aten::_scaled_mm", called([[8, 16], [16, 4], [], [], [], [], [], []], FP8), 1024, 8 * 16 + 64 + 32),
        ("vllm::rocm_aiter_fused_moe", called(MOE, "BFloat16"), 2 * 32 * EXPERT, 2 * (32 * EXPERT + 2 * 16 * 4096)),
        ("aten::mv", called([[8, 16], [16]]), 256, 2 * (128 + 16 + 8)),
        ("aten::native_layer_norm", called([[4, 8, 16], [], [16], [16], []]), 512, 2 * 2 * 512),
        ("aten::native_layer_norm_backward", called([[4, 8, 16], [4, 8, 16], []]), 512, 3 * 2 * 512),
        ("aten::native_batch_norm", called([[4, 8, 16], [8], [8], [8], [8], []], values={5: "True"}), 512, 3 * 1024),
        ("aten::native_batch_norm", called([[4, 8, 16], [8], [8], [8], [8], []], values={5: "False"}), 512, 2 * 1024),
        ("aten::cudnn_batch_norm_backward", called([[4, 8, 16]] * 2), 512, 5 * 2 * 512),
        ("aten::_softmax", called([[4, 8, 16], [], []]), 512, 2 * 2 * 512),
        ("aten::_log_softmax_backward_data", called([[4, 8], [4, 8], [], []]), 32, 3 * 2 * 32),
        ("aten::copy_", called([[8, 16], [8, 16], []], ["float", BF16, ""]), 0, 128 * 6),
        ("aten::eq", called([[8, 16], []]), 128, 128 * 3),
        ("aten::where", called([[8, 16], [8, 16], [8, 16]], ["bool", BF16, BF16]), 128, 128 * 7),
        ("aten::fill_", called([[8, 16], []]), 0, 256),
        ("aten::embedding", called([[1000, 16], [4, 8], []], [BF16, "long int", ""]), 0, 2 * 32 * 32 + 32 * 8),
        ("aten::index_select", called([[1000, 16], [], [32]], [BF16, "", "long"], {1: "0"}), 0, 2 * 32 * 32 + 32 * 8),
        ("aten::_foreach_add_", called([PARAMETERS, PARAMETERS, []], kernel_bytes=4), 4160, 3 * 4 * 4160),
        ("aten::_foreach_addcmul_", called([PARAMETERS] * 3, kernel_bytes=4), 3 * 4160, 3 * 4 * 4160),
        ("aten::_foreach_sqrt", called([PARAMETERS], kernel_bytes=4), 4160, 2 * 4 * 4160),
        ("aten::_fused_adamw_", called([PARAMETERS] * 4, kernel_bytes=4), 12 * 4160, 7 * 4 * 4160),
        ("aten::cat", called([PARAMETERS, []], kernel_bytes=2), 0, 2 * 2 * 4160),
        ("triton_poi_fused_add_0", called([[8, 16], [8, 16], [8, 16], []], ["float", "float", BF16, ""]), 128,
         128 * 10),
        ("triton_tem_fused_mm_1", called([[8, 16], [16, 4], [8, 4]]), 1024, 2 * (128 + 64 + 32)),
        ("aten::max_pool2d_with_indices",
         called([[2, 3, 8, 8], [], [], [], [], []], values={1: "[2, 2]", 2: "[]", 3: "[0]", 4: "[1]", 5: "False"}),
         96 * 4, 2 * (384 + 96) + 8 * 96),
    ],
)  # fmt: skip
def test_arithmetic_and_bytes(name: str, inputs: Inputs, flops: int, moved: int) -> None:
    found = cost(name, inputs)
    assert found is not None
    assert (found.flops, found.bytes) == (flops, moved)


def test_dimensions_of_tensors_alone_are_enough() -> None:
    """TraceLens' micro-traces leave out the places of other arguments, and write these as tuples."""
    values = ["", "", "", "(2,2)", "(3,3)", "(1,1)", "False", "(0,0)", "1"]
    parts = ([[1, 3, 2048, 2048], [64, 3, 7, 7]], ["Float", "Float"], values)
    inputs = read_inputs(inputs_text(*(json.dumps(part).encode() for part in parts)))
    assert inputs is not None
    found = cost("aten::convolution", inputs)
    assert found is not None
    assert found.flops == 19_730_006_016  # as TraceLens counts it


@given(st.sampled_from(sorted({"aten::_foreach_add_", "aten::cat", "aten::_grouped_mm",
         "aten::max_pool2d_with_indices"})),
       st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5),
       st.lists(st.text(alphabet="[]-0123456789TruFals,", max_size=5), max_size=12))  # fmt: skip
def test_any_inputs_have_a_cost_or_none(name: str, shapes: list[list[int]], values: list[str]) -> None:
    found = cost(name, called(list(shapes), values=dict(enumerate(values))))
    assert found is None or (found.flops >= 0 and found.bytes >= 0)
