"""Faults by kind: what is planted, and what must be named. Labels were written before any rule judged a trace.

A fault wastes a share of the step: ``weak`` is just worth a person's time.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.verdicts.kernels.healthy import planned
from tests.verdicts.kernels.machine import COMMUNICATION, LAUNCH, SECOND_GPU, Job, Op, Work
from tests.verdicts.kernels.models import LOADER, Step, product

STRENGTHS = {"weak": 0.12, "medium": 0.25, "strong": 0.5}
"""Share of the step that is wasted."""

Plant = Callable[[Job, float], Job]


@dataclass(frozen=True)
class Fault:
    """A kind of fault: its training, what it does, rules of which any is right, and what facts or evidence must name."""

    plant: Plant
    rules: frozenset[str]
    names: str
    model: str = "transformer"
    gpu: str = "A100"
    ranks: int = 1
    steps: int = 6


def waste(job: Job, share: float) -> float:
    """Return the microseconds a step that are a share of the step with them."""
    return job.step_us * share / (1 - share)


def _flat(step: Sequence[Op]) -> list[Op]:
    return [each for op in step for each in (op, *_flat(op.inside))]


def _changed(step: Step, change: Callable[[Op], Op]) -> Step:
    return [
        replace(change(op), inside=tuple(_changed(list(op.inside), change))) if op.inside else change(op) for op in step
    ]


def behind(job: Job, pattern: str, *ops: Op) -> Job:
    """Put operators behind the first one of a name."""

    def change(step: Step) -> Step:
        place = next(at for at, op in enumerate(step) if re.search(pattern, op.name)) + 1
        return [*step[:place], *ops, *step[place:]]

    return job.every(change)


def amid(job: Job, count: int, *ops: Op) -> Job:
    """Put operators at so many places of the step, spread evenly."""

    def change(step: Step) -> Step:
        places = {round(len(step) * (number + 0.5) / count) for number in range(count)}
        return [each for at, op in enumerate(step) for each in ((*ops, op) if at in places else (op,))]

    return job.every(change)


def only(job: Job, chosen: Callable[[int], bool], change: Callable[[Step], Step]) -> Job:
    """Change some steps."""
    ranks = tuple([change([*step]) if chosen(at) else step for at, step in enumerate(steps)] for steps in job.ranks)
    return replace(job, ranks=ranks)


LEAST_FACTOR = 2.6
"""A slow operator takes so many times what it should at least."""


def slowed(job: Job, pattern: str, wasted: float, change: Callable[[Op], Op] = lambda op: op) -> Job:
    """Make as few operators of a name slow as waste so much with at least the least factor."""
    found = [op for op in _flat(job.ranks[0][0]) if re.search(pattern, op.name)]
    chosen, time = 0, 0.0
    for op in found:
        if chosen and wasted < (time + op.us) * (LEAST_FACTOR - 1):
            break
        chosen, time = chosen + 1, time + op.us
    factor = 1 + wasted / time

    def slow(step: Step) -> Step:
        left = [chosen]

        def of(op: Op) -> Op:
            if not left[0] or not re.search(pattern, op.name):
                return op
            left[0] -= 1
            return change(replace(op, works=tuple(replace(each, us=each.us * factor) for each in op.works)))

        return _changed(step, of)

    return job.every(slow)


def _slow(pattern: str, kernel: str = "") -> Plant:
    def renamed(op: Op) -> Op:
        return replace(op, works=tuple(replace(each, name=kernel) for each in op.works)) if kernel else op

    return lambda job, share: slowed(job, pattern, waste(job, share), renamed)


# The host


def _loader(job: Job, share: float) -> Job:
    """Batches come less often than the GPU could take them."""
    launching = sum(op.host + LAUNCH * len(op.works) for op in _flat(job.ranks[0][0]))
    wait = Op(LOADER, category="user_annotation", host=job.step_us + waste(job, share) - launching)
    return job.every(lambda step: [wait, *step[1:]])


def _slow_worker(job: Job, share: float) -> Job:
    """One of four workers is slow: each fourth batch is waited for, behind the loss that each step reads."""
    wait = Op(LOADER, category="user_annotation", host=4 * waste(job, share))
    return only(job.every(lambda step: [*step, _finish()]), lambda at: at % 4 == 1, lambda step: [wait, *step])


def _collate(job: Job, share: float) -> Job:
    """The batch is put together in the main process, without a DataLoader."""
    stack = Op("aten::stack", host=waste(job, share), inside=(Op("aten::cat", host=5),))
    return job.every(lambda step: [_finish(), stack, *step[1:]])


def _finish(call: str = "cudaStreamSynchronize") -> Op:
    return Op("aten::item", inside=(Op("aten::_local_scalar_dense", sync=call, host=3),), host=2)


def _waiting(name: str, count: int, call: str = "cudaStreamSynchronize") -> Plant:
    """Wait within an operator so often; behind each wait Python goes on slowly."""

    def plant(job: Job, share: float) -> Job:
        wait = Op(name, host=4, inside=(Op("aten::_local_scalar_dense" if "item" in name else "", sync=call, host=2),))
        return amid(job, count, wait, Op("", host=waste(job, share) / count))

    return plant


def _printed(job: Job, share: float) -> Job:
    """Print the loss: a copy to pageable memory, then the text."""
    copy = Work("Memcpy DtoH (Device -> Pageable)", 3, "gpu_memcpy", bytes=4, call="cudaMemcpyAsync", waits=True)
    item = Op("aten::item", inside=(Op("aten::_local_scalar_dense", (copy,), host=3),))
    return amid(job, 4, item, Op("", host=waste(job, share) / 4))


def _nonzero(job: Job, share: float) -> Job:
    copy = Work("Memcpy DtoH (Device -> Pageable)", 3, "gpu_memcpy", bytes=8, call="cudaMemcpyAsync", waits=True)
    select = Work("void cub::DeviceSelectSweepKernel<bool, long>", 8)
    return amid(job, 20, Op("aten::nonzero", (select, copy)), Op("", host=waste(job, share) / 20))


def _metrics(job: Job, share: float) -> Job:
    """Copy predictions to the host and reckon there."""
    copy = Work("Memcpy DtoH (Device -> Pageable)", 60, "gpu_memcpy", bytes=500_000, call="cudaMemcpyAsync", waits=True)
    sort = Op("aten::topk", host=waste(job, share))
    return job.every(lambda step: [*step, Op("aten::_to_copy", inside=(Op("aten::copy_", (copy,)),)), sort])


def _python(job: Job, share: float) -> Job:
    """Python between the launches of a small model takes longer than its work."""
    small = 0.05
    ops = [op for op in _flat(job.ranks[0][0]) if op.works]
    busy = sum(op.us for op in ops) * small
    host = busy / (1 - share) / len(ops) - LAUNCH

    def slow(op: Op) -> Op:
        return (
            replace(op, host=host, works=tuple(replace(work, us=work.us * small) for work in op.works))
            if op.works
            else op
        )

    return job.every(lambda step: _changed(step, slow))


def _storm(job: Job, share: float) -> Job:
    """Put many operators behind the loss that is read, each shorter than its launch."""
    names = ("aten::mul", "aten::add", "aten::div", "aten::sub")
    count = max(round(waste(job, share) / 14), 320)
    return job.every(lambda step: [*step, _finish(), *(_tiny(names[at % 4]) for at in range(count))])


def _tiny(name: str, host: float = 10.0) -> Op:
    kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{name[6:]}_functor<float>>"
    return Op(name, (Work(kernel, 2),), ([256], [256], []), types=("float", "float"), host=host)


def _unfused_optimizer(job: Job, share: float) -> Job:
    """Adam with a loop over parameters: some ten small kernels for each."""
    names = ("aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::div_", "aten::add_", "aten::addcdiv_")
    count = max(round(waste(job, share) / 14), 320)
    loop = tuple(_tiny(names[at % 7]) for at in range(count))
    optimizer = Op("Optimizer.step#Adam.step", category="user_annotation", host=20, inside=loop)
    return job.every(lambda step: [*step[:-1], _finish(), optimizer])


def _clipped(job: Job, share: float) -> Job:
    """Clip gradients parameter by parameter, each norm read by the host."""
    count = 40
    norm = Op(
        "aten::linalg_vector_norm", (Work("void at::native::reduce_kernel<512, 1, NormTwoOps<float>>", 4),),
        ([2048, 2048], [], [], [], []), types=("float",),
    )  # fmt: skip
    one = (norm, _finish(), Op("", host=waste(job, share) / count))
    return job.every(lambda step: [*step[:-1], *(one * count), step[-1]])


def _pageable(job: Job, share: float) -> Job:
    time = waste(job, share)
    copy = Work(
        "Memcpy HtoD (Pageable -> Device)",
        time,
        "gpu_memcpy",
        bytes=round(time * 6e3),
        call="cudaMemcpyAsync",
        waits=True,
    )
    return job.every(lambda step: [step[0], Op("aten::copy_", (copy,)), *step[2:]])


def _offloaded(job: Job, share: float) -> Job:
    """Optimizer state comes from the host's memory and goes back."""
    copies = [
        Work(f"Memcpy {way}", waste(job, share) / 16, "gpu_memcpy", bytes=1 << 27, call="cudaMemcpyAsync")
        for way in ("HtoD (Pinned -> Device)", "DtoH (Device -> Pinned)")
    ]
    return job.every(lambda step: [*step, *(Op("aten::copy_", (each,)) for each in copies * 8)])


