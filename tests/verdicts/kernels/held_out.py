"""A second set of faults, in other trainings, with other operators and kernels: what the first one was not tuned to.

Labels were written before any rule judged one of them.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.verdicts.kernels.faults import Fault, rules_named
from tests.verdicts.kernels.held_out_models import BF16, NEXT, TRAININGS
from tests.verdicts.kernels.machine import COMMUNICATION, Job, Op, Work
from tests.verdicts.kernels.planting import amid, changed, only, slowed, waste

SYNC = rules_named("SyncStall", "PageableCopy", "GpuGap")
HOST = rules_named("LaunchBound", "SmallKernelStorm", "SyncStall", "GpuGap")
OPERATORS = rules_named("SlowOperators")
MEET = rules_named("ExposedCommunication")


def _sync(call: str = "cudaStreamSynchronize") -> Op:
    return Op("aten::is_nonzero", inside=(Op("aten::item", inside=(Op("aten::_local_scalar_dense", sync=call),)),))


def _slow(pattern: str) -> Callable[[Job, float], Job]:
    return lambda job, share: slowed(job, pattern, waste(job, share))


def _paused(name: str, places: int, *before: Op) -> Callable[[Job, float], Job]:
    """Put operators and the host's own time into the step so often."""
    return lambda job, share: amid(
        job, places, *before, Op(name, category="user_annotation", host=waste(job, share) / places)
    )


def _at_end(name: str, *before: Op) -> Callable[[Job, float], Job]:
    def plant(job: Job, share: float) -> Job:
        return job.every(lambda step: [*step, *before, Op(name, category="user_annotation", host=waste(job, share))])

    return plant


def _preview(job: Job, share: float) -> Job:
    time = waste(job, share)
    copy = Work(
        "Memcpy DtoH (Device -> Pageable)", time / 2, "gpu_memcpy", bytes=1 << 26, call="cudaMemcpyAsync", waits=True
    )
    return job.every(lambda step: [*step, Op("aten::to", inside=(Op("aten::copy_", (copy,)),)), Op("", host=time / 2)])


def _averaged(job: Job, share: float) -> Job:
    """Average the weights parameter by parameter."""
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::lerp_scalar_kernel<float>>"
    one = Op("aten::lerp_", (Work(kernel, 2.5),), ([320], [320], []), types=("float", "float"), host=13)
    count = max(round(waste(job, share) / 18), 310)
    return job.every(lambda step: [*step, _sync(), *[one] * count])


def _in_fp32(job: Job, share: float) -> Job:
    """Encode images by a model in FP32, outside of autocast."""
    kernel = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_stage3_ffma"
    op = Op(
        "aten::cudnn_convolution",
        (Work(kernel, waste(job, share) / 3 * 1.15),),
        ([8, 128, 256, 256], [128, 128, 3, 3], *[[]] * 7),
        ((2, "[1, 1]"), (3, "[1, 1]"), (4, "[1, 1]"), (5, "1")),
        types=("float", "float"),
    )
    return amid(job, 3, op)


def _recompiled(job: Job, share: float) -> Job:
    at = Op(
        "Torch-Compiled Region: 4/7",
        inside=(Op("dynamo_timed: backend_compile", host=waste(job, share) * 7),),
        category="user_annotation",
    )
    return only(job.every(lambda step: [*step, _sync()]), lambda step: step % 7 == 4, lambda step: [at, *step])


def _exposed(count: int, kernel: str, collective: str) -> Callable[[Job, float], Job]:
    def plant(job: Job, share: float) -> Job:
        work = Work(
            f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)",
            waste(job, share) / count,
            stream=COMMUNICATION,
            blocks=0.2,
            collective=collective,
            call="cudaLaunchKernelExC",
        )
        return amid(
            job, count, Op(f"nccl:{collective}", (work,), category="user_annotation"), Op("", joins=True, host=1)
        )

    return plant


def _ranks_tokens(job: Job, share: float) -> Job:
    """One of eight ranks computes more of the experts, and exchanges more."""

    def heavy(op: Op) -> Op:
        more = 1 + waste(job, share) / sum(each.us for each in job.ranks[0][0] if each.name == "aten::_grouped_mm")
        works = tuple(
            replace(each, us=each.us * more)
            if each.stream != COMMUNICATION
            else replace(each, elements=(1 << 22, round(more * 2**22)))
            for each in op.works
        )
        return replace(op, works=works) if op.name in ("aten::_grouped_mm", "nccl:all_to_all") else op

    ranks = [[changed([*step], heavy) for step in steps] if at == 5 else steps for at, steps in enumerate(job.ranks)]
    return replace(job, ranks=tuple(ranks))


