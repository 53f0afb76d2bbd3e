"""Rules against labelled traces: real ones, and written ones with a fault at three strengths; the label comes first."""

from collections.abc import Callable

import pytest

from tests.support.kernel_traces import (
    BF16_GEMM,
    COMMUNICATION_STREAM,
    FP32_GEMM,
    NCCL,
    PAGEABLE,
    PINNED,
    TraceWriter,
    ids,
    judged,
    real_profile,
)
from trainguard.kernels.kernel_names import Precision, classify

STEP = 20_000.0
"""Microseconds."""

REAL = {
    "a100_ddp2_rank0_nccl_ns": ({"GpuBusyLow", "LaunchBound", "LowPrecisionUnused"}, {"ExposedCommunication"}),
    "a100_rank3of8_diff_control": ({"ExposedCommunication"}, {"GpuBusyLow", "LaunchBound"}),
    "mi300_resnet_ddp8_rank0_stack": ({"ExposedCommunication", "QueueFull"}, {"SyncStall", "GpuBusyLow"}),
    "pair_rank-0": ({"ExposedCommunication", "GpuBusyLow"}, {"LaunchBound"}),
    "pair_rank-1": ({"ExposedCommunication", "GpuBusyLow"}, {"LaunchBound"}),
    "resnet50_workers0": ({"LoaderBound", "TensorCoresIdle", "SmallKernelStorm"}, {"LaunchBound", "SyncStall"}),
    "v100_rank1of2_diff_test": ({"MemcpyBound"}, {"ExposedCommunication", "SmallKernelStorm", "GpuBusyLow"}),
    "cpu_only_no_gpu_events": ({"TraceQuality"}, {"GpuBusyLow", "GpuGap", "LaunchBound", "TensorCoresIdle"}),
}


@pytest.mark.parametrize("name", REAL)
def test_rules_on_real_traces(name: str) -> None:
    fire, silent = REAL[name]
    found = ids(real_profile(name))
    assert fire <= found
    assert not silent & found


def steps(fill: Callable[[TraceWriter, float], None], *, number: int = 6) -> TraceWriter:
    made = TraceWriter()
    for step in range(number):
        made.step(step, STEP * step, STEP)
        fill(made, STEP * step)
    return made


def good(made: TraceWriter, start: float, lasts: float = STEP) -> None:
    """Fill time with long BF16 kernels, launched well ahead."""
    count = 10
    for place in range(count):
        begin = start + lasts * place / count
        made.kernel(BF16_GEMM, begin, lasts / count, launch=max(begin - 3_000, start))


def test_a_good_trace_has_no_finding() -> None:
    assert ids(judged(steps(good).text())) == set()


def loader(made: TraceWriter, start: float, strength: float) -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    made.event("user_annotation", name, start, STEP * strength)
    good(made, start + STEP * strength, STEP * (1 - strength))