def _many_copies(job: Job, share: float) -> Job:
    count = max(round(waste(job, share) / 13), 300)
    copy = Work("Memcpy HtoD (Pinned -> Device)", 2, "gpu_memcpy", bytes=4096, call="cudaMemcpyAsync")
    return job.every(lambda step: [*step, _finish(), *[Op("aten::copy_", (copy,), host=9)] * count])


def _paused(*, every: int, mark: str = "") -> Plant:
    """Pause the host in some steps, behind a wait for the GPU."""

    def plant(job: Job, share: float) -> Job:
        pause = Op(mark, host=waste(job, share) * every, category="user_annotation")
        return only(job, lambda at: at % every == every - 1, lambda step: [*step, _finish(), pause])

    return plant


def _checkpoint(job: Job, share: float) -> Job:
    """Save the weights in one step of twelve."""
    time = waste(job, share) * 12
    copy = Work(
        "Memcpy DtoH (Device -> Pageable)", time / 6, "gpu_memcpy", bytes=1 << 30, call="cudaMemcpyAsync", waits=True
    )
    save = Op(
        "save_checkpoint",
        category="user_annotation",
        host=time / 3,
        after=time / 3,
        inside=(Op("aten::copy_", (copy,)),),
    )
    return only(job, lambda at: at == 7, lambda step: [*step, save])


