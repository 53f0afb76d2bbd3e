"""Faults of the host: data, waits, copies, launches, single steps."""

from dataclasses import replace

from tests.verdicts.kernels.machine import LAUNCH, Job, Op, Work
from tests.verdicts.kernels.models import LOADER, Step
from tests.verdicts.kernels.planting import (
    Plant,
    amid,
    changed,
    finish,
    flat,
    only,
    waste,
)


def loader(job: Job, share: float) -> Job:
    """Batches come less often than the GPU could take them."""
    launching = sum(op.host + LAUNCH * len(op.works) for op in flat(job.ranks[0][0]))
    wait = Op(LOADER, category="user_annotation", host=job.step_us + waste(job, share) - launching)
    return job.every(lambda step: [wait, *step[1:]])


def slow_worker(job: Job, share: float) -> Job:
    """One of four workers is slow: each fourth batch is waited for, behind the loss that each step reads."""
    wait = Op(LOADER, category="user_annotation", host=4 * waste(job, share))
    return only(job.every(lambda step: [*step, finish()]), lambda at: at % 4 == 1, lambda step: [wait, *step])


def collate(job: Job, share: float) -> Job:
    """The batch is put together in the main process, without a DataLoader."""
    stack = Op("aten::stack", host=waste(job, share), inside=(Op("aten::cat", host=5),))
    return job.every(lambda step: [finish(), stack, *step[1:]])


def waiting(name: str, count: int, call: str = "cudaStreamSynchronize") -> Plant:
    """Wait within an operator so often; behind each wait Python goes on slowly."""

    def plant(job: Job, share: float) -> Job:
        wait = Op(name, host=4, inside=(Op("aten::_local_scalar_dense" if "item" in name else "", sync=call, host=2),))
        return amid(job, count, wait, Op("", host=waste(job, share) / count))

    return plant


def printed(job: Job, share: float) -> Job:
    """Print the loss: a copy to pageable memory, then the text."""
    copy = Work("Memcpy DtoH (Device -> Pageable)", 3, "gpu_memcpy", bytes=4, call="cudaMemcpyAsync", waits=True)
    item = Op("aten::item", inside=(Op("aten::_local_scalar_dense", (copy,), host=3),))
    return amid(job, 4, item, Op("", host=waste(job, share) / 4))


def nonzero(job: Job, share: float) -> Job:
    copy = Work("Memcpy DtoH (Device -> Pageable)", 3, "gpu_memcpy", bytes=8, call="cudaMemcpyAsync", waits=True)
    select = Work("void cub::DeviceSelectSweepKernel<bool, long>", 8)
    return amid(job, 20, Op("aten::nonzero", (select, copy)), Op("", host=waste(job, share) / 20))


def metrics(job: Job, share: float) -> Job:
    """Copy predictions to the host and reckon there."""
    copy = Work("Memcpy DtoH (Device -> Pageable)", 60, "gpu_memcpy", bytes=500_000, call="cudaMemcpyAsync", waits=True)
    sort = Op("aten::topk", host=waste(job, share))
    return job.every(lambda step: [*step, Op("aten::_to_copy", inside=(Op("aten::copy_", (copy,)),)), sort])


def python(job: Job, share: float) -> Job:
    """Python between the launches of a small model takes longer than its work."""
    small = 0.05
    ops = [op for op in flat(job.ranks[0][0]) if op.works]
    busy = sum(op.us for op in ops) * small
    host = busy / (1 - share) / len(ops) - LAUNCH

    def longer(op: Op) -> Op:
        return (
            replace(op, host=host, works=tuple(replace(work, us=work.us * small) for work in op.works))
            if op.works
            else op
        )

    return job.every(lambda step: changed(step, longer))


def storm(job: Job, share: float) -> Job:
    """Put many operators behind the loss that is read, each shorter than its launch."""
    names = ("aten::mul", "aten::add", "aten::div", "aten::sub")
    count = max(round(waste(job, share) / 14), 320)
    return job.every(lambda step: [*step, finish(), *(_tiny(names[at % 4]) for at in range(count))])


def _tiny(name: str, host: float = 10.0) -> Op:
    kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{name[6:]}_functor<float>>"
    return Op(name, (Work(kernel, 2),), ([256], [256], []), types=("float", "float"), host=host)


