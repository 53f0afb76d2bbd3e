"""Rules against labelled traces: real ones, and written ones with a fault at three strengths; the label comes first."""

import pytest

from tests.support.kernel_faults import (
    STEP,
    Fault,
    copies,
    exposed,
    fp32,
    full_memory,
    good,
    idle,
    late,
    little_overlap,
    loader,
    overhead,
    pageable,
    queue,
    steps,
    storm,
    sync,
    underfilled,
    unlaunched,
)
from tests.support.kernel_traces import A100, BF16_GEMM, NCCL, TraceWriter, ids, judged, real_profile
from trainguard.kernels.names.families import communicates
from trainguard.kernels.names.kernel_names import Precision, classify

REAL = {
    "a100_ddp2_rank0_nccl_ns": (
        {"GpuBusyLow", "LaunchBound", "LowPrecisionUnused"},
        {"ExposedCommunication", "TensorCoresIdle"},
    ),
    "a100_rank3of8_diff_control": ({"ExposedCommunication"}, {"GpuBusyLow", "SmallKernelStorm"}),
    "mi300_resnet_ddp8_rank0_stack": (
        {"ExposedCommunication", "QueueFull"},
        {"SyncStall", "GpuBusyLow", "TensorCoresIdle"},
    ),
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


def test_a_good_trace_has_no_finding() -> None:
    assert ids(judged(steps(good).text())) == set()


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
    ("ExposedCommunication", little_overlap, (0.52, 0.6, 0.66)),
    ("SmUnderfilled", underfilled, (0.22, 0.5, 1.0)),
    ("QueueFull", queue, (0.06, 0.3, 0.8)),
    ("GpuMemoryFull", full_memory, (0.91, 0.95, 1.0)),
    ("TraceQuality", overhead, (0.06, 0.2, 0.5)),
    ("TraceQuality", unlaunched, (0.06, 0.3, 1.0)),
]
# Strengths at which a fault is too weak for its rule.
BELOW: dict[Fault, float] = {
    loader: 0.04,
    exposed: 0.08,
    copies: 0.08,
    pageable: 0.005,
    fp32: 0.4,
    late: 0.08,
    storm: 0.02,
    sync: 0.03,
    little_overlap: 0.48,
    underfilled: 0.15,
    queue: 0.04,
    full_memory: 0.89,
    overhead: 0.04,
    unlaunched: 0.04,
}

BELOW_OF_RULE = {"GpuBusyLow": 0.25, "GpuGap": 0.08, "LowPrecisionUnused": 0.08}
WITHOUT_GAIN = {"QueueFull", "GpuMemoryFull", "TraceQuality"}
# Rules whose time another finding explains, where its cause is planted, too.
SYMPTOMS = {"GpuBusyLow", "SmallKernelStorm", "TensorCoresIdle"}


@pytest.mark.parametrize(
    ("rule", "fault", "strength"),
    [(rule, fault, strength) for rule, fault, strengths in FAULTS for strength in strengths],
    ids=lambda each: str(getattr(each, "__name__", each)),
)
def test_a_planted_fault_fires(rule: str, fault: Fault, strength: float) -> None:
    profile = judged(steps(lambda made, start: fault(made, start, strength)).text())
    assert rule in ids(profile)
    (finding,) = (each for each in profile.findings if each.id == f"kernels/{rule}")
    assert finding.evidence
    assert finding.recommendation
    assert 0 <= finding.gain.ns_per_step <= STEP * 1_000 * 1.01
    assert (finding.gain.ns_per_step == 0) == (rule in WITHOUT_GAIN) or rule in SYMPTOMS
    assert sum(each.gain.share for each in profile.findings) <= 1.001
    assert finding.confidence == "normal"


@pytest.mark.parametrize(
    ("rule", "fault"), [each[:2] for each in FAULTS], ids=lambda each: str(getattr(each, "__name__", each))
)
def test_below_its_threshold_a_rule_is_silent(rule: str, fault: Fault) -> None:
    assert rule not in ids(
        judged(steps(lambda made, start: fault(made, start, BELOW_OF_RULE.get(rule) or BELOW[fault])).text())
    )


def test_a_gap_names_the_wait_that_it_begins_in() -> None:
    found = {each.id: each for each in judged(steps(lambda made, start: sync(made, start, 0.5)).text()).findings}
    whats = {each.what for each in found["kernels/GpuGap"].evidence}
    assert whats == {"GPU idle, host mostly in cudaStreamSynchronize, behind cudaStreamSynchronize"}
    without = judged(steps(lambda made, start: idle(made, start, 0.5)).text()).findings
    assert not any("behind" in each.what for finding in without for each in finding.evidence)


def test_an_optimizer_in_fp32_is_no_lack_of_precision() -> None:
    adam = "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"

    def fill(made: TraceWriter, start: float) -> None:
        made.kernel(adam, start, STEP * 0.7, launch=start)
        good(made, start + STEP * 0.7, STEP * 0.3)

    assert "LowPrecisionUnused" not in ids(judged(steps(fill).text()))


def test_fp64_is_named_from_a_tenth_on() -> None:
    double = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<double>>"

    def kinds(share: float) -> set[str]:
        def fill(made: TraceWriter, start: float) -> None:
            made.kernel(double, start, STEP * share, launch=start)
            good(made, start + STEP * share, STEP * (1 - share))

        return {each.kind for each in judged(steps(fill).text()).findings}

    assert "double_precision" in kinds(0.11)
    assert "double_precision" not in kinds(0.09)