def _evaluated(job: Job, share: float) -> Job:
    """Run the forward pass over other data in one step of twelve."""
    half = [op for op in job.ranks[0][0] if "backward" not in op.name and "Optimizer" not in op.name]
    times = max(round(waste(job, share) * 12 / sum(op.us for op in half)), 1)
    return only(job, lambda at: at == 6, lambda step: [*step, *half * times])


def _outlier(job: Job, share: float) -> Job:
    """One step's kernels are slow, as clocks fall for a moment."""
    factor = 1 + waste(job, share) * 12 / job.step_us

    def slow(step: Step) -> Step:
        return _changed(step, lambda op: replace(op, works=tuple(replace(w, us=w.us * factor) for w in op.works)))

    return only(job, lambda at: at == 5, slow)


def _recompiled(job: Job, share: float) -> Job:
    """Compile again in each sixth step, behind the loss that each step reads."""
    compiled = Op("CompileTime: _compile.compile_inner (dynamo_timed)", host=waste(job, share) * 6)
    return only(
        job.every(lambda step: [_finish(), *step]), lambda at: at % 6 == 3, lambda step: [step[0], compiled, *step[1:]]
    )


def _graph_breaks(job: Job, share: float) -> Job:
    """Guards are checked between compiled parts, with an empty queue."""
    check = Op("TorchDynamo Cache Lookup", host=waste(job, share) / 12)
    return amid(job, 12, Op("", sync="cudaStreamSynchronize", host=1), check)


def _retried(job: Job, share: float) -> Job:
    """The allocator gives memory back and takes new in each step; freeing waits for the GPU."""
    half = waste(job, share) / 8
    free = Op("aten::empty", host=3, inside=(
        Op("", sync="cudaDeviceSynchronize", host=1), _call("cudaFree", half), _call("cudaMalloc", half)))  # fmt: skip
    return amid(job, 4, free)


def _call(name: str, us: float) -> Op:
    return Op(name, category="cuda_runtime", host=us)


# The GPU


def _sgemm(op: Op) -> Op:
    return replace(
        op, works=tuple(replace(work, name="ampere_sgemm_128x128_tn") for work in op.works),
        types=tuple("float" if shape else "" for shape in op.shapes),
    )  # fmt: skip


def _fp32_products(job: Job, share: float) -> Job:
    """Some products run in FP32, outside of autocast: as many as waste the share."""
    factor = job.gpu.tflops * job.gpu.gemm / (job.gpu.fp32 * 0.8)
    return _replaced(job, r"aten::(mm|addmm)$", share, factor, _sgemm)


