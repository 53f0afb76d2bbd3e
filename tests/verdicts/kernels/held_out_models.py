"""Four other trainings: a diffusion model, a graph network, a mixture of experts on eight ranks, a speech model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.verdicts.kernels.machine import COMMUNICATION, COPIES, Gpu, Job, Op, Work
from tests.verdicts.kernels.models import convolved, gemm_name

BF16 = "c10::BFloat16"
B200 = Gpu("NVIDIA B200", 180, (10, 0), 148, 2250, 75, 8000, 8, gemm=0.6, attention=0.5)
H100_NVL = Gpu("NVIDIA H100 NVL", 94, (9, 0), 132, 835, 60, 3938, 6, gemm=0.6)
A100_40 = Gpu("NVIDIA A100-SXM4-40GB", 40, (8, 0), 108, 312, 19.5, 1555, 4, gemm=0.7)
A10G = Gpu("NVIDIA A10G", 23, (8, 6), 80, 70, 35, 600, 1, gemm=0.7)
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def memory(gpu: Gpu, name: str, kernel: str, shapes: Sequence[Sequence[int]], moved: float, **more: object) -> Op:
    """Return an operator that moves so many elements of two bytes."""
    us = 2 * moved / (gpu.gb_per_s * gpu.memory * 1e3) + 1.5
    return Op(name, (Work(kernel, us),), tuple([*each] for each in shapes), **more)  # type: ignore[arg-type]


def matrix(gpu: Gpu, rows: int, inner: int, columns: int, *, bias: bool = False) -> Op:
    by_memory = 2 * (rows * inner + inner * columns + rows * columns) / (gpu.gb_per_s * gpu.memory * 1e3)
    us = max(2 * rows * inner * columns / (gpu.tflops * gpu.gemm * 1e6), by_memory) + 1.5
    sides: tuple[list[int], ...] = ([rows, inner], [inner, columns])
    if bias:
        return Op("aten::addmm", (Work(gemm_name(gpu), us),), ([columns], *sides, [], []), ((3, "1"), (4, "1")))
    return Op("aten::mm", (Work(gemm_name(gpu), us),), sides)


def batch(name: str = NEXT, megabytes: float = 3.0) -> list[Op]:
    copy = Work(
        "Memcpy HtoD (Pinned -> Device)",
        megabytes * 40,
        "gpu_memcpy",
        COPIES,
        bytes=round(megabytes * 1e6),
        call="cudaMemcpyAsync",
    )
    return [Op(name, category="user_annotation", host=45), Op("aten::copy_", (copy,), host=7)]


def optimizer(gpu: Gpu, elements: int) -> Op:
    lists = [[[elements // 6]] * 6] * 3
    us = 14 * elements / (gpu.gb_per_s * gpu.memory * 1e3) + 3
    kernel = (
        "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<3>, FusedSgdMathFunctor<float, 3>>"
    )
    fused = Op("aten::_fused_sgd_", (Work(kernel, us),), (*lists, [], []), types=("TensorList",) * 3)
    return Op("Optimizer.step#SGD.step", category="user_annotation", host=25, inside=(fused,))


def diffusion(gpu: Gpu) -> list[Op]:
    """Return a step of a diffusion model: convolutions, group norm, attention over positions."""
    count = 4 * gpu.scale
    forward: list[Op] = []
    backward: list[Op] = []
    for channels, side in ((320, 64), (640, 32), (1280, 16), (640, 32), (320, 64)):
        ran, back = convolved(gpu, count, channels, channels, side, 3)
        shape, size = [count, channels, side, side], count * channels * side * side
        norm = memory(
            gpu,
            "aten::native_group_norm",
            "void at::native::RowwiseMomentsCUDAKernel<c10::BFloat16>",
            (shape, [channels], [channels], [], [], [], [], []),
            2 * size,
        )
        norm_back = memory(
            gpu,
            "aten::native_group_norm_backward",
            "void at::native::GroupNormBackwardCUDAKernel",
            (shape, shape, [], [], [channels], [], [], [], [], []),
            3 * size,
        )
        silu = memory(
            gpu, "aten::silu", "void at::native::vectorized_elementwise_kernel<4, silu_kernel>", (shape,), 2 * size
        )
        silu_back = memory(
            gpu,
            "aten::silu_backward",
            "void at::native::vectorized_elementwise_kernel<4, silu_backward>",
            (shape, shape),
            3 * size,
        )
        positions, width, heads = side * side, 64, channels // 64
        query = [count, heads, positions, width]
        us = 4 * count * heads * positions**2 * width / (gpu.tflops * gpu.attention * 1e6) + 2
        attend = Op(
            "aten::_scaled_dot_product_cudnn_attention",
            (Work("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", us),),
            (query, query, query, *[[]] * 5),
            ((6, "False"),),
        )
        forward += [
            norm,
            silu,
            ran,
            matrix(gpu, count * positions, channels, 3 * channels, bias=True),
            attend,
            matrix(gpu, count * positions, channels, channels, bias=True),
        ]
        backward = [
            matrix(gpu, count * positions, channels, channels),
            matrix(gpu, channels, count * positions, channels),
            back,
            silu_back,
            norm_back,
            *backward,
        ]
    return [*batch(), *forward, *backward, optimizer(gpu, 90_000_000)]


def graphs(gpu: Gpu) -> list[Op]:
    """Return a step of a graph network: rows by index, sums by index, small products."""
    nodes, edges, width = 60_000 * gpu.scale, 480_000 * gpu.scale, 256
    gather = memory(
        gpu,
        "aten::index_select",
        "void at::native::indexSelectLargeIndex<c10::BFloat16, long>",
        ([nodes, width], [], [edges]),
        2 * edges * width,
        values=((1, "0"),),
        types=(BF16, "", "long int"),
    )
    add = memory(
        gpu,
        "aten::index_add_",
        "void at::native::indexFuncLargeIndex<c10::BFloat16, long, add>",
        ([nodes, width], [], [edges], [edges, width], []),
        3 * edges * width,
        types=(BF16, "", "long int", BF16),
    )
    relu = memory(
        gpu,
        "aten::relu",
        "void at::native::vectorized_elementwise_kernel<4, relu>",
        ([nodes, width],),
        2 * nodes * width,
    )
    layer = [matrix(gpu, nodes, width, width, bias=True), relu, gather, add]
    back = [gather, add, matrix(gpu, nodes, width, width), matrix(gpu, width, nodes, width)]
    return [*batch(), *layer * 4, *back * 4, optimizer(gpu, 2_000_000)]


def experts(gpu: Gpu, ranks: int = 1) -> list[Op]:
    """Return a step of a compiled mixture of experts."""
    tokens, width, wide, count = 8192 * max(gpu.scale // 2, 1), 3072, 1536, 16
    grouped = 2 * tokens * 4 * width * wide / (gpu.tflops * gpu.gemm * 1e6) + 4
    product = Op(
        "aten::_grouped_mm",
        (Work("cutlass::device_kernel<at::cuda::detail::GroupedGemm_sm90_bf16bf16_bf16>", grouped),),
        ([tokens * 4, width], [count, width, wide], [count], [], []),
        types=(BF16, BF16, "int"),
    )
    fused = memory(
        gpu,
        "triton_poi_fused_add_mul_silu_3",
        "triton_poi_fused_add_mul_silu_3",
        ([tokens, width], [tokens, width], [tokens, width]),
        3 * tokens * width,
        types=(BF16,) * 3,
    )
    norm = memory(
        gpu,
        "triton_red_fused_mean_rsqrt_mul_1",
        "triton_red_fused_mean_rsqrt_mul_1",
        ([tokens, width], [width], [tokens, width]),
        2 * tokens * width,
        types=(BF16,) * 3,
    )
    swap = Work(
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        60,
        stream=COMMUNICATION,
        blocks=0.2,
        collective="all_to_allv",
        call="cudaLaunchKernelExC",
        elements=(1 << 22, 1 << 22),
    )
    away = [Op("nccl:all_to_all", (swap,), category="user_annotation")] if ranks > 1 else []
    layer = [norm, matrix(gpu, tokens, width, 3 * width), fused, *away, product, product, fused]
    back = [
        product,
        product,
        product,
        product,
        matrix(gpu, tokens, 3 * width, width),
        matrix(gpu, width, tokens, 3 * width),
        norm,
    ]
    return [*batch(), *layer * 4, *back * 4, Op("", joins=True, host=1), optimizer(gpu, 300_000_000)]


def speech(gpu: Gpu) -> list[Op]:
    """Return a step of a speech model: products, depthwise convolutions over time, gated units."""
    count, length, width = 24 * gpu.scale, 800, 512
    shape, size = [count, length, width], count * length * width
    norm = memory(
        gpu,
        "aten::native_layer_norm",
        "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>",
        (shape, [], [width], [width], []),
        2 * size,
    )
    glu = memory(
        gpu,
        "aten::mul",
        "void at::native::vectorized_elementwise_kernel<4, MulFunctor<c10::BFloat16>>",
        (shape, shape),
        3 * size,
    )
    rows = count * length
    layer = [norm, matrix(gpu, rows, width, 4 * width, bias=True), glu, matrix(gpu, rows, 4 * width, width, bias=True)]
    back = [
        matrix(gpu, rows, width, 4 * width),
        matrix(gpu, 4 * width, rows, width),
        glu,
        matrix(gpu, rows, 4 * width, width),
        matrix(gpu, width, rows, 4 * width),
    ]
    return [*batch(), *layer * 6, *back * 6, optimizer(gpu, 40_000_000)]


@dataclass(frozen=True)
class Training:
    """A healthy training of the second set."""

    step: Callable[..., list[Op]]
    gpu: Gpu
    ranks: int = 1
    steps: int = 7

    def job(self, seed: int) -> Job:
        more = {"ranks": self.ranks} if self.ranks > 1 else {}
        step = self.step(self.gpu, **more)
        return Job(self.gpu, tuple([step] * self.steps for _ in range(self.ranks)), seed=seed, jitter=0.015)


TRAININGS = {
    "diffusion": Training(diffusion, H100_NVL),
    "diffusion, B200": Training(diffusion, B200, steps=14),
    "graphs": Training(graphs, A100_40),
    "experts": Training(experts, B200),
    "experts, 8 ranks": Training(experts, H100_NVL, ranks=8, steps=5),
    "speech": Training(speech, A10G),
    "speech, A100": Training(speech, A100_40, steps=13),
}
