"""Steps of trainings as good code runs them: a language model, a convolutional network, a recommender, a GAN."""

from collections.abc import Callable, Sequence
from math import prod

from tests.verdicts.kernels.machine import COMMUNICATION, COPIES, Gpu, Op, Work

Step = list[Op]
BF16, LONG = "c10::BFloat16", "long int"


def elementwise(gpu: Gpu, name: str, shape: Sequence[int], *, tensors: int, kernel: str = "", host: float = 6.0) -> Op:
    """Return an operator that memory bounds; it reads or writes so many tensors of a shape."""
    moved = 2 * prod(shape) * tensors
    us = moved / (gpu.gb_per_s * gpu.memory) / 1e3 + 2
    read = [list(shape)] * max(tensors - 1, 1)
    kernel = kernel or f"{name.removeprefix('aten::')}_functor"
    full = f"void at::native::vectorized_elementwise_kernel<4, at::native::{kernel}<c10::BFloat16>>"
    return Op(name, (Work(full, us),), (*read,), host=host)


def swept(gpu: Gpu, name: str, shape: Sequence[int], tensors: int, kernel: str, *, rest: int = 3) -> Op:
    """Return a normalisation or a softmax."""
    us = 2 * prod(shape) * tensors / (gpu.gb_per_s * gpu.memory) / 1e3 + 2
    return Op(name, (Work(f"void at::native::{kernel}<c10::BFloat16, float>", us),), ([*shape], *[[]] * rest))


def gemm_name(gpu: Gpu) -> str:
    if gpu.is_amd:
        return "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN"
    if gpu.capability == (9, 0):
        return "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT"
    return "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"


def product(gpu: Gpu, rows: int, inner: int, columns: int, name: str = "aten::mm") -> Op:
    by_memory = 2 * (rows * inner + inner * columns + rows * columns) / (gpu.gb_per_s * gpu.memory * 1e3)
    us = max(2 * rows * inner * columns / (gpu.tflops * gpu.gemm * 1e6), by_memory) + 2
    shapes = ([rows, inner], [inner, columns])
    if name == "aten::addmm":
        return Op(name, (Work(gemm_name(gpu), us),), ([columns], *shapes, [], []), ((3, "1"), (4, "1")))
    return Op(name, (Work(gemm_name(gpu), us),), shapes)


def linear(gpu: Gpu, rows: int, inner: int, columns: int) -> tuple[Op, list[Op]]:
    """Return the forward product, and the two of the backward pass."""
    name = "aten::addmm"
    return product(gpu, rows, inner, columns, name), [
        product(gpu, rows, columns, inner),
        product(gpu, inner, rows, columns),
    ]


def attention(gpu: Gpu, batch: int, length: int, heads: int, width: int) -> tuple[Op, Op]:
    visible = batch * heads * length * (length + 1) / 2
    shape, rate = [batch, length, heads, width], gpu.tflops * gpu.attention * 1e6
    backward: tuple[str, ...] = ("bwd_kernel_dk_dv", "bwd_kernel_dq")
    if gpu.is_amd:
        forward = "attn_fwd"
    elif gpu.capability == (9, 0):
        forward = "void cutlass::device_kernel<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>"
        backward = ("void cutlass::device_kernel<flash::FlashAttnBwdSm90<cutlass::bfloat16_t>>",)
    else:
        forward = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, cutlass::bfloat16_t>>"
        backward = ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>",)
    ran = Op(
        "aten::_flash_attention_forward",
        (Work(forward, 4 * visible * width / rate + 3),),
        (*[shape] * 3, *[[]] * 7),
        ((8, "True"),),
    )
    us = 10 * visible * width / rate * 1.1 / len(backward) + 3
    back = Op(
        "aten::_flash_attention_backward",
        tuple(Work(name, us) for name in backward),
        (*[shape] * 5, [batch, heads, length], *[[]] * 8),
        ((11, "True"),),
        types=(*[BF16] * 5, "float"),
    )
    return ran, back