def _replaced(job: Job, pattern: str, share: float, factor: float, change: Callable[[Op], Op]) -> Job:
    """Change as many operators, each slower by a factor, as waste the share."""
    wasted = waste(job, share)

    def slow(step: Step) -> Step:
        left = [wasted]

        def of(op: Op) -> Op:
            if left[0] <= 0 or not re.search(pattern, op.name):
                return op
            left[0] -= op.us * (factor - 1)
            return change(replace(op, works=tuple(replace(work, us=work.us * factor) for work in op.works)))

        return _changed(step, of)

    return job.every(slow)


def _without_tf32(job: Job, share: float) -> Job:
    """A model in FP32 with TF32 off: the more of it is products, the more is wasted."""
    factor = 1 + share / (1 - share) * 1.3

    def of(op: Op) -> Op:
        if re.search(r"aten::(mm|addmm)$", op.name):
            op = _sgemm(op)
            return replace(op, works=tuple(replace(work, us=work.us * factor) for work in op.works))
        return replace(op, works=tuple(replace(w, name=w.name.replace("c10::BFloat16", "float")) for w in op.works))

    return job.every(lambda step: _changed(step, of))


def _fp32_convolutions(job: Job, share: float) -> Job:
    def of(op: Op) -> Op:
        ways = ("fprop", "dgrad", "wgrad")
        kernel = next((way for way in ways if way in op.works[0].name), "fprop")
        names = [f"sm80_xmma_{way}_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_ffma" for way in (kernel, "wgrad")]
        works = tuple(replace(work, name=name) for work, name in zip(op.works, names, strict=False))
        return replace(op, works=works, types=tuple("float" if shape else "" for shape in op.shapes))

    return _replaced(job, "convolution", share, 8.0, of)


def _fp64(job: Job, share: float) -> Job:
    """A scale of NumPy makes activations doubles."""

    def of(op: Op) -> Op:
        works = tuple(replace(work, name=work.name.replace("c10::BFloat16", "double")) for work in op.works)
        return replace(op, works=works, types=tuple("double" if shape else "" for shape in op.shapes))

    return _replaced(job, r"aten::(gelu|gelu_backward|add)$", share, 4.4, of)


def _vocabulary(job: Job, share: float) -> Job:
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


def _small_batch(job: Job, share: float) -> Job:
    """So few rows that products fill half of the GPU: half of their time is wasted."""
    work = Work("cutlass_80_tensorop_bf16_s16816gemm_64x64", 40, blocks=0.5)
    few = replace(product(job.gpu, 64, 4096, 4096), works=(work,))
    rest = [op for op in job.ranks[0][0] if not op.inside]
    count = max(round(2 * sum(op.us for op in rest) * share / (1 - 2 * min(share, 0.45)) / 40), 1)
    return job.every(lambda step: [*step[:-1], *[few] * count, step[-1]])


def _math_attention(job: Job, share: float) -> Job:
    """Scores in memory: two products, a mask and a softmax in the place of one kernel, in as many layers as asked for."""
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


def _unfused(job: Job, share: float) -> Job:
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


def _added(op: Op, *, repeats: int = 1) -> Plant:
    """Put an operator in so often; its work says what a good kernel takes, beyond which all is wasted."""

    def plant(job: Job, share: float) -> Job:
        us = waste(job, share) / repeats
        return amid(job, repeats, replace(op, works=tuple(replace(work, us=work.us + us) for work in op.works)))

    return plant


