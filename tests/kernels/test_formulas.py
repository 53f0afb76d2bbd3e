"""Costs of attention, narrow products, normalisation, optimizers and moved bytes, against a count by loops."""

import json
from collections.abc import Sequence
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainguard.kernels.costs import Cost, Inputs, inputs_text, read_inputs
from trainguard.kernels.formulas.registry import FORMULAS, cost

BF16, FP8, FP4 = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2"
sizes = st.integers(1, 6)


def called(
    shapes: Sequence[object],
    types: list[str] | str = BF16,
    values: dict[int, str] | None = None,
    kernel_bytes: int = -1,
    strides: Sequence[object] = (),
) -> Inputs:
    kinds = types if isinstance(types, list) else [types if shape else "" for shape in shapes]
    said = [(values or {}).get(place, "") for place in range(len(shapes))]
    recorded = (shapes, kinds, said, *([strides] if strides else []))
    found = read_inputs(inputs_text(*(json.dumps(part).encode() for part in recorded)), kernel_bytes)
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
    before = [[batch, heads, length, width], [batch, heads, keys, width], [batch, heads, keys, width]]
    behind = [[batch, length, heads, width], [batch, keys, heads, width], [batch, keys, heads, width]]
    counted = products(before[0], keys, width, width, causal=causal)
    moved = 2 * 2 * (prod(before[0]) + prod(before[1]))
    for name, shapes, mask in (
        ("aten::_scaled_dot_product_flash_attention", before, 4),
        ("aten::_scaled_dot_product_cudnn_attention", before, 6),
        ("aten::_cudnn_attention_forward", before, 10),
        ("aten::_flash_attention_forward", behind, 8),
        ("flash_attn::_flash_attn_forward", behind, 5),
        ("flash_attn_3::fwd", behind, 24),
    ):
        found = cost(name, called([*shapes, *[[]] * 24], values={mask: str(causal)}))
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


def seen(length: int, left: int, right: int) -> int:
    """Count the keys that the queries of a sequence see, one pair after the other."""
    pairs = [(query, key) for query in range(length) for key in range(length)]
    return sum((left < 0 or query - key <= left) and (right < 0 or key - query <= right) for query, key in pairs)


sides = st.integers(-1, 5)


@given(st.integers(1, 9), sides, sides, st.booleans())
def test_a_window_hides_what_is_beside_it(length: int, left: int, right: int, causal: bool) -> None:
    said = {5: str(causal), 6: str(left), 7: str(right)}
    found = cost("flash_attn::_flash_attn_forward", called([*[[2, length, 3, 8]] * 3, *[[]] * 8], values=said))
    assert found is not None
    assert (found.flops, found.most_flops) == (2 * 3 * 4 * 8 * seen(length, left, 0 if causal else right), None)


def packed(lengths: list[int], *, left: int, causal: bool, backward: bool = False) -> Cost | None:
    """Return the cost of sequences of some lengths behind each other, as a trace of FlashAttention 2 records them."""
    wide, ends, longest = [sum(lengths), 3, 8], [len(lengths) + 1], str(max(lengths))
    if backward:
        shapes: list[object] = [*[wide] * 5, [3, sum(lengths)], *[wide] * 3, ends, ends, *[[]] * 10]
        said = {11: longest, 12: longest, 15: str(causal), 16: str(left), 17: "-1"}
        return cost("flash_attn::_flash_attn_varlen_backward", called(shapes, values=said))
    said = {5: longest, 6: longest, 9: str(causal), 10: str(left), 11: "-1"}
    return cost("flash_attn::_flash_attn_varlen_forward", called([*[wide] * 3, ends, ends, *[[]] * 13], values=said))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), sides, st.booleans(), st.booleans())