def embedded(gpu: Gpu, table: int, width: int, batch: int, length: int) -> tuple[Op, Op]:
    rate = gpu.gb_per_s * gpu.memory * 1e3
    tokens = batch * length
    rows = Op(
        "aten::embedding",
        (Work("void at::native::vectorized_gather_kernel<16, long>", 4 * tokens * width / rate + 3),),
        ([table, width], [batch, length], [], [], []),
        types=(BF16, LONG),
    )
    back = Op(
        "aten::embedding_dense_backward",
        (
            Work("void cub::DeviceRadixSortOnesweepKernel<Policy<long, int, int>>", 4),
            Work(
                "void at::native::compute_grad_weight<c10::BFloat16, float, long>",
                2 * width * (tokens + table) / rate + 4,
            ),
        ),
        ([batch, length, width], [batch, length], [], [], []),
        ((2, str(table)), (3, "-1"), (4, "False")),
        types=(BF16, LONG),
    )
    return rows, back


def adam(gpu: Gpu, elements: int) -> Op:
    """Return the fused optimizer over a few large tensors."""
    us = 28 * elements / (gpu.gb_per_s * gpu.memory * 1e3) + 4
    lists = [[[elements // 4]] * 4] * 4
    kernel = "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
    fused = Op("aten::_fused_adamw_", (Work(kernel, us),), (*lists, [], [], []), types=("TensorList",) * 4)
    return Op("Optimizer.step#AdamW.step", category="user_annotation", host=20, inside=(fused,))


def reduced(gpu: Gpu, elements: int, ranks: int, sort: str = "allreduce") -> Op:
    """Return a collective beside computation; it takes a few percent of what computes."""
    kernel = {"allreduce": "AllReduce_Sum_bf16_RING_LL", "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL"}
    kernel |= {"_allgather_base": "AllGather_RING_LL", "all_to_all": "SendRecv"}
    us = 2 * elements / 150e3 + 15
    name = f"ncclDevKernel_{kernel[sort]}(ncclDevKernelArgsStorage<4096ul>)"
    work = Work(name, us, stream=COMMUNICATION, blocks=0.2, collective=sort, call="cudaLaunchKernelExC")
    return Op(f"nccl:{sort.lstrip('_')}", (work,) if ranks > 1 else (), host=10, category="user_annotation")


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def loaded(megabytes: float = 1.0) -> list[Op]:
    """Return the batch that is ready, and its copy from pinned memory."""
    copy = Work(
        "Memcpy HtoD (Pinned -> Device)", megabytes * 40 + 2, "gpu_memcpy", COPIES, bytes=round(megabytes * 1e6),
        call="cudaMemcpyAsync",
    )  # fmt: skip
    return [Op(LOADER, category="user_annotation", host=60), Op("aten::copy_", (copy,), host=8)]


def transformer(gpu: Gpu, *, ranks: int = 1, size: float = 1.0, layers: int = 5) -> Step:
    """Return a step of a language model of a few layers."""
    batch, length, width, heads = max(round(gpu.scale * size), 1), 2048 if gpu.scale > 1 else 1024, 2048, 16
    tokens, shape, vocabulary = batch * length, [batch, length, width], 50304
    norm = swept(gpu, "aten::native_layer_norm", shape, 2, "vectorized_layer_norm_kernel", rest=4)
    norm_back = swept(gpu, "aten::native_layer_norm_backward", shape, 3, "layer_norm_grad_input_kernel", rest=6)
    norm_back = Op(norm_back.name, norm_back.works, (shape, shape, *[[]] * 6))
    add = elementwise(gpu, "aten::add", shape, tensors=3, kernel="CUDAFunctor_add")
    wide = [batch, length, 4 * width]
    gelu = elementwise(gpu, "aten::gelu", wide, tensors=2, kernel="GeluCUDAKernelImpl")
    gelu_back = elementwise(gpu, "aten::gelu_backward", wide, tensors=3, kernel="GeluBackwardCUDAKernelImpl")
    attend, attend_back = attention(gpu, batch, length, heads, width // heads)
    parts = [
        linear(gpu, tokens, *each)
        for each in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    ]
    (qkv, proj, up, down) = parts
    forward = [norm, qkv[0], attend, proj[0], add, norm, up[0], gelu, down[0], add]
    backward = [*down[1], gelu_back, *up[1], norm_back, add, *proj[1], attend_back, *qkv[1], norm_back, add]
    head, head_back = (
        product(gpu, tokens, width, vocabulary),
        [
            product(gpu, tokens, vocabulary, width),
            product(gpu, vocabulary, tokens, width),
        ],
    )
    scores = [tokens, vocabulary]
    loss = swept(gpu, "aten::_log_softmax", scores, 2, "cunn_SoftMaxForward", rest=2)
    loss_back = swept(gpu, "aten::_log_softmax_backward_data", scores, 3, "cunn_SoftMaxBackward", rest=3)
    loss_back = Op(loss_back.name, loss_back.works, (scores, scores, [], []))
    look, look_back = embedded(gpu, vocabulary, width, batch, length)
    elements = layers * 12 * width * width + vocabulary * width
    step = [*loaded(), look]
    for _ in range(layers):
        step += forward
    step += [norm, head, loss, loss_back, *head_back, norm_back]
    for _ in range(layers):
        step += [*backward, reduced(gpu, elements // (layers + 1) // 4, ranks)]
    step += [look_back, reduced(gpu, vocabulary * width // 8, ranks), Op("", joins=True, host=1)]
    return [*step, adam(gpu, elements)]


_BLOCKS = ((64, 64, 56, 1), (64, 64, 56, 3), (64, 256, 56, 1), (256, 128, 28, 1), (128, 128, 28, 3), (128, 512, 28, 1),
           (512, 256, 14, 1), (256, 256, 14, 3), (256, 1024, 14, 1))  # fmt: skip


def convolved(gpu: Gpu, batch: int, inner: int, outer: int, side: int, kernel: int) -> tuple[Op, Op]:
    image, weight, result = [batch, inner, side, side], [outer, inner, kernel, kernel], [batch, outer, side, side]
    flops = 2 * prod(result) * inner * kernel * kernel
    rate = gpu.tflops * gpu.gemm * 0.9 * 1e6
    by_memory = 2 * (prod(image) + prod(result) + prod(weight)) / (gpu.gb_per_s * gpu.memory * 1e3)
    us, pad = max(flops / rate, by_memory) + 3, kernel // 2
    names = (
        [f"igemm_{way}_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32" for way in ("fwd", "bwd", "wrw")]
        if gpu.is_amd
        else [
            f"sm80_xmma_{way}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc" for way in ("fprop", "dgrad", "wgrad")
        ]
    )
    ran = Op(
        "aten::cudnn_convolution", (Work(names[0], us),), (image, weight, *[[]] * 7),
        ((2, f"[{pad}, {pad}]"), (3, "[1, 1]"), (4, "[1, 1]"), (5, "1")),
    )  # fmt: skip
    if gpu.is_amd:
        ran = Op(
            "aten::miopen_convolution", ran.works, (image, weight, *[[]] * 7),
            ((3, f"[{pad}, {pad}]"), (4, "[1, 1]"), (5, "[1, 1]"), (6, "1")),
        )  # fmt: skip
    back = Op(
        "aten::convolution_backward", (Work(names[1], us), Work(names[2], us)), (result, image, weight, *[[]] * 8),
        ((4, "[1, 1]"), (5, f"[{pad}, {pad}]"), (6, "[1, 1]"), (7, "False"), (10, "[True, True, False]")),
    )  # fmt: skip
    return ran, back


def _normalised(gpu: Gpu, shape: list[int]) -> tuple[list[Op], list[Op]]:
    name = "miopen" if gpu.is_amd else "cudnn"
    kernel = "batch_norm_collect_statistics_channels_last_kernel"
    norm = swept(gpu, f"aten::{name}_batch_norm", shape, 3, kernel, rest=7)
    norm = Op(norm.name, norm.works, norm.shapes, ((5, "True"),))
    back = swept(gpu, f"aten::{name}_batch_norm_backward", shape, 5, "batch_norm_backward_channels_last_kernel", rest=0)
    back = Op(back.name, back.works, (shape, shape, *[[]] * 5))
    relu = elementwise(gpu, "aten::clamp_min_", shape, tensors=2, kernel="clamp_min_scalar_kernel_impl")
    relu_back = elementwise(gpu, "aten::threshold_backward", shape, tensors=3, kernel="threshold_kernel_impl")
    return [norm, relu], [relu_back, back]


def _layers(gpu: Gpu, batch: int, blocks: Sequence[tuple[int, int, int, int]]) -> tuple[Step, Step]:
    forward: Step = []
    backward: Step = []
    for inner, outer, side, kernel in blocks:
        ran, back = convolved(gpu, batch, inner, outer, side, kernel)
        norm, norm_back = _normalised(gpu, [batch, outer, side, side])
        forward += [ran, *norm]
        backward = [*norm_back, back, *backward]
    return forward, backward


def resnet(gpu: Gpu, *, ranks: int = 1, size: float = 1.0) -> Step:
    """Return a step of a convolutional network, channels last."""
    batch = max(round(32 * gpu.scale * size), 1)
    forward, backward = _layers(gpu, batch, _BLOCKS * 2)
    elements = 25_000_000
    first, rest = backward[: len(backward) // 2], backward[len(backward) // 2 :]
    last, last_back = linear(gpu, batch, 1024, 1000)
    return [
        *loaded(4), *forward, last, *last_back, *first, reduced(gpu, elements // 2, ranks), *rest,
        reduced(gpu, elements // 16, ranks), Op("", joins=True, host=1), adam(gpu, elements),
    ]  # fmt: skip


def recommender(gpu: Gpu, *, ranks: int = 1, size: float = 1.0) -> Step:
    """Return a step of a recommender: large tables, and a wide network over them."""
    batch, width, tables = max(round(8192 * gpu.scale * size), 64), 128, 26
    look, look_back = embedded(gpu, 400_000, width, batch, tables)
    sizes = ((tables * width, 2048), (2048, 2048), (2048, 1024), (1024, 512), (512, 256))
    layers = [linear(gpu, batch, *each) for each in sizes]
    forward, backward = [look], [look_back]
    for (ran, back), (_, columns) in zip(layers, sizes, strict=True):
        shape = [batch, columns]
        forward += [ran, elementwise(gpu, "aten::clamp_min_", shape, tensors=2, kernel="clamp_min_scalar_kernel_impl")]
        relu_back = elementwise(gpu, "aten::threshold_backward", shape, tensors=3, kernel="threshold_kernel_impl")
        backward = [relu_back, *back, *backward]
    elements = sum(prod(each) for each in sizes)
    return [
        *loaded(2), *forward, *backward[:8], reduced(gpu, elements // 2, ranks), *backward[8:],
        reduced(gpu, elements // 8, ranks), Op("", joins=True, host=1), adam(gpu, elements + 400_000 * width // 8),
    ]  # fmt: skip


def gan(gpu: Gpu, *, ranks: int = 1, size: float = 1.0) -> Step:
    """Return a step of two networks, each with its optimizer."""
    batch = max(round(16 * gpu.scale * size), 1)
    blocks = ((128, 128, 64, 3), (128, 256, 32, 3), (256, 256, 32, 3), (256, 512, 16, 3), (512, 512, 16, 3))
    generator, generator_back = _layers(gpu, batch, blocks[::-1])
    critic, critic_back = _layers(gpu, 2 * batch, blocks)
    judged, judged_back = _layers(gpu, batch, blocks)
    return [
        *loaded(2), *generator, *critic, *critic_back, reduced(gpu, 3_000_000, ranks), Op("", joins=True, host=1),
        adam(gpu, 12_000_000), *judged, *judged_back, *generator_back, reduced(gpu, 3_000_000, ranks),
        Op("", joins=True, host=1), adam(gpu, 12_000_000),
    ]  # fmt: skip


MODELS: dict[str, Callable[..., Step]] = {
    "transformer": transformer, "resnet": resnet, "recommender": recommender, "gan": gan,
}  # fmt: skip