def _late_loader(job: Job, share: float) -> Job:
    wait = [_sync(), Op(NEXT, category="user_annotation", host=waste(job, share) + 0.02 * job.step_us)]
    return replace(
        job, ranks=tuple([[*wait, *step] for step in steps] if at == 6 else steps for at, steps in enumerate(job.ranks))
    )


def _offloaded(job: Job, share: float) -> Job:
    copy = Work(
        "Memcpy HtoD (Pageable -> Device)",
        waste(job, share) / 8,
        "gpu_memcpy",
        bytes=1 << 27,
        call="cudaMemcpyAsync",
        waits=True,
    )
    return amid(job, 8, Op("aten::_to_copy", inside=(Op("aten::copy_", (copy,)),)))


def _recurrent(job: Job, share: float) -> Job:
    """Run a recurrent layer step by step: each of its kernels waits for a launch."""
    cell = Op(
        "aten::lstm_cell", (Work("void at::native::_thnn_fused_lstm_cell_forward<float>", 3),), ([24, 512],), host=15
    )
    count = max(round(waste(job, share) / 19), 300)
    return job.every(lambda step: [*step[:2], _sync(), *[cell] * count, *step[2:]])


def _ctc(job: Job, share: float) -> Job:
    copy = Work("Memcpy DtoH (Device -> Pageable)", 30, "gpu_memcpy", bytes=300_000, call="cudaMemcpyAsync", waits=True)
    loss = Op("aten::_ctc_loss", inside=(Op("aten::copy_", (copy,)),), after=waste(job, share))
    return amid(job, 1, loss)


def _long_batch(job: Job, share: float) -> Job:
    """One batch of long recordings."""
    factor = 1 + waste(job, share) * len(job.ranks[0]) / job.step_us

    def longer(op: Op) -> Op:
        return replace(op, works=tuple(replace(each, us=each.us * factor) for each in op.works))

    return only(job, lambda at: at == 9, lambda step: changed(step, longer))


def _added(op: Op, repeats: int) -> Callable[[Job, float], Job]:
    def plant(job: Job, share: float) -> Job:
        more = waste(job, share) / repeats
        return amid(job, repeats, replace(op, works=tuple(replace(each, us=each.us + more) for each in op.works)))

    return plant


def _chain(job: Job, share: float) -> Job:
    """Cap the logits by three operators over them."""
    rows, columns = 6144, 32_000
    us = 4.0 * rows * columns / (job.gpu.gb_per_s * job.gpu.memory * 1e3)
    ops = [
        Op(
            f"aten::{name}",
            (Work(f"void at::native::vectorized_elementwise_kernel<4, {name}_kernel<c10::BFloat16>>", us),),
            ([rows, columns], []),
        )
        for name in ("div", "tanh", "mul")
    ]
    # Two of three are wasted.
    count = max(round(1.5 * waste(job, share) / us / 3), 1)
    return amid(job, 1, *ops * count)


def _emptied(job: Job, share: float) -> Job:
    third = waste(job, share) / 9
    free = Op(
        "",
        host=1,
        inside=(
            Op("cudaFree", category="cuda_runtime", host=2 * third),
            Op("cudaMalloc", category="cuda_runtime", host=third),
        ),
    )
    return amid(job, 3, Op("", sync="cudaDeviceSynchronize", host=1), free)


COPY = Op(
    "aten::copy_",
    (Work("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>", 44),),
    ([2048, 16_384], [2048, 16_384], []),
    types=(BF16, BF16),
)
WIDE_HEADS = Op(
    "aten::_scaled_dot_product_cudnn_attention",
    (Work("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x64x192", 420),),
    ([6, 10, 2048, 192], [6, 10, 2048, 192], [6, 10, 2048, 192], *[[]] * 5),
    ((6, "False"),),
)
PRODUCT_ODD = Op(
    "aten::addmm",
    (Work("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_nn_align1", 150),),
    ([1027], [19_200, 512], [512, 1027], [], []),
    ((3, "1"), (4, "1")),
)

