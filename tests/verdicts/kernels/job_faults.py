"""Faults of the job: communication, ranks, memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.verdicts.kernels.machine import COMMUNICATION, SECOND_GPU, Job, Op, Work
from tests.verdicts.kernels.models import Step
from tests.verdicts.kernels.planting import (
    Plant,
    amid,
    changed,
    finish,
    waste,
)


def exposed(sort: str, kernel: str, *, count: int = 1) -> Plant:
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


def late(job: Job, share: float) -> Job:
    pause = Op("", host=waste(job, share) + 0.01 * job.step_us)
    return _of_rank(2, lambda step: [finish(), pause, *step])(job)


def slow_clock(job: Job, share: float) -> Job:
    return replace(job, clocks=tuple(1 / (1 - share) if rank == 1 else 1.0 for rank in range(len(job.ranks))))


def imbalanced(job: Job, share: float) -> Job:
    """Experts of one rank get most tokens; all ranks meet in the exchange behind them."""
    even = job.step_us * 0.1 / 4
    more = even + waste(job, share) * 1.1 / 4
    tokens = 1 << 22
    return exchanging(job, [(more if at == 3 else even, round(tokens * more / even) if at == 3 else tokens)
                            for at in range(len(job.ranks))])  # fmt: skip


def exchanging(job: Job, experts: Sequence[tuple[float, int]]) -> Job:
    """Put four layers of experts in: the time of each rank's, and how many elements it gets for them."""
    sent = sum(elements for _, elements in experts) // len(experts)

    def part(us: float, elements: int) -> list[Op]:
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        work = Work(name, 50, stream=COMMUNICATION, blocks=0.2, collective="all_to_allv", call="cudaLaunchKernelExC",
                    elements=(elements, sent))  # fmt: skip
        exchange = Op("nccl:all_to_all", (work,), category="user_annotation")
        return [Op("aten::_grouped_mm", (Work("cutlass_90_grouped_gemm_bf16", us),)), exchange,
                Op("", joins=True, host=1)]  # fmt: skip

    def change(mine: tuple[float, int], step: Step) -> Step:
        places = range(12, 60, 12)
        return [each for at, op in enumerate(step) for each in ((*part(*mine), op) if at in places else (op,))]

    return replace(
        job,
        ranks=tuple([change(mine, [*step]) for step in steps] for mine, steps in zip(experts, job.ranks, strict=True)),
    )


def data_parallel(job: Job, share: float) -> Job:
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

    return job.every(lambda step: [replicas, *changed(step, of)])


def gloo(job: Job, share: float) -> Job:
    """Gradients go through the host."""
    send = Op("gloo:all_reduce", host=waste(job, share), category="user_annotation")
    forward = Op("DistributedDataParallel.forward", category="user_annotation", host=10)

    def change(step: Step) -> Step:
        kept = [op for op in step if not op.name.startswith("nccl")]
        return [forward, *kept[:-1], finish(), send, kept[-1]]

    return replace(job, backend="gloo").every(change)


# Memory


def _event(step: int, at: float, address: int, size: int, held: float, reserved: float) -> dict[str, object]:
    said = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": size}
    said |= {"Total Allocated": round(held), "Total Reserved": round(reserved)}
    return {"step": step, "at": at, "args": said}


def full(job: Job, share: float) -> Job:
    limit = float(job.gpu.gib << 30)
    reserved = limit * (0.92 + 0.07 * share * 2)
    events = [
        _event(step, 0.1 + 0.4 * part, 7, (1 - 2 * part) << 28, reserved * 0.97, reserved)
        for step in range(6)
        for part in (0, 1)
    ]
    return replace(job, memory=tuple(events))


def fragmented(job: Job, share: float) -> Job:
    limit = float(job.gpu.gib << 30)
    held = limit * 0.96 * (1 - 0.2 - share * 0.6)
    events = [
        _event(step, 0.1 + 0.4 * part, 7, (1 - 2 * part) << 28, held + ((1 - part) << 28), limit * 0.96)
        for step in range(6) for part in (0, 1)
    ]  # fmt: skip
    return replace(job, memory=tuple(events))


def growing(job: Job, share: float) -> Job:
    """Keep losses with their graphs."""
    leak = round((64 << 20) * (1 + 20 * share))
    held, events = float(8 << 30), []
    for step in range(len(job.ranks[0])):
        for at, address, size in ((0.1, 7, 1 << 28), (0.4, 1_000 + step, leak), (0.7, 7, -(1 << 28))):
            held += size
            events.append(_event(step, at, address, size, held, 20 << 30))
    return replace(job, memory=tuple(events))
