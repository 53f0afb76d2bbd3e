"""Operators that are slower than the GPU allows: those that TraceLens plants in its micro-traces, and fast ones.

Shapes and times of the kernels are those of AMD-AGI/TraceLens, ``evals/unit_tests``.
"""

from typing import Any

import pytest

from tests.support.kernel_traces import STREAM, TraceWriter, judged
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.formulas.shapes import Measured, Reason, Why, why_slow

MI300X = {"id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206_141_652_992, "computeMajor": 9, "numSms": 304}
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x64_MI16x16x1"
IGEMM, ADD = (
    "igemm_fwd_gtcx_nhwc_fp32_bx0_ex0_bt128x128x32",
    "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>",
)
BF16, RUNS = "c10::BFloat16", 10


def traced(
    operator: str,
    shapes: list[list[int]],
    us: float,
    *,
    kernel: str = "attn_fwd",
    dtype: str = BF16,
    values: dict[int, str] | None = None,
    gpu: dict[str, Any] = MI300X,
    linked: bool = True,
    dtypes: list[str] | None = None,
    strides: list[list[int]] | None = None,
) -> list[KernelFinding]:
    made, at = TraceWriter(gpus=[gpu]), 0.0
    args = {
        "Input Dims": shapes,
        "Input type": dtypes or [dtype if shape else "" for shape in shapes],
        "Concrete Inputs": [(values or {}).get(place, "") for place in range(len(shapes))],
    }
    if strides is not None:
        args["Input Strides"] = strides
    for run in range(RUNS):
        ids = {"External id": run + 1, "correlation": run + 1}
        made.event("cpu_op", operator, at, 20, args=args | ({"External id": run + 1} if linked else {}))
        made.event("cuda_runtime", "hipLaunchKernel", at + 5, 5, args=ids if linked else {"External id": 100 + run})
        said = {"device": 0, "stream": STREAM}
        made.event("kernel", kernel, at + 15, us, args=said | (ids if linked else {"External id": 100 + run}))
        at += us
    return [each for each in judged(made.text()).findings if each.id == "kernels/SlowOperators"]


CONVOLUTION = {3: "[1, 1]", 4: "[1, 1]", 5: "[1, 1]", 6: "False", 7: "[0, 0]", 8: "1"}


def convolved(image: list[int], weight: list[int], us: float, **said: str) -> dict[str, Any]:
    values = CONVOLUTION | {int(place.removeprefix("at")): value for place, value in said.items()}
    shapes = [image, weight, *[[]] * 7]
    return {
        "operator": "aten::convolution", "shapes": shapes, "us": us, "kernel": IGEMM, "dtype": "float",
        "values": values,
    }  # fmt: skip


def attended(shape: list[int], us: float) -> dict[str, Any]:
    return {"operator": "aten::_flash_attention_forward", "shapes": [*[shape] * 3, *[[]] * 8], "us": us}


def experts(tokens: int, hidden: int, width: int, count: int, chosen: int, us: float) -> dict[str, Any]:
    shapes = [[tokens, hidden], [count, 2 * width, hidden], [count, hidden, width], [tokens, chosen]]
    return {
        "operator": "vllm::rocm_aiter_fused_moe",
        "shapes": shapes,
        "us": us,
        "kernel": "aiter_fused_moe_kernel_bf16",
    }


PLANTED: dict[str, tuple[dict[str, Any], Reason]] = {
    "few tiles": (
        {"operator": "aten::mm", "shapes": [[256, 131072], [131072, 512]], "us": 1089, "kernel": TENSILE},
        Reason.FEW_TILES,
    ),
    "no power of two": (
        {"operator": "aten::mm", "shapes": [[1025, 8192], [8192, 1025]], "us": 107.1, "kernel": TENSILE},
        Reason.MISALIGNED,
    ),
    "misaligned": (
        {"operator": "aten::mm", "shapes": [[4097, 4097], [4097, 4097]], "us": 367.2, "kernel": TENSILE},
        Reason.MISALIGNED,
    ),
    "tall and skinny": (
        {"operator": "aten::mm", "shapes": [[131072, 32], [32, 32]], "us": 13.5, "kernel": TENSILE},
        Reason.NARROW,
    ),
    "long sequence": (attended([1, 32768, 32, 128], 65_846), Reason.ATTENTION),
    "odd heads": (attended([1, 65536, 8, 192], 112_321), Reason.HEADS),
    "short sequence": (attended([32, 16, 32, 128], 25), Reason.SHORT),
    "large heads": (attended([4, 2048, 8, 256], 3_200), Reason.HEADS),
    "poor bandwidth": (
        {"operator": "aten::add", "shapes": [[8192, 8192], [8192, 8192], []], "us": 421, "kernel": ADD,
         "dtype": "float"},
        Reason.MEMORY,
    ),
    "transposed copy": (
        {"operator": "aten::copy_", "shapes": [[8192, 8192], [8192, 8192], []], "us": 421, "kernel": ADD,
         "dtype": "float", "strides": [[8192, 1], [1, 8192], []]},
        Reason.STRIDED,
    ),
    "copy in order": (
        {"operator": "aten::copy_", "shapes": [[8192, 8192], [8192, 8192], []], "us": 421, "kernel": ADD,
         "dtype": "float", "strides": [[8192, 1], [8192, 1], []]},
        Reason.MEMORY,
    ),
    # A row that is expanded is read once: two thirds of the bytes of whole tensors, which would be fast enough.
    "expanded": (
        {"operator": "aten::add", "shapes": [[8192, 8192], [8192, 8192], []], "us": 250, "kernel": ADD,
         "dtype": "float", "strides": [[8192, 1], [0, 1], []]},
        Reason.MEMORY,
    ),
    "few channels": (
        convolved([1, 3, 2048, 2048], [64, 3, 7, 7], 4_500, at3="[2, 2]", at4="[3, 3]"),
        Reason.CHANNELS,
    ),
    "small images": (convolved([4, 2048, 4, 4], [2048, 2048, 3, 3], 1_200), Reason.SMALL_IMAGES),
    "asymmetric": (convolved([2, 256, 56, 56], [512, 256, 1, 7], 800, at4="[0, 3]"), Reason.CONVOLUTION),
    "depthwise": (convolved([8, 1024, 32, 32], [1024, 1, 3, 3], 350, at8="1024"), Reason.DEPTHWISE),
    "pointwise": (convolved([16, 1024, 14, 14], [2048, 1024, 1, 1], 600, at4="[0, 0]"), Reason.SMALL_IMAGES),
    "dilated": (convolved([2, 256, 128, 128], [256, 256, 3, 3], 2_200, at4="(16,16)", at5="(16,16)"),
         Reason.CONVOLUTION),
    "transposed": (
        convolved([4, 512, 8, 8], [512, 256, 4, 4], 900, at3="[2, 2]", at6="True"),
        Reason.SMALL_IMAGES,
    ),
    "few experts, many tokens": (
        {"operator": "vllm::rocm_aiter_fused_moe", "us": 6_500, "kernel": "aiter_fused_moe_kernel_bf16",
         "shapes": [[8192, 4096], [8, 22016, 4096], [8, 4096, 11008], [8192, 1]]},
        Reason.UNKNOWN,
    ),
    "few tokens for an expert": (
        {"operator": "vllm::rocm_aiter_fused_moe", "us": 9_500, "kernel": "aiter_fused_moe_kernel_bf16",
         "shapes": [[16, 4096], [64, 22016, 4096], [64, 4096, 11008], [16, 2]]},
        Reason.FEW_ROWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_operator_is_named_with_its_reason(name: str) -> None:
    planted, reason = PLANTED[name]
    (found,) = traced(**planted)
    assert found.kind == f"slow_operators_{reason}"
    assert planted["operator"] in found.summary
    assert found.recommendation
    assert found.evidence[0].count == RUNS


@pytest.mark.parametrize(
    "fast",
    [
        {"operator": "aten::mm", "shapes": [[8192, 8192], [8192, 8192]], "us": 1_600, "kernel": TENSILE},
        {
            "operator": "aten::add",
            "shapes": [[8192, 8192], [8192, 8192], []],
            "us": 190,
            "kernel": ADD,
            "dtype": "float",
        },
        {"operator": "aten::mm", "shapes": [[64, 64], [64, 64]], "us": 6, "kernel": TENSILE},
        attended([1, 32768, 32, 128], 30_000),
        # TraceLens' other experts: memory can read 15 of 16 in the time of one, the other reaches 738 TFLOP/s.
        experts(512, 7168, 14336, 16, 2, 1_800),
        experts(4096, 8192, 22016, 8, 2, 12_000),
    ],
)
def test_what_good_kernels_do_is_no_finding(fast: dict[str, Any]) -> None:
    assert traced(**fast) == []


def said_of_experts(us: float, *, count: int = 16, tokens: int = 512, chosen: int = 1, **more: Any) -> dict[str, Any]:
    found = traced(**experts(tokens, 7168, 14336, count, chosen, us) | more)
    return {} if not found else {"kind": found[0].kind} | {fact.name: fact.value for fact in found[0].facts}


def test_experts_with_few_rows_are_named_though_memory_is_full() -> None:
    """TraceLens' `moe_06_tiny_batch_many_experts`: 32 rows for 128 experts, 8.7 GFLOP in 0.18 ms."""
    (found,) = traced(**experts(4, 4096, 11008, 128, 8, 180))
    facts = {fact.name: fact.value for fact in found.facts}
    assert (found.kind, facts["experts"], facts["rows"]) == ("slow_operators_starved", 128, 32)
    assert facts["compute_share"] == pytest.approx(32 * 6 * 4096 * 11008 / 180e-6 / (0.54 * 1307.4e12), rel=1e-3)
    assert found.gain.share == pytest.approx((1.0 - float(facts["compute_share"])) / 2, abs=1e-3)


def test_experts_that_memory_cannot_read_in_time_are_unused() -> None:
    """TraceLens' `moe_03_top1_sparse`: in 0.95 ms memory reads eight of 16 experts, and the cache a part of one."""
    found = said_of_experts(950)
    assert (found["kind"], found["experts"], found["most_used"]) == ("slow_operators_unused", 16, 8)


@pytest.mark.parametrize(
    "told",
    [
        {"us": 1_500},  # thirteen
        {"us": 950, "chosen": 9},  # a token uses nine
        {"us": 950, "tokens": 255},  # not 16 rows an expert, which chance may leave without one
        {"us": 950, "gpu": MI300X | {"name": "AMD Instinct MI999X"}},
    ],
)
def test_other_experts_are_not_said_to_be_unused(told: dict[str, Any]) -> None:
    assert said_of_experts(**told).get("kind") != "slow_operators_unused"


def test_experts_of_a_part_of_the_router_may_be_unused() -> None:
    """An input that maps the router's 128 experts to this GPU's 16."""
    mine = experts(512, 7168, 14336, 16, 1, 950)
    assert traced(**mine | {"shapes": [*mine["shapes"], [], [128]]}) == []


def test_weights_of_another_type_than_tokens_count_by_it() -> None:
    """Weights of a byte are read in half of the time: all 16 in 0.95 ms."""
    assert said_of_experts(950, dtypes=[BF16, *["c10::Float8_e4m3fnuz"] * 2, "float"]) == {}


def test_without_peaks_shapes_or_a_cost_nothing_is_claimed() -> None:
    slow, _ = PLANTED["few tiles"]
    assert traced(**slow, gpu=MI300X | {"name": "AMD Instinct MI999X"}) == []
    assert traced(**slow | {"shapes": []}) == []
    assert traced(**slow | {"operator": "other::op"}) == []


@pytest.mark.parametrize(("us", "fires"), [(10_500, False), (11_500, True)])
def test_a_peak_that_others_quote_needs_a_tenth_more(us: int, fires: bool) -> None:
    """B200's 2,250 TFLOP/s: 0.6 of what good kernels reach is 9,775 us, a tenth more 10,860 us."""
    product: dict[str, Any] = {
        "operator": "aten::mm",
        "shapes": [[8192, 8192], [8192, 73728]],
        "us": us,
        "kernel": TENSILE,
    }
    found = traced(**product, gpu=MI300X | {"name": "NVIDIA B200"})
    assert bool(found) == fires


@pytest.mark.parametrize("name", ["few tiles", "depthwise", "few experts, many tokens"])
def test_operators_without_ids_are_found_by_thread_and_time(name: str) -> None:
    planted, reason = PLANTED[name]
    (found,) = traced(**planted, linked=False)
    assert found.kind == f"slow_operators_{reason}"


def test_the_faster_shape_is_aligned() -> None:
    why = why_slow("aten::mm", "[[1025,8192],[8192,1025]]", Measured(304, 0.3, by_memory=False))
    assert (why.reason, why.numbers, why.faster) == (Reason.MISALIGNED, {"odd_size": 1025}, "1025 x 8192 x 1088")


@pytest.mark.parametrize(
    ("shapes", "measured", "why"),
    [
        ("[[141,512],[512,30522]]", Measured(132, 0.3, by_memory=True),
         Why(Reason.MISALIGNED, {"odd_size": 30522}, "141 x 512 x 30528")),
        # 16 x 15 tiles are 2.2 waves of 108: 21 x 15 fill three.
        ("[[2048,4096],[4096,1920]]", Measured(108, 0.6, by_memory=False),
         Why(Reason.WAVES, {"tiles": 240, "multiprocessors": 108}, "2688 x 4096 x 1920")),
        # What reaches a third of what full waves allow has another reason.
        ("[[2048,4096],[4096,1920]]", Measured(108, 0.25, by_memory=False), Why(Reason.UNKNOWN)),
        ("[[2048,152],[152,1920]]", Measured(108, 0.5, by_memory=True), Why(Reason.NARROW, {"narrowest": 152})),
        ("[[64,4096],[4096,27648]]", Measured(108, 0.5, by_memory=False),
         Why(Reason.TILES, {"tile_side": 128, "narrowest": 64}, "128 x 4096 x 27648")),
        ("[[32,4096],[4096,4096]]", Measured(108, 0.3, by_memory=True), Why(Reason.NARROW, {"narrowest": 32})),
        ("[[32,4096],[4096,4096]]", Measured(108, 0.3, by_memory=False),
         Why(Reason.FEW_TILES, {"tiles": 32, "tile_side": 128, "multiprocessors": 108})),
        ("[[4096,4096],[4096,4096]]", Measured(0, 0.5, by_memory=False), Why(Reason.UNKNOWN)),
    ],
)  # fmt: skip
def test_a_reason_explains_how_slow_it_is(shapes: str, measured: Measured, why: Why) -> None:
    """A finding has no more than twelve facts, of which one has to name a rank."""
    assert why_slow("aten::mm", shapes, measured) == why
    assert len(why.numbers) + bool(why.faster) <= 3


@pytest.mark.parametrize("shapes", ["", "[[1]]", "{}", "[[1,2],[3]]", "[[],[]]"])
def test_shapes_that_do_not_fit_give_no_reason(shapes: str) -> None:
    for operator in ("aten::mm", "aten::linear", "aten::convolution", "vllm::fused_moe", "flash_attn_3::bwd"):
        assert why_slow(operator, shapes, Measured(108, 0.5, by_memory=False)).reason in set(Reason)


def chained(length: int, *, between: str = "", other: str = "aten::mul") -> list[KernelFinding]:
    """Ten chains of operators over one large tensor, beside as much other work."""
    made, at, number = TraceWriter(), 0.0, 0
    shape = [8192, 8192]
    for _ in range(RUNS):
        for place in range(length + 1):
            last = place == length
            name = "aten::mm" if last else between if between and place % 2 else (other, "aten::tanh")[place % 2]
            number += 1
            ids = {"External id": number, "correlation": number}
            said = {"Input Dims": [shape, shape if last else []], "Input type": [BF16, BF16 if last else ""]}
            made.event("cpu_op", name, at, 2, args=ids | said | {"Concrete Inputs": ["", ""]})
            made.event("cuda_runtime", "hipLaunchKernel", at + 0.5, 1, args=ids)
            lasts = 5_000 if last else 200
            kernel = TENSILE if last else ADD.replace("float", BF16)
            made.event("kernel", kernel, at + 15, lasts, args=ids | {"device": 0, "stream": STREAM})
            at += lasts
    return [each for each in judged(made.text()).findings if each.id == "kernels/SlowOperators"]


def test_a_chain_over_one_tensor_is_named_with_what_fusion_saves() -> None:
    (found,) = chained(10)
    assert found.kind == "slow_operators_unfused"
    assert found.value == pytest.approx(10 * 200 * 18 / 20 / (5_000 + 2_000), rel=0.02)
    assert found.evidence[0].what.startswith("aten::mul, aten::tanh, aten::mul")


def test_short_or_broken_chains_are_no_finding() -> None:
    assert chained(2) == []
    assert chained(10, between="other::op") == []
    assert chained(10, between="aten::mul", other="aten::mul") == []


def test_attention_in_its_math_form_is_named() -> None:
    made = TraceWriter(gpus=[MI300X])
    for run in range(RUNS):
        at = 1_000.0 * run
        name = "aten::_scaled_dot_product_attention_math" if run < RUNS // 2 else "aten::other"
        made.event("cpu_op", name, at, 50)
        made.kernel(TENSILE, at + 10, 900, launch=at + 2)
    (found,) = (each for each in judged(made.text()).findings if each.id == "kernels/SlowOperators")
    assert (found.kind, found.evidence[0].count) == ("slow_operators_math_attention", RUNS // 2)


def single(slow: int, *, communicates: bool = False) -> list[KernelFinding]:
    """Sums of a row by ten calls with the same shapes, of which some take three times as long as good ones."""
    made, at = TraceWriter(gpus=[MI300X]), 0.0
    args = {"Input Dims": [[8192, 8192], [8192, 8192], []], "Input type": ["float", "float", ""]}
    for run in range(RUNS):
        us = 600.0 if run < slow else 190.0
        ids = {"External id": run + 1, "correlation": run + 1}
        made.event("cpu_op", "aten::add", at, 20, args=args | {"External id": run + 1})
        made.event("cuda_runtime", "hipLaunchKernel", at + 5, 5, args=ids)
        made.event("kernel", ADD, at + 15, us, args=ids | {"device": 0, "stream": STREAM})
        if communicates and run < slow:
            made.event("kernel", "ncclDevKernel_Generic_1", at + 20, us, args={"device": 0, "stream": 20})
        at += us
    return [each for each in judged(made.text()).findings if each.id == "kernels/SlowOperators"]


def test_single_slow_calls_are_named_beside_fast_ones() -> None:
    (found,) = single(1)
    facts = {fact.name: fact.value for fact in found.facts}
    assert (found.kind, facts["slow_calls"], facts["calls"]) == ("slow_operators_single", 1, RUNS)
    assert (found.evidence[0].count, found.evidence[0].duration_ns) == (1, 600_000)


def test_calls_beside_communication_may_be_slow() -> None:
    assert single(0) == single(1, communicates=True) == []
