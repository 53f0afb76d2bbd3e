"""Kernel traces drawn at random: of one or several ranks and GPUs, in three formats, and what a loop may do wrong."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.claims.kernel_files import CALL, COPY, HOST, KERNEL, SET, Card, Event
from tests.claims.kernel_memory import FAULTS
from tests.claims.kernel_operators import COPIES, EXPERTS, MATH
from tests.claims.kernel_writers import write_nsight, write_pytorch, write_xla

Dims = tuple[tuple[int, ...], ...]

CARDS = (
    Card("NVIDIA A100", (8, 0), 40 << 30, 108),
    Card("NVIDIA A100", (8, 0), 40 << 30, 108),
    Card("Tesla V100", (7, 0), 16 << 30, 80),
    Card("Tesla P100", (6, 0), 16 << 30, 56),
)
FP32, BF16 = "ampere_sgemm_128x64_nn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FP64 = "ampere_dgemm_128x64_nn"
SINGLE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<c10::BFloat16>, std::array<char*, 2ul> >"
# What a stage of a pipeline runs that is unlike the others.
OTHER = "ampere_sgemm_32x32_sliced1x4_nt"

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
US = 1_000
CALL_US = 5

# What traces of PyTorch with operators have: products of any shape, attention in its math form, operators on single
# elements in a row, and products of FP64.
OPERATORS = ("product", "product", "math", "chain", "double")

# From this seed on.
WITH_OPERATORS = 1_000

# What traces of PyTorch have from another seed on: images that are turned, experts one by one and fused, and ranks
# that exchange all to all, of which the late one gets twice the data.
FORMS_OF_WORK = ("layout", "groups", "experts", "exchange")

WITH_FORMS = 2_000

# From this seed on every second operator is a copy that turns rows into columns.
WITH_COPIES = 3_000

TURNS = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(__half const*, __half*)"
# Rows of experts that run one after the other.
GROUPS = (1_024, 72, 64, 80, 136, 96)

# Rows and columns of products: aligned, odd, narrow, of few tiles, with a last wave that is nearly empty or full.
SHAPES = ((4096, 4096), (1025, 4096), (4096, 1020), (32, 4096), (256, 512), (2048, 1920), (2048, 2048))

ELEMENTS = ("aten::mul", "aten::tanh", "aten::exp")
FORMS = ("pytorch", "pytorch", "nsight", "xla")
WRITERS: dict[str, Callable[["KernelJob", int, "list[Event]", Path], None]] = {
    "pytorch": write_pytorch,
    "nsight": write_nsight,
    "xla": write_xla,
}


@dataclass(frozen=True, kw_only=True)
class KernelJob:
    """What a job is, which is what findings across its ranks and GPUs should say.

    Attributes
    ----------
    late, slow, unlike : int or None
        The rank that comes late by much of a step, that computes 1.6 times as long, that runs other kernels.
    parallel : str
        ``data`` where one process drives all GPUs, ``gloo`` where the host sends gradients; else empty.
    reserved : tuple of float
        The most of each GPU's memory that is in use, as shares.
    memory : str
        What is wrong with the first GPU's memory, of `kernel_memory.FAULTS`; else empty.
    operators : str
        What its operators are, of `OPERATORS` or `FORMS_OF_WORK`, or ``copies``; empty where a trace records none.
    exchanges : bool
        Whether the collective is an exchange all to all.
    """

    seed: int
    form: str
    ranks: int = 1
    gpus: int = 1
    late: int | None = None
    slow: int | None = None
    unlike: int | None = None
    parallel: str = ""
    reserved: tuple[float, ...] = ()
    memory: str = ""
    operators: str = ""
    exchanges: bool = False
    card: Card = CARDS[0]
    group: bool = False


def drawn_kernels(seed: int) -> KernelJob:
    """Return the job of a seed: of four in a row one has one rank and GPU, one several ranks, one several GPUs."""
    rng = np.random.default_rng([seed, 22])
    form, card = str(rng.choice(FORMS)), CARDS[int(rng.integers(len(CARDS)))]
    ranks, gpus = ((1, 1), (int(rng.integers(2, 5)), 1), (1, int(rng.integers(2, 5))), (2, 2))[seed % 4]
    faults: dict[str, int | None] = {"late": None, "slow": None, "unlike": None}
    if ranks > 1:
        for name, share in (("late", 0.5), ("slow", 0.5), ("unlike", 0.35)):
            faults[name] = int(rng.integers(ranks)) if rng.random() < share else None
    kinds = OPERATORS if seed < WITH_FORMS else FORMS_OF_WORK
    asked = str(np.random.default_rng([seed, 27]).choice(kinds)) if seed >= WITH_OPERATORS else ""
    asked = "copies" if seed >= WITH_COPIES else asked
    exchanges = asked == "exchange"
    if exchanges:
        ranks, gpus = int(rng.integers(3, 5)), 1
        late = int(rng.integers(ranks))
        faults = {"late": late, "slow": late, "unlike": None}
    form, card = ("pytorch", CARDS[0]) if exchanges or (asked and seed % 8) else (form, card)
    parallel = str(rng.choice(["", "data"])) if ranks == 1 and gpus > 1 else ""
    if ranks > 1 and form != "xla" and not exchanges and rng.random() < 0.3:
        parallel = "gloo"
    return KernelJob(
        seed=seed,
        form=form,
        ranks=ranks,
        gpus=gpus,
        parallel=parallel,
        reserved=tuple(float(each) for each in rng.choice([0.3, 0.89, 0.93, 0.97], gpus)) if form != "nsight" else (),
        operators=asked if form == "pytorch" and not exchanges else "",
        exchanges=exchanges,
        memory=str(np.random.default_rng([seed, 25]).choice(FAULTS)) if form == "pytorch" and not asked else "",
        card=card,
        group=bool(rng.random() < 0.5),
        **faults,
    )


@dataclass
class Loop:
    """Writes the events of a rank's loop of training; times are whole nanoseconds of the rank's own clock.

    ``gpu`` says when each GPU is free, ``sent`` when the last collective is over.
    """

    job: KernelJob
    rank: int
    events: list[Event] = field(default_factory=list)
    gpu: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    launched: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.job.seed, 21])  # the same of all ranks
        self.kernels = int(rng.choice([5, 40, 330] if self.job.ranks * self.job.gpus == 1 else [5, 40]))
        self.lasts = int(rng.choice([3, 30, 400])) * US
        self.usual = self.lasts
        self.between = int(rng.choice([0, 4, 60])) * US
        self.loads = int(rng.choice([0, 0, 300, 6_000])) * US
        self.syncs = int(rng.choice([0, 0, 1, 8]))
        self.copies = int(rng.choice([0, 0, 2, 20]))
        self.sends = int(rng.choice([0, 0, 400, 4_000])) * US
        self.reads = bool(rng.random() < 0.3)
        self.gemm = str(rng.choice([FP32, BF16]))
        self.copy = str(rng.choice([PAGEABLE, PINNED]))
        self.blocks = float(rng.choice([0.5, 1.5, 4.0]))
        self.slow = float(rng.choice([0.0, 0.1]))
        self.delay = int(rng.choice([0.3, 1.2]) * (self.kernels * (self.lasts + self.between) + 400 * US))
        self.steps = int(rng.integers(2, 15))
        if self.job.ranks > 1 and self.job.parallel != "gloo":
            self.sends = max(self.sends, 400 * US)
        elif self.job.parallel:
            self.sends = 0
        if self.rank == self.job.slow:
            self.lasts = int(1.6 * self.lasts)
        if self.rank == self.job.unlike:
            self.gemm, self.lasts = OTHER, 3 * self.lasts
        self._draw_operators(np.random.default_rng([self.job.seed, 28]))
        self.rng = np.random.default_rng([self.job.seed, 23, self.rank])
        self.host = (1_000 + 70 * self.rank) * US
        self.begins = self.host

    def _draw_operators(self, rng: np.random.Generator) -> None:
        """Draw shapes for which good kernels take about a part of the time that these do on an A100."""
        if self.job.operators:
            self.lasts = self.lasts * int(rng.choice([30, 400, 400])) * US // self.usual
        part = float(rng.choice([0.8, 0.8, 0.5, 0.2])) * self.lasts / 1e9
        rows, columns = SHAPES[int(rng.integers(len(SHAPES)))]
        if self.job.operators == "double":
            self.gemm = BF16
        rate = 0.75 * (312e12 if self.gemm == BF16 else 19.5e12)
        if self.job.operators == "layout":
            part = 0.8 * self.lasts / 1e9
        inner = max(8 * round(part * rate / (16.0 * rows * columns)), 8)
        self.shape: Dims = ((rows, inner), (inner, columns))
        wide = max(round(part * 0.85 * 1555e9 / (4 * 8192)), 1)
        self.elements: Dims = ((wide, 8192),)
        # Of fused experts memory reads the weights, in up to twice the time that they take.
        tokens, width = (
            int(rng.choice([16, 512])),
            round(float(rng.choice([0.5, 0.9, 1.6])) * self.lasts * 1555 / 49_152),
        )
        self.fused: Dims = ((tokens, 1024), (8, 2 * max(width, 1), 1024), (8, 1024, max(width, 1)), (tokens, 2))

    def operate(self, place: int, lasts: int, gpu: int) -> None:
        """Write an operator with the work that it starts."""
        start, kind, size = self.host, self.job.operators, "c10::BFloat16" if self.gemm == BF16 else "float"
        self.host += US
        inner = self.host
        self.host += US if kind == "math" and place % 4 < 2 else 0
        name, dims, kernel = "aten::mm", self.shape, self.gemm
        types: tuple[str, ...] = (size, size)
        strides: Dims = ()
        if kind == "chain" and place % 6:
            name, dims, types = ELEMENTS[place % len(ELEMENTS)], self.elements, ("c10::BFloat16",)
            kernel = SINGLE.format(name)
        elif kind == "double" and place % 7 == 0:
            kernel, types = FP64, ("double", "double")
        elif kind == "layout" and place % 3 == 0:
            name, dims, types, kernel = "aten::cudnn_convolution", (), (), TURNS
        elif kind == "copies" and place % 2:
            # The bytes need a third of the time.
            side = math.isqrt(lasts * 1555 // 12)
            name, dims, strides = COPIES, ((side, side), (side, side)), ((side, 1), (1, side))
            kernel, types = SINGLE.format("copy"), ("c10::BFloat16", "c10::BFloat16")
        elif kind == "groups":
            dims = ((GROUPS[place % len(GROUPS)], self.shape[0][1]), self.shape[1])
        elif kind == "experts":
            name, dims, kernel = EXPERTS, self.fused, BF16
            types = ("c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "float")
        self.launch(KERNEL, kernel, lasts, "cudaLaunchKernel", gpu)
        self.host += US
        event = Event(HOST, name, inner, self.host, is_operator=True, dims=dims, types=types, strides=strides)
        self.events.append(event)
        if kind == "math" and place % 4 < 2:
            self.host += US
            self.events.append(Event(HOST, MATH, start, self.host, is_operator=True))

    def launch(self, category: str, name: str, lasts: int, call: str, gpu: int = 0, **said: int) -> None:
        """Write a call that starts work of a GPU, and the work behind all that was started there before."""
        begins = max(self.gpu.get(gpu, 0), self.call(call) + int(self.rng.integers(1, 9)) * US)
        self._work(category, name, begins, begins + lasts, gpu, **said)
        self.gpu[gpu] = begins + lasts
        self.host += int(self.rng.integers(0, self.between // US + 1)) * US

    def call(self, name: str) -> int:
        """Write a call that starts work; return when it is over."""
        self.launched += 1
        self.events.append(Event(CALL, name, self.host, self.host + CALL_US * US, self.launched))
        self.host += CALL_US * US
        return self.host

    def read(self) -> None:
        """Write ``.item()``: a copy to pageable memory, for which its call waits."""
        self.launched += 1
        lasts, start = int(self.rng.integers(2, 9)) * US, self.host
        begins = max(self.gpu.get(0, 0), start + 2 * US)
        self._work(COPY, TO_HOST, begins, begins + lasts, 0, bytes=4)
        self.gpu[0] = begins + lasts
        self.host = begins + lasts + US
        self.events.append(Event(CALL, "cudaMemcpyAsync", start, self.host, self.launched))

    def _work(self, category: str, name: str, begins: int, ends: int, gpu: int, **said: int) -> None:
        blocks = self.blocks if category == KERNEL else math.nan
        sort, size = ("", "", 0), said.get("bytes", -1)
        if name == NCCL and self.job.exchanges:
            sort = ("all_to_allv", "0", self.job.ranks)
            size = 2 * int(self.rng.integers(900_000, 1_000_000)) * (2 if self.rank == self.job.late else 1)
        elif name == NCCL and self.job.group:
            sort = ("allreduce", "0", self.job.ranks)
        event = Event(category, name, begins, ends, self.launched, gpu, blocks, size, sort)
        self.events.append(event)

    def mark(self, name: str, start: int) -> None:
        """Write what the host has been in until now."""
        self.events.append(Event(HOST, name, start, self.host))

    def begin(self) -> int | None:
        """Write a step up to its collective; return when this could begin, None of a step without one."""
        self.begins = self.host
        if self.loads:
            start = self.host
            self.host += int(self.rng.integers(1, self.loads // US)) * US
            self.mark("IteratorGetNext" if self.job.form == "xla" else LOADER, start)
            self.host += int(self.rng.integers(0, 9)) * US
            self.mark("next batch", start)
        if self.reads:
            self.read()
        for _ in range(self.copies):
            self.launch(COPY, self.copy, int(self.rng.integers(5, 200)) * US, "cudaMemcpyAsync", bytes=100_000)
        if self.rank == self.job.late and self.rng.random() < 0.9:
            self.host += self.delay
        self.waits = set(self.rng.integers(0, self.kernels, self.syncs).tolist())
        self.forward = self.host
        self._compute(range(self.kernels // 2))
        if not self.sends:
            return None
        return max(self.gpu.get(0, 0), self.host + (CALL_US + int(self.rng.integers(1, 9))) * US) - self.begins

    def _compute(self, places: range) -> None:
        """Write kernels, on one GPU after the other: the last one has every third of its own alone."""
        for place in places:
            lasts, gpu = int(self.rng.integers(1, 2 * self.lasts // US)) * US, place % self.job.gpus
            if not gpu or gpu < self.job.gpus - 1 or not place % 3:
                if self.job.operators:
                    self.operate(place, lasts, gpu)
                else:
                    self.launch(KERNEL, self.gemm, lasts, "cudaLaunchKernel", gpu)
            if place in self.waits:
                self.wait("cudaStreamSynchronize")

    def end(self, number: int, until: int | None) -> None:
        """Write the rest of a step, its collective up to ``until``, in nanoseconds of the step."""
        if until is not None:
            self.call("cudaLaunchKernel")
            begins = max(self.gpu.get(0, 0), self.host)
            self.sent = self.begins + until
            self._work(KERNEL, NCCL, begins, self.sent, 0)
        self._compute(range(self.kernels // 2, self.kernels))
        if self.job.gpus > 1:
            self.launch(SET, "Memset (Device)", 1 * US, "cudaMemsetAsync", self.job.gpus, bytes=64)
        self.mark("forward and backward", self.forward)
        if self.job.parallel == "data":
            self.mark("DataParallel.forward", self.forward)
        if self.job.parallel == "gloo":
            self.mark("DistributedDataParallel.forward", self.forward)
            start = self.host
            self.host += int(self.rng.integers(100, 4_000)) * US
            self.mark("gloo:all_reduce", start)
        if self.rng.random() < self.slow:
            start = self.host
            self.host += 40_000 * US
            if self.rng.random() < 0.5:
                self.mark("checkpoint", start)
        self.wait("cudaDeviceSynchronize")
        self.mark(f"ProfilerStep#{number}", self.begins)
        self.host += int(self.rng.integers(0, 50)) * US

    def wait(self, call: str) -> None:
        """Write a call that waits until the GPUs are done."""
        until = max([self.host + 2 * US, self.sent, *self.gpu.values()])
        self.events.append(Event(CALL, call, self.host, until))
        self.host = until + int(self.rng.integers(1, 200)) * US


def write_kernels_job(seed: int, root: Path) -> Path:
    """Write the folder of a job of a seed with its kernel traces; return it."""
    job = drawn_kernels(seed)
    loops = [Loop(job, rank) for rank in range(job.ranks)]
    sending = np.random.default_rng([seed, 24])
    for number in range(loops[0].steps):
        # A collective ends on all ranks at once, when the last one has come; clocks differ, so times are of the step.
        comes = [loop.begin() for loop in loops]
        known = [each for each in comes if each is not None]
        until = max(known) + int(sending.integers(100, max(loops[0].sends // US, 101))) * US if known else None
        for loop in loops:
            loop.end(number, until)
    folder = root / f"kernels-{seed}"
    traces = folder / "kernel-traces"
    traces.mkdir(parents=True)
    (folder / "metrics.csv").write_text("step,loss\n0,2.0\n1,1.5\n")  # a job of kernel traces alone is none
    for loop in loops:
        WRITERS[job.form](job, loop.rank, loop.events, traces)
    return folder
