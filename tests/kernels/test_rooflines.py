"""Arithmetic and bytes of operators worked out by hand, the peaks of GPUs, and what is on the roofline."""

import json

import pytest

from tests.support.kernel_traces import TraceWriter, judged, real_profile
from trainguard.kernels.columns import Gpu
from trainguard.kernels.costs import Cost, Inputs, inputs_text, read_inputs
from trainguard.kernels.formulas.registry import cost
from trainguard.kernels.names.kernel_names import Precision
from trainguard.kernels.operators import roofline
from trainguard.kernels.peaks import link_share, peaks_of

WITH_SHAPES = ["mi300_resnet_ddp8_rank0_stack", "resnet50_workers0"]
GEOMETRY = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]


def called(*shapes: list[int], dtype: str = "float", types: list[str] | None = None, values: list[str] = []) -> Inputs:  # noqa: B006
    types = types or [dtype if shape else "" for shape in shapes]
    found = read_inputs(inputs_text(*(json.dumps(part).encode() for part in (list(shapes), types, values))))
    assert found is not None
    return found


IMAGE, WEIGHT, GRADIENT = [32, 3, 224, 224], [64, 3, 7, 7], [32, 64, 112, 112]
OF_IMAGE, OF_WEIGHT, OF_GRADIENT = 32 * 3 * 224 * 224, 64 * 3 * 7 * 7, 32 * 64 * 112 * 112
PRODUCT = 2 * OF_GRADIENT * 3 * 7 * 7
BACKWARD = ["", "", "", "[64]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize(
    ("operator", "inputs", "flops", "moved", "held"),
    [
        ("aten::mm", called([4, 5], [5, 6]), 240, 4 * (20 + 30 + 24), None),
        ("aten::mm", called([4, 5], [5, 6], dtype="c10::BFloat16"), 240, 2 * (20 + 30 + 24), None),
        ("aten::bmm", called([3, 4, 5], [3, 5, 6]), 720, 4 * (60 + 90 + 72), None),
        ("aten::matmul", called([4, 5], [7, 5, 6]), 7 * 240, 4 * (20 + 7 * 30 + 7 * 24), None),
        ("aten::matmul", called([7, 4, 5], [5, 6]), 7 * 240, 4 * (7 * 20 + 30 + 7 * 24), None),
        ("aten::addmm", called([6], [4, 5], [5, 6], [], []), 240, 4 * (6 + 20 + 30 + 24), None),
        (
            "aten::addmm",
            called([4, 6], [4, 5], [5, 6], [], [], values=["", "", "", "0", "1"]),
            240,
            4 * (20 + 30 + 24),
            None,
        ),
        ("aten::linear", called([2, 4, 5], [6, 5], [6]), 2 * 240, 4 * (40 + 30 + 6 + 48), None),
        (
            "aten::convolution",
            called(IMAGE, WEIGHT, [], [], [], [], [], [], [], values=GEOMETRY),
            PRODUCT,
            4 * (OF_IMAGE + OF_WEIGHT + OF_GRADIENT),
            None,
        ),
        (
            "aten::convolution_backward",
            called(GRADIENT, IMAGE, WEIGHT, *[[]] * 8, values=[*BACKWARD, "[True, True, False]"]),
            2 * PRODUCT,
            8 * (OF_IMAGE + OF_WEIGHT + OF_GRADIENT),
            4 * (OF_IMAGE + OF_WEIGHT + OF_GRADIENT),
        ),
        (
            "aten::convolution_backward",
            called(GRADIENT, IMAGE, WEIGHT, *[[]] * 8, values=[*BACKWARD, "[False, True, False]"]),
            PRODUCT,
            4 * (OF_IMAGE + OF_WEIGHT + OF_GRADIENT),
            None,
        ),
        ("aten::add", called([8, 10], [8, 10], []), 80, 4 * 240, None),
        ("aten::add", called([8, 10], [10], []), 80, 4 * 170, None),
        ("aten::mul", called([8, 1], [1, 10]), 80, 4 * (8 + 10 + 80), None),
        ("aten::relu", called([8, 10]), 80, 4 * 160, None),
        ("aten::add_", called([8, 10], [8, 10], []), 80, 4 * 240, 4 * 160),
        ("aten::relu_", called([8, 10]), 80, 4 * 160, 4 * 80),
        ("aten::clamp_min", called([8, 10], [], [8, 10]), 80, 4 * 160, None),
        ("aten::add", called([8, 10], [8, 10], [], [8, 10]), 80, 4 * 240, None),
        ("aten::mul", called([8, 10], [8, 10], types=["float", "c10::Half"]), 80, 80 * (4 + 2 + 4), None),
        ("aten::mul", called([8, 10], [], [8, 10], types=["float", "", "c10::Half"]), 80, 80 * (4 + 2), None),
        ("aten::threshold_backward", called([8, 10], [8, 10], []), 80, 4 * 240, None),
        ("aten::sum", called([8, 10], []), 80, 4 * 81, None),
        ("aten::sum", called([8, 10], [], [], []), 80, 4 * 81, None),
        ("aten::sum", called([8, 10], [], [], [], values=["", "[1]", "False", ""]), 80, 4 * 88, None),
        ("aten::mean", called([8, 10], [], [], [], values=["", "[-2]", "True", ""]), 80, 4 * 90, None),
    ],
)
def test_arithmetic_and_bytes(operator: str, inputs: Inputs, flops: int, moved: int, held: int | None) -> None:
    assert cost(operator, inputs) == Cost(flops, moved, moved if held is None else held)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("aten::mm", called([4, 5], [6, 5])),
        ("aten::add", called([8, 10], [7, 10])),
        ("aten::relu", called([])),
        ("aten::relu_", called([8, 10], [8, 10])),
        ("aten::mul", called([8, 10], [8, 10], types=["long int", "float"])),
        ("aten::add", called([8, 10], dtype="another")),
        ("aten::sum", called([8, 10], [], [], [], values=["", "", "False", ""])),
        ("aten::nonzero", called([8, 10])),
    ],
)
def test_what_shapes_do_not_say_has_no_cost(operator: str, inputs: Inputs) -> None:
    assert cost(operator, inputs) is None