HELD_OUT: dict[str, Fault] = {
    "sums by index collide": Fault(_slow("index_add_"), OPERATORS, "index_add_", "graphs"),
    "rows by index are scattered": Fault(_slow("index_select"), OPERATORS, "index_select", "graphs"),
    "neighbours are sampled in the step": Fault(
        _at_end("NeighborSampler.sample", _sync()),
        rules_named("GpuGap", "LaunchBound", "SyncStall", "LoaderBound"),
        "NeighborSampler",
        "graphs",
    ),
    "an assertion reads the GPU": Fault(
        _paused("", 9, _sync()), SYNC, "aten::(is_nonzero|item|_local_scalar_dense)", "graphs"
    ),
    "group norm is slow": Fault(_slow("native_group_norm$"), OPERATORS, "native_group_norm", "diffusion"),
    "group norm's backward pass is slow": Fault(
        _slow("native_group_norm_backward"), OPERATORS, "group_norm_backward", "diffusion, B200"
    ),
    "heads are 192 wide": Fault(_added(WIDE_HEADS, 2), OPERATORS, "_scaled_dot_product_cudnn_attention", "diffusion"),
    "a preview goes to the host": Fault(_preview, SYNC | {"MemcpyBound"}, "Memcpy DtoH|aten::(to|copy_)", "diffusion"),
    "weights are averaged one by one": Fault(
        _averaged, HOST, "aten::lerp_|lerp_scalar|is_nonzero|item|_local_scalar", "diffusion, B200"
    ),
    "images are encoded in FP32": Fault(
        _in_fp32,
        rules_named("LowPrecisionUnused", "TensorCoresIdle", "SlowOperators"),
        "f32f32|cudnn_convolution",
        "diffusion",
    ),
    "copies that are not contiguous": Fault(_added(COPY, 5), OPERATORS, "aten::copy_", "diffusion, B200"),
    "compiled again in a step": Fault(
        _recompiled, rules_named("TraceStepOutlier", "GpuGap"), "compile|slow step", "diffusion, B200"
    ),
    "a fused kernel is slow": Fault(_slow("triton_poi_"), OPERATORS, "triton_poi_fused_add_mul_silu", "experts"),
    "a reduction by Inductor is slow": Fault(_slow("triton_red_"), OPERATORS, "triton_red_fused_mean_rsqrt", "experts"),
    "grouped products are slow": Fault(_slow("_grouped_mm"), OPERATORS, "_grouped_mm", "experts"),
    "logits are capped by three operators": Fault(_chain, OPERATORS, "aten::(div|tanh|mul)", "experts"),
    "weights come from the host, layer by layer": Fault(
        _offloaded, rules_named("PageableCopy", "MemcpyBound", "SyncStall"), "Pageable -> Device", "experts"
    ),
    "exchange of tokens in the way": Fault(
        _exposed(4, "SendRecv", "all_to_allv"), MEET, "all_?to_?all|SendRecv", "experts, 8 ranks"
    ),
    "weights are gathered in the way": Fault(
        _exposed(6, "AllGather_RING_LL", "all_gather_into_tensor_coalesced"), MEET, "all_?gather", "experts, 8 ranks"
    ),
    "one rank's experts get most tokens": Fault(
        _ranks_tokens, rules_named("LateRank", "SlowRank"), r"Rank 5(.|\n)*exchange_ratio", "experts, 8 ranks"
    ),
    "one rank's data is late": Fault(_late_loader, rules_named("LateRank"), "Rank 6", "experts, 8 ranks"),
    "the data loader has no workers": Fault(
        _at_end(NEXT, _sync()), rules_named("LoaderBound"), "data ?loader", "speech"
    ),
    "a recurrent layer step by step": Fault(_recurrent, HOST, "lstm_cell|item|_local_scalar", "speech"),
    "the loss is computed on the host": Fault(_ctc, SYNC, "_ctc_loss|Memcpy DtoH|aten::copy_", "speech"),
    "one batch is long": Fault(_long_batch, rules_named("TraceStepOutlier"), "slow step", "speech, A100"),
    "a vocabulary of 1027": Fault(_added(PRODUCT_ODD, 4), OPERATORS, "1027|aten::addmm", "speech, A100"),
    "the cache is emptied": Fault(_emptied, SYNC | {"LaunchBound"}, "cudaFree|cudaMalloc|DeviceSynchronize", "speech"),
    "histograms are logged": Fault(
        _at_end("wandb.log", _sync()), SYNC | {"LaunchBound"}, "wandb|is_nonzero|item", "speech, A100"
    ),
}


def held_out(fault: Fault, share: float, seed: int) -> Job:
    """Return the training with the fault in it."""
    return fault.plant(TRAININGS[fault.model].job(seed), share)