_SUM = Op(
    "aten::sum", (Work("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, sum_functor>>", 49),),
    ([8192, 8192], [], [], []), ((1, "[0]"), (2, "False")),
)  # fmt: skip
_INDEXED = Op(
    "aten::_index_put_impl_",
    (Work("void at::native::indexing_backward_kernel<c10::BFloat16, at::native::UpperBound>", 40),),
    ([50304, 2048], [], [8192, 2048], [], []), types=("c10::BFloat16", "TensorList", "c10::BFloat16"),
)  # fmt: skip
_LOW_RANK = Op(
    "aten::mm", (Work("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn_align2", 12),), ([8192, 2048], [2048, 8])
)
_FEW_TILES = Op(
    "aten::mm", (Work("ampere_bf16_s16816gemm_bf16_128x128_ldg8_nt", 25, blocks=0.1),), ([256, 65536], [65536, 256])
)
_DEPTHWISE = Op(
    "aten::_conv_depthwise2d", (Work("void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>", 123),),
    ([64, 256, 56, 56], [256, 1, 3, 3], [], [], [], [], []), ((4, "[1, 1]"), (5, "[1, 1]"), (6, "[1, 1]")),
)  # fmt: skip
_HEADS = Op(
    "aten::_flash_attention_forward",
    (Work("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<192, 64, 64, cutlass::bfloat16_t>>", 376),),
    ([4, 2048, 12, 160], [4, 2048, 12, 160], [4, 2048, 12, 160], *[[]] * 7), ((8, "True"),),
)  # fmt: skip
_EXPERTS = Op(
    "vllm::inplace_fused_experts", (Work("fused_moe_kernel_bf16", 1171),),
    ([64, 2048], [64, 8192, 2048], [64, 2048, 4096], [64, 2]),
)  # fmt: skip


def _transposed(job: Job, share: float) -> Job:
    """Images in NCHW: convolutions turn them round before and behind."""
    found = [op for op in job.ranks[0][0] if "convolution" in op.name]
    us = waste(job, share) / len(found) / 2
    turns = (Work("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>", us),
             Work("void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float>", us))  # fmt: skip

    def of(op: Op) -> Op:
        return replace(op, works=(turns[0], *op.works, turns[1])) if "convolution" in op.name else op

    return job.every(lambda step: _changed(step, of))


# Ranks


def _exposed(sort: str, kernel: str, *, count: int = 1) -> Plant:
    """Communicate so often while computation waits."""

    def plant(job: Job, share: float) -> Job:
        name = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
        work = Work(
            name,
            waste(job, share) / count,
            stream=COMMUNICATION,
            blocks=0.2,
            collective=sort,
            call="cudaLaunchKernelExC",
        )
        return amid(job, count, Op(f"nccl:{sort}", (work,), category="user_annotation"), Op("", joins=True, host=1))

    return plant


def _of_rank(rank: int, change: Callable[[Step], Step]) -> Callable[[Job], Job]:
    def changed(job: Job) -> Job:
        ranks = [[change([*step]) for step in steps] if at == rank else steps for at, steps in enumerate(job.ranks)]
        return replace(job, ranks=tuple(ranks))

    return changed


def _late(job: Job, share: float) -> Job:
    pause = Op("", host=waste(job, share) + 0.01 * job.step_us)
    return _of_rank(2, lambda step: [_finish(), pause, *step])(job)


def _slow_clock(job: Job, share: float) -> Job:
    return replace(job, clocks=tuple(1 / (1 - share) if rank == 1 else 1.0 for rank in range(len(job.ranks))))


def _imbalanced(job: Job, share: float) -> Job:
    """Experts of one rank get most tokens; all ranks meet in the exchange behind them."""
    mine = Op("aten::_grouped_mm", (Work("cutlass_90_grouped_gemm_bf16", 1),))
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    work = Work(name, 50, stream=COMMUNICATION, blocks=0.2, collective="all_to_all", call="cudaLaunchKernelExC")
    exchange = (Op("nccl:all_to_all", (work,), category="user_annotation"), Op("", joins=True, host=1))
    even = job.step_us * 0.1 / 4
    more = even + waste(job, share) * 1.1 / 4

    def part(us: float) -> list[Op]:
        return [replace(mine, works=(replace(mine.works[0], us=us),)), *exchange]

    def change(us: float) -> Callable[[Step], Step]:
        return lambda step: [
            *step[:12],
            *part(us),
            *step[12:24],
            *part(us),
            *step[24:36],
            *part(us),
            *step[36:48],
            *part(us),
            *step[48:],
        ]

    ranks = [[change(more if at == 3 else even)([*step]) for step in steps] for at, steps in enumerate(job.ranks)]
    return replace(job, ranks=tuple(ranks))


def _data_parallel(job: Job, share: float) -> Job:
    """Replicate the module in each step, from one thread, on two GPUs."""
    wasted = waste(job, share) / 2
    replicas = Op(
        "DataParallel.forward", category="user_annotation", host=wasted, after=wasted, sync="cudaStreamSynchronize"
    )

    def of(op: Op) -> Op:
        halves = [
            replace(work, us=work.us / 2, stream=work.stream + gpu) for work in op.works for gpu in (0, SECOND_GPU)
        ]
        return replace(op, works=tuple(halves))

    return job.every(lambda step: [replicas, *_changed(step, of)])