def exposed(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    begin = start + STEP * (1 - strength)
    made.kernel(NCCL, begin, STEP * strength, launch=begin - 500, stream=COMMUNICATION_STREAM)


def copies(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    made.copy(PINNED, start + STEP * (1 - strength), STEP * strength)


def pageable(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    made.copy(PAGEABLE, start + STEP * (1 - strength), STEP * strength)


def fp32(made: TraceWriter, start: float, strength: float) -> None:
    made.kernel(FP32_GEMM, start, STEP * strength, launch=start)
    good(made, start + STEP * strength, STEP * (1 - strength))


def idle(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))


def late(made: TraceWriter, start: float, strength: float) -> None:
    """Kernels that start right after a launch that comes too late."""
    for place in range(100):
        begin = start + STEP * place / 100
        made.kernel(BF16_GEMM, begin + 6, STEP / 100 * (1 - strength), launch=begin, call=5)


def storm(made: TraceWriter, start: float, strength: float) -> None:
    """Kernels that are shorter than their call."""
    for place in range(400):
        begin = start + STEP * place / 400
        made.kernel(BF16_GEMM, begin + 40, 50 * (1 - strength), launch=begin, call=48)


def sync(made: TraceWriter, start: float, strength: float) -> None:
    good(made, start, STEP * (1 - strength))
    begin = start + STEP * (1 - strength)
    made.event("cuda_runtime", "cudaStreamSynchronize", begin - 2_000, 2_000 + STEP * strength)


FAULTS = [
    ("LoaderBound", loader, (0.08, 0.15, 0.4)),
    ("ExposedCommunication", exposed, (0.12, 0.3, 0.6)),
    ("MemcpyBound", copies, (0.12, 0.3, 0.6)),
    ("PageableCopy", pageable, (0.02, 0.08, 0.3)),
    ("LowPrecisionUnused", fp32, (0.55, 0.8, 1.0)),
    ("TensorCoresIdle", fp32, (0.55, 0.8, 1.0)),
    ("GpuBusyLow", idle, (0.35, 0.55, 0.8)),
    ("GpuGap", idle, (0.15, 0.4, 0.8)),
    ("LaunchBound", late, (0.35, 0.6, 0.9)),
    ("SmallKernelStorm", storm, (0.15, 0.5, 0.8)),
    ("SyncStall", sync, (0.08, 0.2, 0.5)),
]
BELOW = {
    "LoaderBound": 0.04,
    "ExposedCommunication": 0.08,
    "MemcpyBound": 0.08,
    "PageableCopy": 0.005,
    "LowPrecisionUnused": 0.4,
    "TensorCoresIdle": 0.4,
    "GpuBusyLow": 0.25,
    "GpuGap": 0.08,
    "LaunchBound": 0.2,
    "SmallKernelStorm": 0.02,
    "SyncStall": 0.03,
}


@pytest.mark.parametrize(
    ("rule", "fault", "strength"),
    [(rule, fault, strength) for rule, fault, strengths in FAULTS for strength in strengths],
    ids=lambda each: str(getattr(each, "__name__", each)),
)
def test_a_planted_fault_fires(rule: str, fault: Callable[[TraceWriter, float, float], None], strength: float) -> None:
    profile = judged(steps(lambda made, start: fault(made, start, strength)).text())
    assert rule in ids(profile)
    (finding,) = (each for each in profile.findings if each.id == f"kernels/{rule}")
    assert finding.evidence
    assert finding.recommendation
    assert 0 < finding.gain.ns_per_step <= STEP * 1_000 * 1.01


@pytest.mark.parametrize(
    ("rule", "fault"), [each[:2] for each in FAULTS], ids=lambda each: str(getattr(each, "__name__", each))
)
def test_below_its_threshold_a_rule_is_silent(rule: str, fault: Callable[[TraceWriter, float, float], None]) -> None:
    assert rule not in ids(judged(steps(lambda made, start: fault(made, start, BELOW[rule])).text()))


@pytest.mark.parametrize("factor", [1.2, 2, 10])
def test_an_outlier_step_fires(factor: float) -> None:
    made, start = TraceWriter(), 0.0
    for step in range(12):
        lasts = STEP * (factor if step == 5 else 1)
        made.step(step, start, lasts)
        good(made, start, lasts)
        start += lasts
    (finding,) = judged(made.text()).findings
    assert (finding.id, finding.evidence[0].step) == ("kernels/TraceStepOutlier", 5)


def test_few_steps_lower_the_confidence() -> None:
    found = judged(steps(lambda made, start: exposed(made, start, 0.6), number=2).text()).findings
    assert {finding.confidence for finding in found} == {"low"}
    assert {finding.severity.value for finding in found} <= {"low", "medium"}


@pytest.mark.parametrize(
    ("name", "precision", "tensor_core"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_tn", Precision.BF16, True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", Precision.TF32, True),
        ("void elementwise_kernel<c10::BFloat16, MulFunctor<float> >", Precision.BF16, False),
        ("void elementwise_kernel<AddFunctor<float> >", Precision.FP32, False),
        ("volta_h884gemm_256x64_ldg8_nn", Precision.FP16, True),
        ("volta_sgemm_128x64_nn", Precision.FP32, False),
        ("Cijk_Ailk_Bjlk_BBS_BH_MT32x32x64_MI16x16x16x1", Precision.BF16, True),
        ("nvjet_tst_128x64_64x8_TNN", Precision.UNKNOWN, True),
        ("triton_poi_fused_add_0", Precision.UNKNOWN, False),
    ],
)
def test_what_a_name_says(name: str, precision: Precision, tensor_core: bool) -> None:
    says = classify(name)
    assert (says.precision, says.tensor_core) == (precision, tensor_core)


def test_the_operator_says_what_the_name_does_not() -> None:
    assert real_profile("a100_triton_kernel").precision == {"fp32": 1_760}