@pytest.mark.parametrize(
    ("name", "gib", "precision", "tflops", "memory", "cache"),
    [
        ("NVIDIA H100 80GB HBM3", 79, "bf16", 989.4, 3350, 50),
        ("NVIDIA H100 PCIe", 79, "bf16", 756, 2000, 50),
        ("NVIDIA H100 NVL", 94, "bf16", 835.5, 3900, 50),
        ("NVIDIA H200", 140, "fp8", 1978.9, 4800, 50),
        ("NVIDIA H200 NVL", 140, "bf16", 835.5, 4800, 50),
        ("NVIDIA B200", 178, "bf16", 2250, 8000, 126),
        ("NVIDIA GB200", 184, "bf16", 2500, 8000, 126),
        ("NVIDIA B300 SXM6 AC", 268, "fp8", 4500, 8000, 126),
        ("NVIDIA GB300", 268, "fp4", 15000, 8000, 126),
        ("NVIDIA GH200 480GB", 95, "bf16", 989.4, 4000, 60),
        ("NVIDIA GH200 144G HBM3e", 134, "bf16", 989.4, 4900, 60),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95, "bf16", 503.8, 1792, 128),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95, "bf16", 438.9, 1792, 128),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95, "fp8", 1000, 1597, 128),
        ("AMD Instinct MI355X", 268, "fp8", 5033.2, 8000, 256),
        ("AMD Instinct MI350X", 268, "fp4", 9227.5, 8000, 256),
        ("Trainium2", 90, "bf16", 667, 2900, 224),
        ("NVIDIA L40", 44, "fp16", 181, 864, 96),
        ("NVIDIA A100-SXM4-40GB", 39, "bf16", 312, 1555, 40),
        ("NVIDIA A100-SXM4-80GB", 79, "tf32", 156, 2039, 40),
        ("NVIDIA A100 80GB PCIe", 79, "fp32", 19.5, 1935, 40),
        ("NVIDIA A10G", 22, "fp32", 35, 600, 6),
        ("NVIDIA L4", 22, "fp16", 121, 300, 48),
        ("NVIDIA L40S", 44, "fp16", 362, 864, 96),
        ("Tesla T4", 15, "fp16", 65, 320, 4),
        ("Tesla V100-SXM2-16GB", 16, "fp32", 15.7, 900, 6),
        ("Tesla V100-PCIE-32GB", 32, "fp16", 112, 900, 6),
        ("Tesla P100-PCIE-16GB", 16, "fp32", 9.3, 732, 4),
        ("AMD Instinct MI300X", 191, "fp16", 1307.4, 5300, 256),
        ("AMD Instinct MI250X", 64, "fp16", 191.5, 1638, 8),
        ("NVIDIA A10", 22, "bf16", 125, 600, 6),
        ("NVIDIA A40", 44, "tf32", 74.8, 696, 6),
        ("NVIDIA A100-PCIE-40GB", 39, "bf16", 312, 1555, 40),
        ("Trainium3", 144, "fp8", 2517, 4900, 256),
        ("Trainium1", 32, "bf16", 190, 820, 48),
    ],
)
def test_peaks(name: str, gib: int, precision: str, tflops: float, memory: float, cache: float) -> None:
    found = peaks_of(Gpu(name=name, memory=gib << 30, capability=(0, 0), sms=0))
    assert found is not None
    assert (found.tflops[Precision(precision)], found.memory_gb_per_s, found.cache_mb) == (tflops, memory, cache)