def _gloo(job: Job, share: float) -> Job:
    """Gradients go through the host."""
    send = Op("gloo:all_reduce", host=waste(job, share), category="user_annotation")
    forward = Op("DistributedDataParallel.forward", category="user_annotation", host=10)

    def change(step: Step) -> Step:
        kept = [op for op in step if not op.name.startswith("nccl")]
        return [forward, *kept[:-1], _finish(), send, kept[-1]]

    return replace(job, backend="gloo").every(change)


# Memory


def _event(step: int, at: float, address: int, size: int, held: float, reserved: float) -> dict[str, object]:
    said = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": size}
    said |= {"Total Allocated": round(held), "Total Reserved": round(reserved)}
    return {"step": step, "at": at, "args": said}


def _full(job: Job, share: float) -> Job:
    limit = float(job.gpu.gib << 30)
    reserved = limit * (0.92 + 0.07 * share * 2)
    events = [
        _event(step, 0.1 + 0.4 * part, 7, (1 - 2 * part) << 28, reserved * 0.97, reserved)
        for step in range(6)
        for part in (0, 1)
    ]
    return replace(job, memory=tuple(events))


def _fragmented(job: Job, share: float) -> Job:
    limit = float(job.gpu.gib << 30)
    held = limit * 0.96 * (1 - 0.2 - share * 0.6)
    events = [
        _event(step, 0.1 + 0.4 * part, 7, (1 - 2 * part) << 28, held + ((1 - part) << 28), limit * 0.96)
        for step in range(6) for part in (0, 1)
    ]  # fmt: skip
    return replace(job, memory=tuple(events))


def _growing(job: Job, share: float) -> Job:
    """Keep losses with their graphs."""
    leak = round((64 << 20) * (1 + 20 * share))
    held, events = float(8 << 30), []
    for step in range(len(job.ranks[0])):
        for at, address, size in ((0.1, 7, 1 << 28), (0.4, 1_000 + step, leak), (0.7, 7, -(1 << 28))):
            held += size
            events.append(_event(step, at, address, size, held, 20 << 30))
    return replace(job, memory=tuple(events))


def _rules(*names: str) -> frozenset[str]:
    return frozenset(names)


SYNC = _rules("SyncStall", "PageableCopy", "GpuGap")
HOST = _rules("LaunchBound", "SmallKernelStorm", "SyncStall", "GpuGap")
PRECISION = _rules("LowPrecisionUnused", "TensorCoresIdle", "SlowOperators")
OPERATORS = _rules("SlowOperators")
SINGLE = _rules("TraceStepOutlier", "GpuGap")
MEET = _rules("ExposedCommunication")