def test_packed_sequences_lie_within_bounds(lengths: list[int], left: int, causal: bool, backward: bool) -> None:
    found = packed(lengths, left=left, causal=causal, backward=backward)
    assert found is not None
    each = 3 * 8 * (10 if backward else 4)
    truth = each * sum(seen(length, left, 0 if causal else -1) for length in lengths)
    most = found.flops if found.most_flops is None else found.most_flops
    assert found.flops <= truth <= most
    if len(set(lengths)) == 1:
        assert (found.flops, found.most_flops) == (truth, None)
    sizes = 3 * 8 * sum(lengths)
    assert found.bytes == 2 * (8 if backward else 4) * sizes


def test_keys_in_pages_and_lengths_that_do_not_fit_have_no_cost() -> None:
    wide: list[object] = [*[[512, 3, 64]] * 3, [5], [5], *[[]] * 13]
    assert cost("flash_attn::_flash_attn_varlen_forward", called(wide, values={5: "100", 6: "100"})) is None
    wide[15] = [4, 8]
    assert cost("flash_attn::_flash_attn_varlen_forward", called(wide, values={5: "512", 6: "512"})) is None
    assert cost("flash_attn::_flash_attn_varlen_forward", called([[512, 3, 64]] * 3)) is None


def test_queries_of_one_token_see_all_keys() -> None:
    shapes = [[4, 3, 64], [100, 3, 64], [100, 3, 64], [5], [5], *[[]] * 13]
    found = cost("flash_attn::_flash_attn_varlen_forward", called(shapes, values={5: "1", 6: "60"}))
    assert found is not None
    assert (found.flops, found.most_flops) == (4 * 64 * 3 * 100, None)


def test_what_a_mask_of_flex_attention_hides_is_unknown() -> None:
    shapes = [*[[2, 4, 128, 64]] * 3, [2, 4, 128]]
    found = cost("triton_tem_fused_flex_attention_0", called(shapes))
    back = cost("triton_tem_fused_flex_attention_backward_1", called(shapes))
    assert found is not None
    assert back is not None
    assert (found.flops, found.most_flops, back.most_flops) == (0, 4 * 8 * 128 * 128 * 64, 10 * 8 * 128 * 128 * 64)


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
        ("aten::_scaled_mm", called([[8, 16], [16, 4], [], [], [], [], [], []], FP4, {6: "15"}), 2048,
         8 * 16 + 64 + 64),
        ("aten::_scaled_grouped_mm_v2", called([[32, 16], [4, 16, 8], *[[]] * 6, [4]], FP4), 2 * 32 * 8 * 32,
         32 * 16 + 4 * 16 * 8 + 32 * 8),
        ("tex_ts::te_gemm_ts",
         called([[4, 16], [], [], [], [], [8, 16], [], [], [], [], [8, 4], *[[]] * 11],
                ["unsigned char", *[""] * 4, "unsigned char", *[""] * 4, BF16]), 1024, 64 + 128 + 64),
        ("_Linear", called([[4, 16], [2, 3, 16], [4]]), 2 * 6 * 64, 2 * (64 + 96 + 24)),
        ("_LayerNormLinear", called([[6, 16], [16], [], [4, 16], [4]]), 2 * 6 * 64, 2 * (64 + 96 + 24)),
        ("_GroupedLinear", called([[6, 16], [], [4, 16], [4, 16], [4], [4]]), 2 * 6 * 64, 2 * (128 + 96 + 24)),
        ("LigerCrossEntropyFunction", called([[8, 100], [8]]), 800, 3 * 2 * 800),
        ("LigerRMSNormFunctionBackward", called([[4, 8, 16]]), 512, 3 * 2 * 512),
        ("LigerRopeFunction", called([[1, 4, 8, 16], [1, 2, 8, 16], [8, 16], [8, 16]]), 3 * 768, 2 * 2 * 768),
        ("aten::native_dropout", called([[4, 8], [], []]), 32, 32 * 5),
        ("aten::glu_backward", called([[4, 8], [4, 16], []]), 32, 2 * 5 * 32),
        ("aten::_embedding_bag", called([[100, 16], [32], [8], *[[]] * 6]), 512, 2 * 40 * 16 + 8 * 40),
        ("aten::_embedding_bag_dense_backward",
         called([[8, 16], [32], [32], [8], [8], [], [], [], []], values={5: "100"}), 512,
         2 * (32 * 16 + 1600) + 8 * 32),
        ("aten::index", called([[100, 16], [[8]]]), 0, 2 * 8 * 32 + 64),
        ("aten::nll_loss_forward", called([[8, 100], [8], [], [], []]), 8, 8 * 10),
        ("aten::mean", called([[8, 16], [], [], []], values={1: "[]"}), 128, 2 * 129),
        ("aten::fill_", called([[], []], ["float", "Scalar"]), 0, 4),
        ("aten::add_", called([[], [], []], ["long int", "long int", "Scalar"]), 1, 16),
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