@pytest.mark.parametrize(
    ("name", "link", "confirmed"),
    [
        ("NVIDIA H100 80GB HBM3", 450, True),
        ("NVIDIA H100 PCIe", None, True),
        ("NVIDIA H200 NVL", None, True),
        ("NVIDIA A100-SXM4-80GB", 300, True),
        ("NVIDIA A100 80GB PCIe", None, True),
        ("AMD Instinct MI300X", 448, True),
        ("AMD Instinct MI355X", 537.6, False),
        ("NVIDIA B200", 900, False),
        ("Tesla T4", None, False),
    ],
)
def test_links_that_all_share_and_documents_read(name: str, link: float | None, confirmed: bool) -> None:
    found = peaks_of(Gpu(name=name, memory=80 << 30, capability=(9, 0), sms=132))
    assert found is not None
    assert (found.link_gb_per_s, found.confirmed) == (link, confirmed)


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA GB10", "AMD Instinct MI400", ""])
def test_a_gpu_that_is_not_in_the_table_has_no_peaks(name: str) -> None:
    assert peaks_of(Gpu(name=name, memory=80 << 30, capability=(9, 0), sms=132)) is None


def test_the_sides_of_the_knee_and_what_has_no_share() -> None:
    peaks = peaks_of(Gpu(name="Tesla V100-SXM2-16GB", memory=16 << 30, capability=(7, 0), sms=80))
    assert peaks is not None
    large = 900_000_000
    product = Cost(15_700_000_000, 1_000, 1_000)
    assert roofline(product, 2, 0.004, "fp32", peaks) == (0.5, "compute", None)
    assert roofline(product, 2, 0.004, "fp32", peaks, less=True) == (None, "compute", "algorithm")
    assert roofline(Cost(1, large, large), 3, 0.006, "fp32", peaks) == (0.5, "memory", None)
    assert roofline(Cost(1, large, large), 3, 0.002, "fp32", peaks) == (None, "memory", "not_moved")
    assert roofline(Cost(1, 18_000_000, 12_000_000), 1, 1.0, "fp32", peaks) == (None, "memory", "cache")
    assert roofline(product, 2, 0.004, "bf16", peaks) == (None, None, None)