@pytest.mark.parametrize("call", ["cudaFree", "cudaMalloc", "hipFree"])
def test_the_allocator_s_calls_wait_for_the_gpu(call: str) -> None:
    def fill(made: TraceWriter, start: float) -> None:
        good(made, start, STEP * 0.8)
        made.event("cuda_runtime", call, start + STEP * 0.8, STEP * 0.2)

    (found,) = (each for each in judged(steps(fill).text()).findings if each.id == "kernels/SyncStall")
    assert found.evidence[0].what == call


def test_a_slow_step_shows_where_the_host_is_far_ahead() -> None:
    made, start = TraceWriter(), 0.0
    for step in range(12):
        made.step(step, 100.0 * step, 100)
        lasts = STEP * (2 if step == 5 else 1)
        made.kernel(BF16_GEMM, start + 1, lasts - 1, launch=100.0 * step + 10)
        start += lasts
    (found,) = (each for each in judged(made.text()).findings if each.id == "kernels/TraceStepOutlier")
    assert found.evidence[0].step == 5


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
        ("nvjet_tst_128x64_64x8_TNN", Precision.BF16, True),
        ("triton_poi_fused_add_0", Precision.UNKNOWN, False),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc", Precision.TF32, True),
        ("sm86_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", Precision.FP16, True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_ffma_aligna4", Precision.FP32, False),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel10tfloat32_tENS_9transform", Precision.TF32, True),
        ("void flash::FlashAttnFwdSm90<flash::Mainloop<2, cutlass::bfloat16_t> >", Precision.BF16, True),
        ("void flash_fwd_kernel<Traits<64, 128, 4, cutlass::half_t> >", Precision.FP16, True),
        ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6", Precision.FP16, True),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", Precision.BF16, True),
        ("igemm_fwd_gtcx_nhwc_fp32_bx0_ex0_bt128x128x16", Precision.FP32, True),
        ("void cudnn::igemm_int8_128x64<signed char>", Precision.INT8, True),
        ("void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float const*)", Precision.FP8, False),
        (
            "elementwise_kernel<4, nan_to_num_kernel_cuda(Base&, optional<double>)::{lambda()#2}::{lambda(float)#1}>",
            Precision.FP32,
            False,
        ),
        ("grid_stride_kernel<float, 4, uniform_kernel<Generator*>(Base&, double, double)>", Precision.FP32, False),
        ("copy_kernel(Base&)::{lambda()#6}::operator()() const::{lambda(double)#1}, float*>", Precision.FP64, False),
        ("gpu_kernel<AddFunctor<double> >(Base&)::{lambda(int)#1}>(int, float)", Precision.FP64, False),
        ("void cub::DeviceRadixSortOnesweepKernel<Policy<long, int, int> >", Precision.INTEGER, False),
    ],
)
def test_what_a_name_says(name: str, precision: Precision, tensor_core: bool) -> None:
    says = classify(name)
    assert (says.precision, says.tensor_core) == (precision, tensor_core)


def test_tensor_cores_are_those_of_the_precision_s_class() -> None:
    """AlexNet has a quarter of its convolutions and matrices in TF32, the rest in FP32: worth a remark."""
    (found,) = (each for each in real_profile("a100_alexnet_cuda_sync").findings if each.id.endswith("CoresIdle"))
    assert (found.value, found.severity.value) == (0.2537, "low")
    ddp2 = real_profile("a100_ddp2_rank0_nccl_ns")
    assert ddp2.tensor_core_ns == ddp2.precision["tf32"] == 38_611_252
    mi300 = real_profile("mi300_resnet_ddp8_rank0_stack")
    assert mi300.tensor_core_ns == mi300.eligible_ns == 6_190_997


@pytest.mark.parametrize(
    ("name", "communicating"),
    [
        (NCCL, True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", True),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>", True),
        ("all_reduce_two_shot_kernel", True),
        ("void nvshmemi_transfer_put_kernel", True),
        ("void deep_ep::internode_ll::dispatch<false, 9>(void*)", True),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8>", True),
        ("triton_poi_fused_all_gather_into_tensor_add_0", False),
        ("void at::native::dispatch_index_kernel<float>", False),
        ("void moe::combine_experts<float>", False),
    ],
)
def test_which_kernels_communicate(name: str, communicating: bool) -> None:
    assert communicates(name) is communicating


@pytest.mark.parametrize(
    ("name", "major", "fires"),
    [
        ("NVIDIA A100", 8, True),
        ("Tesla V100", 7, False),
        ("AMD Instinct MI300X", 9, True),
        ("AMD Instinct MI50", 9, False),
        ("AMD Radeon RX 7900 XTX", 11, False),
    ],
)
def test_low_precision_is_advised_where_the_gpu_has_it(name: str, major: int, fires: bool) -> None:
    """ROCm's major 9 is a GPU without BF16 as well as one with it."""
    made = steps(lambda each, start: fp32(each, start, 1.0))
    made.gpus = [A100 | {"name": name, "computeMajor": major}]
    assert ("LowPrecisionUnused" in ids(judged(made.text()))) is fires


def test_the_operator_says_what_the_name_does_not() -> None:
    assert real_profile("a100_triton_kernel").precision == {"fp32": 1_760}
