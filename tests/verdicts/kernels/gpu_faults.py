"""Faults of what the GPU computes: precision, shapes, slow kernels."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tests.verdicts.kernels.machine import Gpu, Job, Op, Work
from tests.verdicts.kernels.models import Step, product
from tests.verdicts.kernels.planting import (
    Plant,
    amid,
    behind,
    changed,
    replaced,
    slowed,
    waste,
)


def _sgemm(op: Op) -> Op:
    return replace(
        op, works=tuple(replace(work, name="ampere_sgemm_128x128_tn") for work in op.works),
        types=tuple("float" if shape else "" for shape in op.shapes),
    )  # fmt: skip


def fp32_products(job: Job, share: float) -> Job:
    """Some products run in FP32, outside of autocast: as many as waste the share."""
    factor = job.gpu.tflops * job.gpu.gemm / (job.gpu.fp32 * 0.8)
    return replaced(job, r"aten::(mm|addmm)$", share, factor, _sgemm)


def without_tf32(job: Job, share: float) -> Job:
    """A model in FP32 with TF32 off: the more of it is products, the more is wasted."""
    factor = 1 + share / (1 - share) * 1.3

    def of(op: Op) -> Op:
        if re.search(r"aten::(mm|addmm)$", op.name):
            op = _sgemm(op)
            return replace(op, works=tuple(replace(work, us=work.us * factor) for work in op.works))
        return replace(op, works=tuple(replace(w, name=w.name.replace("c10::BFloat16", "float")) for w in op.works))

    return job.every(lambda step: changed(step, of))


def fp32_convolutions(job: Job, share: float) -> Job:
    def of(op: Op) -> Op:
        ways = ("fprop", "dgrad", "wgrad")
        kernel = next((way for way in ways if way in op.works[0].name), "fprop")
        names = [f"sm80_xmma_{way}_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_ffma" for way in (kernel, "wgrad")]
        works = tuple(replace(work, name=name) for work, name in zip(op.works, names, strict=False))
        return replace(op, works=works, types=tuple("float" if shape else "" for shape in op.shapes))

    return replaced(job, "convolution", share, 8.0, of)


def fp64(job: Job, share: float) -> Job:
    """A scale of NumPy makes activations doubles."""

    def of(op: Op) -> Op:
        works = tuple(replace(work, name=work.name.replace("c10::BFloat16", "double")) for work in op.works)
        return replace(op, works=works, types=tuple("double" if shape else "" for shape in op.shapes))

    return replaced(job, r"aten::(gelu|gelu_backward|add)$", share, 4.4, of)


def vocabulary(job: Job, share: float) -> Job:
    def of(op: Op) -> Op:
        shapes = tuple([50257 if size == 50304 else size for size in shape] for shape in op.shapes)
        work = replace(op.works[0], name="ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn_align1")
        return replace(op, shapes=shapes, works=(work,))

    def marked(step: Step) -> Step:
        return [
            replace(op, name="head") if op.name == "aten::mm" and any(50304 in each for each in op.shapes) else op
            for op in step
        ]

    slow = slowed(job.every(marked), "^head$", waste(job, share), of)
    return slow.every(lambda step: [replace(op, name="aten::mm") if op.name == "head" else op for op in step])


def small_batch(job: Job, share: float) -> Job:
    """So few rows that products fill half of the GPU: half of their time is wasted."""
    work = Work("cutlass_80_tensorop_bf16_s16816gemm_64x64", 40, blocks=0.5)
    few = replace(product(job.gpu, 64, 4096, 4096), works=(work,))
    rest = [op for op in job.ranks[0][0] if not op.inside]
    count = max(round(2 * sum(op.us for op in rest) * share / (1 - 2 * min(share, 0.45)) / 40), 1)
    return job.every(lambda step: [*step[:-1], *[few] * count, step[-1]])


def math_attention(job: Job, share: float) -> Job:
    """Scores in memory: two products, a mask and a softmax in the place of one kernel, as often as asked for."""
    batch, length, heads = job.gpu.scale, 2048, 16
    scores = [batch * heads, length, length]
    rate = job.gpu.gb_per_s * job.gpu.memory * 1e3
    size = 2.0 * batch * heads * length * length

    def op(name: str, tensors: int, kernel: str, shapes: tuple[list[int], ...]) -> Op:
        return Op(name, (Work(kernel, size * tensors / rate),), shapes)

    wide = [batch * heads, length, 128]
    gemm = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
    softmax = "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>"
    masked = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
    parts = (
        op("aten::bmm", 2, gemm, (wide, [batch * heads, 128, length])),
        op("aten::mul", 2, masked.replace("CUDAFunctor_add", "MulFunctor"), (scores, [])),
        op("aten::add", 2, masked, (scores, [1, length, length], [])),
        op("aten::_softmax", 2, softmax, (scores, [], [])),
        op("aten::bmm", 2, gemm, (scores, wide)),
    )
    math = Op("aten::_scaled_dot_product_attention_math", inside=parts)
    count = max(round(waste(job, share) / math.us), 1)

    def change(step: Step) -> Step:
        left, found = count, []
        for each in step:
            places = [math] if left > 0 and each.name == "aten::_flash_attention_forward" else [each]
            left -= math in places
            found += places
        return [*found[:12], *[math] * max(left, 0), *found[12:]]

    return job.every(change)


def unfused(job: Job, share: float) -> Job:
    """An activation written out: chains of operators over the same large tensor, none of them slow by itself."""
    batch = job.gpu.scale
    shape = [batch, 2048, 8192]
    us = 2.0 * batch * 2048 * 8192 * 2 / (job.gpu.gb_per_s * job.gpu.memory * 1e3)
    names = ("pow", "mul", "add", "tanh")
    chain = [
        Op(
            f"aten::{name}",
            (Work(f"void at::native::vectorized_elementwise_kernel<4, {name}_functor<c10::BFloat16>>", us),),
            (shape, []),
        )
        for name in names
    ]
    count = max(round(waste(job, share) / us), 2)
    return behind(job, "aten::gelu", *(chain * (count // 4 + 1))[:count])


def added(op: Op, *, repeats: int = 1) -> Plant:
    """Put an operator in so often; its work says what a good kernel takes, beyond which all is wasted."""

    def plant(job: Job, share: float) -> Job:
        us = waste(job, share) / repeats
        return amid(job, repeats, replace(op, works=tuple(replace(work, us=work.us + us) for work in op.works)))

    return plant


SUM = Op(
    "aten::sum", (Work("void at::native::reduce_kernel<128, 4, ReduceOp<c10::BFloat16, sum_functor>>", 49),),
    ([8192, 8192], [], [], []), ((1, "[0]"), (2, "False")),
)  # fmt: skip
INDEXED = Op(
    "aten::_index_put_impl_",
    (Work("void at::native::indexing_backward_kernel<c10::BFloat16, at::native::UpperBound>", 40),),
    ([50304, 2048], [], [8192, 2048], [], []), types=("c10::BFloat16", "TensorList", "c10::BFloat16"),
)  # fmt: skip
LOW_RANK = Op(
    "aten::mm", (Work("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn_align2", 12),), ([8192, 2048], [2048, 8])
)
FEW_TILES = Op(
    "aten::mm", (Work("ampere_bf16_s16816gemm_bf16_128x128_ldg8_nt", 25, blocks=0.1),), ([256, 65536], [65536, 256])
)
DEPTHWISE = Op(
    "aten::_conv_depthwise2d", (Work("void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>", 123),),
    ([64, 256, 56, 56], [256, 1, 3, 3], [], [], [], [], []), ((4, "[1, 1]"), (5, "[1, 1]"), (6, "[1, 1]")),
)  # fmt: skip
HEADS = Op(
    "aten::_flash_attention_forward",
    (Work("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<192, 64, 64, cutlass::bfloat16_t>>", 376),),
    ([4, 2048, 12, 160], [4, 2048, 12, 160], [4, 2048, 12, 160], *[[]] * 7), ((8, "True"),),
)  # fmt: skip
EXPERTS = Op(
    "vllm::inplace_fused_experts", (Work("fused_moe_kernel_bf16", 1171),),
    ([64, 2048], [64, 8192, 2048], [64, 2048, 4096], [64, 2]),
)  # fmt: skip


def transposed(job: Job, share: float) -> Job:
    """Images in NCHW: convolutions turn them round before and behind."""
    found = [op for op in job.ranks[0][0] if "convolution" in op.name]
    us = waste(job, share) / len(found) / 2
    turns = (Work("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>", us),
             Work("void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float>", us))  # fmt: skip

    def of(op: Op) -> Op:
        return replace(op, works=(turns[0], *op.works, turns[1])) if "convolution" in op.name else op

    return job.every(lambda step: changed(step, of))


def experts_one_by_one(gpu: Gpu, rows: Sequence[int]) -> list[Op]:
    """Return two products for each expert, which runs its own rows: few fill no tile, and read the same weights."""
    return [product(gpu, each, *sides) for each in rows for sides in ((4096, 14336), (14336, 4096))]


def uneven_experts(job: Job, share: float) -> Job:
    """Most tokens go to two experts: the others, with few rows each, take as long as with many."""
    steps = []
    for at, step in enumerate(job.ranks[0]):
        rows = [3_000 + 16 * at, 2_000 + 24 * at, *(40 + 8 * ((7 * at + each) % 12) for each in range(14))]
        wasted = waste(job, share)
        ops = experts_one_by_one(job.gpu, rows)
        few = [op for op in ops if op.shapes[0][0] < 200]
        more = wasted / len(few)
        slow = [replace(op, works=(replace(op.works[0], us=op.us + more),)) if op in few else op for op in ops]
        steps.append([*step[:12], *slow, *step[12:]])
    return replace(job, ranks=(steps,))