@pytest.mark.parametrize("name", [*WITH_SHAPES, "h100_bert_small_1step", "mi250_toy_train", "a100_triton_kernel"])
def test_nearly_all_time_of_operators_has_a_cost(name: str) -> None:
    """`resnet50_workers0` is of PyTorch 1.8, which records dimensions alone."""
    operators = real_profile(name).operators
    costed = sum(each.kernel_ns for each in operators if each.flops is not None)
    assert costed >= 0.99 * sum(each.kernel_ns for each in operators)


@pytest.mark.parametrize("dtype", ["float", "another"])
def test_a_pass_back_says_what_strides_make_of_an_image(dtype: str) -> None:
    """Weights of 1 x 1 and 3 x 3 have results and images of one size: both have the mean cost."""
    made, image, result = TraceWriter(), [2, 4, 8, 8], [2, 6, 8, 8]
    weights = ([6, 4, 1, 1], [6, 4, 3, 3])
    for number, weight in enumerate(weights * 2):
        places = {
            "aten::cudnn_convolution": ([image, weight], 100 * number),
            "aten::cudnn_convolution_backward": ([image, result, weight], 1_000 + 100 * number),
            "aten::cudnn_convolution_backward_weight": ([[], result, image], 1_020 + 100 * number),
        }
        for name, (shapes, at) in places.items():
            said = {"Input Dims": [*shapes, *[[]] * 7], "Input type": [dtype if each else "" for each in shapes]}
            made.event("cpu_op", name, at, 20 if name.endswith("weight") else 60, args=said)
            if name != "aten::cudnn_convolution_backward":
                made.kernel("volta_scudnn_128x64_relu_interior_nn_v1", 2_000 + at, 30, launch=at + 5)
    found = {(each.name, each.shapes[:40]): each for each in judged(made.text()).operators}
    product = 2 * 2 * 6 * 64 * 4
    forward = [each.flops for (name, _), each in found.items() if name == "aten::cudnn_convolution"]
    (back,) = (each for (name, _), each in found.items() if name.endswith("backward_weight"))
    known = dtype == "float"
    assert sorted(map(int, filter(None, forward))) == ([2 * product, 2 * 9 * product] if known else [])
    assert (back.count, back.flops) == (4, 2 * 10 * product if known else None)


@pytest.mark.parametrize("name", WITH_SHAPES)
def test_no_operator_of_a_real_trace_is_above_its_gpu(name: str) -> None:
    shares = [each.roofline_share for each in real_profile(name).operators if each.roofline_share is not None]
    assert shares
    assert max(shares) <= 1.0


def test_operators_that_move_as_much_a_call_are_as_fast() -> None:
    """On the V100 what is too large for its cache moves 815 to 840 GB/s, in place and with a given result, too."""
    by_name: dict[str, list[float]] = {}
    for each in real_profile("resnet50_workers0").operators:
        if each.roofline_share is not None and each.bytes is not None and each.bytes / each.count > 60e6:
            by_name.setdefault(each.name, []).append(each.gb_per_s or 0.0)
    for name in ("aten::add", "aten::add_", "aten::clamp_min", "aten::threshold_backward"):
        assert min(by_name[name]) > 750, name
        assert max(by_name[name]) < 850, name


@pytest.mark.parametrize(
    ("name", "gpus", "group", "share"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 8, 0.5),
        ("NVIDIA H100 80GB HBM3", 8, 16, None),
        ("NVIDIA L4", 8, 8, None),
        ("", 8, 8, None),
    ],
)
def test_links_are_those_within_a_node(name: str, gpus: int, group: int, share: float | None) -> None:
    found = [Gpu(name=name, memory=80 << 30, capability=(9, 0), sms=132)] * gpus
    assert link_share(found, group, 225.0) == share
    assert link_share(found, group, None) is None