def unfused_optimizer(job: Job, share: float) -> Job:
    """Adam with a loop over parameters: some ten small kernels for each."""
    names = ("aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::div_", "aten::add_", "aten::addcdiv_")
    count = max(round(waste(job, share) / 14), 320)
    loop = tuple(_tiny(names[at % 7]) for at in range(count))
    optimizer = Op("Optimizer.step#Adam.step", category="user_annotation", host=20, inside=loop)
    return job.every(lambda step: [*step[:-1], finish(), optimizer])


def clipped(job: Job, share: float) -> Job:
    """Clip gradients parameter by parameter, each norm read by the host."""
    count = 40
    norm = Op(
        "aten::linalg_vector_norm", (Work("void at::native::reduce_kernel<512, 1, NormTwoOps<float>>", 4),),
        ([2048, 2048], [], [], [], []), types=("float",),
    )  # fmt: skip
    one = (norm, finish(), Op("", host=waste(job, share) / count))
    return job.every(lambda step: [*step[:-1], *(one * count), step[-1]])


def pageable(job: Job, share: float) -> Job:
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


def offloaded(job: Job, share: float) -> Job:
    """Optimizer state comes from the host's memory and goes back."""
    copies = [
        Work(f"Memcpy {way}", waste(job, share) / 16, "gpu_memcpy", bytes=1 << 27, call="cudaMemcpyAsync")
        for way in ("HtoD (Pinned -> Device)", "DtoH (Device -> Pinned)")
    ]
    return job.every(lambda step: [*step, *(Op("aten::copy_", (each,)) for each in copies * 8)])


def many_copies(job: Job, share: float) -> Job:
    count = max(round(waste(job, share) / 13), 300)
    copy = Work("Memcpy HtoD (Pinned -> Device)", 2, "gpu_memcpy", bytes=4096, call="cudaMemcpyAsync")
    return job.every(lambda step: [*step, finish(), *[Op("aten::copy_", (copy,), host=9)] * count])


def paused(*, every: int, mark: str = "") -> Plant:
    """Pause the host in some steps, behind a wait for the GPU."""

    def plant(job: Job, share: float) -> Job:
        pause = Op(mark, host=waste(job, share) * every, category="user_annotation")
        return only(job, lambda at: at % every == every - 1, lambda step: [*step, finish(), pause])

    return plant


def checkpoint(job: Job, share: float) -> Job:
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


def evaluated(job: Job, share: float) -> Job:
    """Run the forward pass over other data in one step of twelve."""
    half = [op for op in job.ranks[0][0] if "backward" not in op.name and "Optimizer" not in op.name]
    times = max(round(waste(job, share) * 12 / sum(op.us for op in half)), 1)
    return only(job, lambda at: at == 6, lambda step: [*step, *half * times])


def outlier(job: Job, share: float) -> Job:
    """One step's kernels are slow, as clocks fall for a moment."""
    factor = 1 + waste(job, share) * 12 / job.step_us

    def of_step(step: Step) -> Step:
        return changed(step, lambda op: replace(op, works=tuple(replace(w, us=w.us * factor) for w in op.works)))

    return only(job, lambda at: at == 5, of_step)


def recompiled(job: Job, share: float) -> Job:
    """Compile again in each sixth step, behind the loss that each step reads."""
    compiled = Op("CompileTime: _compile.compile_inner (dynamo_timed)", host=waste(job, share) * 6)
    return only(
        job.every(lambda step: [finish(), *step]), lambda at: at % 6 == 3, lambda step: [step[0], compiled, *step[1:]]
    )


def graph_breaks(job: Job, share: float) -> Job:
    """Guards are checked between compiled parts, with an empty queue."""
    check = Op("TorchDynamo Cache Lookup", host=waste(job, share) / 12)
    return amid(job, 12, Op("", sync="cudaStreamSynchronize", host=1), check)


def retried(job: Job, share: float) -> Job:
    """The allocator gives memory back and takes new in each step; freeing waits for the GPU."""
    half = waste(job, share) / 8
    free = Op("aten::empty", host=3, inside=(
        Op("", sync="cudaDeviceSynchronize", host=1), _call("cudaFree", half), _call("cudaMalloc", half)))  # fmt: skip
    return amid(job, 4, free)


def _call(name: str, us: float) -> Op:
    return Op(name, category="cuda_runtime", host=us)