@pytest.mark.parametrize(
    ("name", "shapes", "strides", "elements"),
    [
        ("aten::add", [[8, 16], [8, 16], []], [[16, 1], [0, 1], []], 128 + 16 + 128),
        ("aten::mul_", [[8, 16], [8, 16]], [[16, 1], [0, 0]], 128 + 1 + 128),
        ("aten::copy_", [[8, 16], [8, 16], []], [[16, 1], [1, 0], []], 128 + 8),
        ("aten::copy_", [[8, 16], [8, 16], []], [[16, 1], [1, 8], []], 128 + 128),
        ("aten::bmm", [[4, 8, 16], [4, 16, 2]], [[128, 16, 1], [0, 2, 1]], 4 * 128 + 32 + 4 * 16),
        # Strides that do not fit the dimensions, or are no numbers, say nothing.
        ("aten::copy_", [[8, 16], [8, 16], []], [[16, 1], [0], []], 128 + 128),
        ("aten::copy_", [[8, 16], [8, 16], []], [[16, 1], "0", {}], 128 + 128),
    ],
)
def test_what_is_expanded_is_read_once(
    name: str, shapes: list[list[int]], strides: list[object], elements: int
) -> None:
    found = cost(name, called(shapes, strides=strides))
    assert found is not None
    assert found.bytes == 2 * elements


def test_dimensions_of_tensors_alone_are_enough() -> None:
    """TraceLens' micro-traces leave out the places of other arguments, and write these as tuples."""
    values = ["", "", "", "(2,2)", "(3,3)", "(1,1)", "False", "(0,0)", "1"]
    parts = ([[1, 3, 2048, 2048], [64, 3, 7, 7]], ["Float", "Float"], values)
    inputs = read_inputs(inputs_text(*(json.dumps(part).encode() for part in parts)))
    assert inputs is not None
    found = cost("aten::convolution", inputs)
    assert found is not None
    assert found.flops == 19_730_006_016  # as TraceLens counts it


@settings(max_examples=1_000, deadline=None)
@given(st.sampled_from([*sorted(FORMULAS), "triton_tem_fused_flex_attention_0", "triton_poi_fused_add_0"]),
       st.lists(st.one_of(st.lists(st.integers(0, 4), max_size=4), st.just([[2, 2], [0]])), max_size=26),
       st.lists(st.sampled_from(["", "[]", "[2, 2]", "0", "1", "-1", "True", "False", "[True, False, True]", "x"]),
                max_size=26))  # fmt: skip
def test_any_inputs_have_a_cost_or_none(name: str, shapes: list[object], values: list[str]) -> None:
    found = cost(name, called(list(shapes), values=dict(enumerate(values))))
    assert found is None or (found.flops >= 0 and found.bytes >= 0)


@pytest.mark.parametrize("size", [0, 1, 1 << 40])
@pytest.mark.parametrize("said", ["", "0", "1", "[0, 0]"])
def test_empty_and_huge_tensors_have_a_cost_or_none(size: int, said: str) -> None:
    for name in (*FORMULAS, "triton_tem_fused_flex_attention_0", "triton_tem_fused_mm_0"):
        for shape in ([size], [size] * 2, [size] * 3, [size] * 4, [[size, size]]):
            for places in (3, 26):
                found = cost(name, called([shape] * places, BF16, values=dict.fromkeys(range(places), said)))
                assert found is None or min(found.flops, found.bytes) >= 0