FAULTS: dict[str, Fault] = {
    "data loader is slow": Fault(_loader, _rules("LoaderBound"), "data loader", "resnet"),
    "one loader's worker is slow": Fault(
        _slow_worker, _rules("LoaderBound", *SINGLE), "data ?loader", "resnet", steps=12
    ),
    "batches are put together in the step": Fault(
        _collate, _rules("GpuGap", "LaunchBound", "SyncStall"), "aten::(stack|cat)", "gan"
    ),
    ".item() in each layer": Fault(_waiting("aten::item", 20), SYNC, "aten::(item|_local_scalar_dense)"),
    "the loss is printed": Fault(_printed, SYNC, "aten::(item|_local_scalar_dense)", "resnet", "H100"),
    "nonzero in each layer": Fault(_nonzero, SYNC, "aten::nonzero", "recommender"),
    "metrics on the host": Fault(_metrics, SYNC, "aten::(copy_|_to_copy|topk)", "resnet", "L4"),
    "torch.cuda.synchronize to take times": Fault(
        _waiting("", 12, "cudaDeviceSynchronize"), SYNC, "DeviceSynchronize", "transformer", "MI300X"
    ),
    "the scaler reads found_inf": Fault(
        _waiting("aten::item", 2), SYNC, "aten::(item|_local_scalar_dense)", "gan", "A100"
    ),
    "norms are clipped one by one": Fault(_clipped, HOST, "aten::(linalg_vector_norm|item|_local_scalar_dense)"),
    "copies from pageable memory": Fault(
        _pageable, _rules("PageableCopy", "MemcpyBound", "SyncStall"), "Pageable -> Device", "recommender", "H200"
    ),
    "optimizer state on the host": Fault(_offloaded, _rules("MemcpyBound"), "Memcpy (HtoD|DtoH)"),
    "many small copies": Fault(_many_copies, _rules("MemcpyBound", *HOST), "Memcpy HtoD|aten::copy_", "recommender"),
    "storm of launches": Fault(_storm, HOST, "elementwise_kernel|aten::(mul|add|div|sub)", "gan", "H100"),
    "Python between launches": Fault(_python, _rules("LaunchBound", "GpuGap"), "GPU idle", "transformer", "H100"),
    "optimizer with a loop": Fault(
        _unfused_optimizer,
        HOST,
        r"Optimizer\.step|aten::(mul_|lerp_|addc...?_|sqrt|div_|add_)|(mul_|lerp_|addc...?_|sqrt|div_|add_)_functor",
        "resnet",
    ),
    "collector of garbage pauses the host": Fault(
        _paused(every=3),
        _rules("GpuGap", "TraceStepOutlier", "SyncStall"),
        "nothing that was recorded|slow step",
        steps=12,
    ),
    "checkpoint in a step": Fault(
        _checkpoint,
        _rules("TraceStepOutlier", "GpuGap", "SyncStall", "PageableCopy", "MemcpyBound"),
        "save_checkpoint|Memcpy DtoH|slow step|aten::copy_",
        steps=12,
    ),
    "evaluation in a step": Fault(_evaluated, _rules("TraceStepOutlier"), "slow step", "resnet", "A100", steps=12),
    "one slow step": Fault(_outlier, _rules("TraceStepOutlier"), "slow step", "gan", "H200", steps=12),
    "recompilation in steps": Fault(_recompiled, SINGLE, "compile|slow step", "transformer", "H100", steps=12),
    "graph breaks": Fault(
        _graph_breaks, _rules("SyncStall", "LaunchBound", "GpuGap"), "TorchDynamo|Synchronize", "transformer", "H100"
    ),
    "allocator frees and asks again": Fault(
        _retried, _rules("SyncStall", "GpuGap", "LaunchBound"), "cudaFree|cudaMalloc|DeviceSynchronize"
    ),
    "products in FP32": Fault(_fp32_products, PRECISION, "sgemm"),
    "TF32 is off": Fault(_without_tf32, PRECISION, "sgemm", "recommender", "A100"),
    "convolutions in FP32": Fault(_fp32_convolutions, PRECISION, "implicit_gemm_f32f32", "resnet"),
    "activations in FP64": Fault(
        _fp64,
        _rules("LowPrecisionUnused", "SlowOperators", "DoublePrecision"),
        "double|aten::(gelu|add)",
        "transformer",
        "H100",
    ),
    "vocabulary of 50257": Fault(_vocabulary, OPERATORS, "50257"),
    "batch too small for the GPU": Fault(
        _small_batch, _rules("SmUnderfilled", "SlowOperators"), "gemm|aten::mm", "recommender"
    ),
    "attention in its math form": Fault(
        _math_attention, OPERATORS, "attention_math|aten::(_softmax|bmm)", "transformer", "A100"
    ),
    "activations written out": Fault(_unfused, OPERATORS | {"UnfusedOperators"}, "aten::(pow|mul|add|tanh)"),
    "attention is slow": Fault(
        _slow("_flash_attention_forward"), OPERATORS, "_flash_attention_forward", "transformer", "H200"
    ),
    "attention's backward pass is slow": Fault(
        _slow("_flash_attention_backward"), OPERATORS, "_flash_attention_backward", "transformer", "MI300X"
    ),
    "heads of an odd width": Fault(
        _added(_HEADS, repeats=4), OPERATORS, "_flash_attention_forward", "transformer", "A100"
    ),
    "gradient of an embedding": Fault(
        _slow("embedding_dense_backward"), OPERATORS, "embedding_dense_backward", "recommender"
    ),
    "gradient by an index": Fault(
        _added(_INDEXED, repeats=2), OPERATORS, "index_put|indexing_backward", "transformer", "H100"
    ),
    "layer norm is slow": Fault(_slow("native_layer_norm$"), OPERATORS, "native_layer_norm", "transformer", "L4"),
    "layer norm's backward pass is slow": Fault(
        _slow("native_layer_norm_backward"), OPERATORS, "native_layer_norm_backward", "transformer", "A100"
    ),
    "sum over the wrong axis": Fault(_added(_SUM, repeats=3), OPERATORS, "aten::sum", "resnet", "H100"),
    "batch norm is slow": Fault(_slow("batch_norm$"), OPERATORS, "batch_norm", "resnet", "MI300X"),
    "softmax of the loss is slow": Fault(_slow("_log_softmax"), OPERATORS, "_log_softmax", "transformer", "H200"),
    "images are turned round": Fault(_transposed, OPERATORS, "convolution|nchwToNhwc", "resnet", "H100"),
    "convolution by channel": Fault(_added(_DEPTHWISE, repeats=4), OPERATORS, "_conv_depthwise2d", "resnet", "A100"),
    "products of low rank": Fault(_added(_LOW_RANK, repeats=6), OPERATORS, "aten::mm", "transformer", "H100"),
    "products with few tiles": Fault(
        _added(_FEW_TILES, repeats=3), OPERATORS | {"SmUnderfilled"}, "aten::mm|gemm", "recommender", "H100"
    ),
    "experts with few rows": Fault(_added(_EXPERTS, repeats=2), OPERATORS, "fused_experts", "transformer", "H100"),
    "all-reduce behind the backward pass": Fault(
        _exposed("allreduce", "AllReduce_Sum_bf16_RING_LL"), MEET, "all_?reduce", "resnet", "H100", ranks=2
    ),
    "reduce-scatter in the way": Fault(
        _exposed("_reduce_scatter_base", "ReduceScatter_Sum_bf16_RING_LL", count=5),
        MEET,
        "reduce_?scatter",
        "transformer",
        "H100",
        ranks=2,
    ),
    "all-gather without prefetch": Fault(
        _exposed("_allgather_base", "AllGather_RING_LL", count=10),
        MEET,
        "all_?gather",
        "transformer",
        "MI300X",
        ranks=2,
    ),
    "batch norm of all ranks": Fault(
        _exposed("all_gather", "AllGather_RING_LL", count=18), MEET, "all_?gather", "resnet", "A100", ranks=2
    ),
    "exchange of embeddings in the way": Fault(
        _exposed("all_to_all", "SendRecv", count=2), MEET, "all_?to_?all|SendRecv", "recommender", "A100", ranks=2
    ),
    "a rank is late": Fault(_late, _rules("LateRank"), "Rank 2", "resnet", "A100", ranks=4),
    "a rank's clock is slow": Fault(
        _slow_clock, _rules("LateRank", "SlowRank"), "Rank 1", "transformer", "H100", ranks=4
    ),
    "experts are not balanced": Fault(
        _imbalanced, _rules("LateRank", "SlowRank"), "Rank 3", "transformer", "H200", ranks=4
    ),
    "DataParallel": Fault(
        _data_parallel, _rules("WrongParallel", "SyncStall", "GpuGap"), "DataParallel", "resnet", "A100"
    ),
    "gradients through the host": Fault(_gloo, _rules("WrongParallel"), "gloo", "gan", "A100", ranks=2),
    "memory is nearly full": Fault(_full, _rules("GpuMemoryFull"), "GPU 0|gpu0", "transformer", "A100"),
    "memory is in parts": Fault(
        _fragmented, _rules("GpuMemoryFragmented"), "GPU 0|gpu0|allocated", "transformer", "H100"
    ),
    "memory grows": Fault(_growing, _rules("GpuMemoryGrows"), "bytes kept|growth", "gan", "A100", steps=12),
}


def faulty(fault: Fault, share: float, seed: int) -> Job:
    """Return the training with the fault in it."""
    job = planned(fault.model, fault.gpu, ranks=fault.ranks, steps=fault.steps, seed=seed)
    return fault.plant(job, share)


DAMAGED: dict[str, Callable[[Job], Job]] = {
    "file cut at a third": lambda job: replace(job, cut=0.67),
    "file cut at its half": lambda job: replace(job, cut=0.5),
    "file cut near its end": lambda job: replace(job, cut=0.05),
    "a hundredth of the kernels lost": lambda job: replace(job, lost=0.01),
    "a tenth of the kernels lost": lambda job: replace(job, lost=0.1),
    "half of the kernels lost": lambda job: replace(job, lost=0.5),
}
"""Healthy trainings in damaged files: no finding may be sure."""


def damaged() -> dict[str, Job]:
    """Return the damaged files by name."""
    pairs = (("transformer", "H100"), ("resnet", "A100"), ("recommender", "MI300X"), ("gan", "L4"))
    return {
        f"{model} on {gpu}, {name}": change(planned(model, gpu, seed=400 + at))
        for at, (model, gpu) in enumerate(pairs)
        for name, change in DAMAGED.items()
    }
