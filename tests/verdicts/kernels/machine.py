"""A machine that runs planned steps: a host that launches, a GPU that works, and what a profiler sees of it.

Times are microseconds. Nothing here shares code with the product: what a kernel needs is reckoned from data sheets.
"""

import json
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.kernel_traces import TraceWriter

# Streams of the first GPU.
COMPUTE, COMMUNICATION, COPIES = 7, 20, 21

# What its streams' numbers are higher by.
SECOND_GPU = 100

# Time of a launching call, and from its end to an idle GPU's start.
LAUNCH, LATENCY = 4.0, 3.0


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet; ``gemm``, ``attention`` and ``memory`` are what good kernels reach of it."""

    name: str
    gib: int
    capability: tuple[int, int]
    sms: int
    tflops: float
    fp32: float
    gb_per_s: float
    scale: int
    gemm: float = 0.66
    attention: float = 0.55
    memory: float = 0.82

    @property
    def properties(self) -> dict[str, Any]:
        major, minor = self.capability
        said = {"id": 0, "name": self.name, "totalGlobalMem": self.gib << 30, "numSms": self.sms}
        return said | {"computeMajor": major, "computeMinor": minor}

    @property
    def is_amd(self) -> bool:
        return self.name.startswith("AMD")


GPUS = {
    "H100": Gpu("NVIDIA H100 80GB HBM3", 80, (9, 0), 132, 989, 67, 3350, 8),
    "A100": Gpu("NVIDIA A100-SXM4-80GB", 80, (8, 0), 108, 312, 19.5, 2039, 4),
    "H200": Gpu("NVIDIA H200", 141, (9, 0), 132, 989, 67, 4800, 8),
    "MI300X": Gpu("AMD Instinct MI300X", 192, (9, 4), 304, 1307, 163, 5300, 8, gemm=0.5, attention=0.42, memory=0.78),
    "L4": Gpu("NVIDIA L4", 24, (8, 9), 58, 121, 30.3, 300, 1),
}


@dataclass(frozen=True)
class Work:
    """What one launch starts on the GPU."""

    name: str
    us: float
    category: str = "kernel"
    stream: int = COMPUTE
    blocks: float = 4.0
    bytes: int = 0
    call: str = "cudaLaunchKernel"
    # Whether the call returns when the work is done.
    waits: bool = False

    collective: str = ""
    # What a collective sends and gets.
    elements: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Op:
    """What the host does: an operator or an annotation with its launches, and what is within.

    ``host`` is the time before the launches and ``after`` behind them; a ``bare`` one leaves no row. ``sync`` is a call
    at the end that waits for the GPU, and ``joins`` lets the stream of computation wait for communication.
    """

    name: str
    works: tuple[Work, ...] = ()
    shapes: tuple[Any, ...] = ()
    values: tuple[tuple[int, str], ...] = ()
    types: tuple[str, ...] = ()
    host: float = 6.0
    after: float = 0.0
    sync: str = ""
    category: str = "cpu_op"
    inside: tuple["Op", ...] = ()
    joins: bool = False

    @property
    def us(self) -> float:
        """Time on the GPU, without communication."""
        own = sum(work.us for work in self.works if work.stream == COMPUTE)
        return own + sum(op.us for op in self.inside)


Steps = Sequence[Sequence[Op]]


@dataclass(frozen=True)
class Job:
    """A training as it is planned: the steps of each rank, and how much its times vary."""

    gpu: Gpu
    ranks: tuple[Steps, ...]
    seed: int = 0
    jitter: float = 0.01
    backend: str = "nccl"
    # How much slower each rank computes; empty where all are alike.
    clocks: tuple[float, ...] = ()

    # Events of the allocator with ``step`` and ``at``, a share of it.
    memory: tuple[dict[str, Any], ...] = ()

    # Share of the GPU's rows that the profiler lost.
    lost: float = 0.0

    # Share of the launching calls that the profiler lost.
    unlaunched: float = 0.0

    # Share of the file that is missing at its end.
    cut: float = 0.0

    def every(self, change: Any) -> "Job":
        """Return the job with each step of each rank changed."""
        return replace(self, ranks=tuple([change(list(step)) for step in steps] for steps in self.ranks))

    @property
    def step_us(self) -> float:
        return sum(op.us for op in self.ranks[0][0])


@dataclass(frozen=True)
class Recording:
    """What a profiler saw of a rank: events as PyTorch writes them, in order of time."""

    job: Job
    rank: int
    events: list[dict[str, Any]]

    def whole(self, text: bytes) -> bytes:
        """Return what is left of a file."""
        return text[: round(len(text) * (1 - self.job.cut))]

    def in_pytorch(self) -> bytes:
        job = self.job
        made = TraceWriter(rank=self.rank, gpus=[job.gpu.properties, {**job.gpu.properties, "id": 1}])
        made.events = self.events
        document = made.document()
        document["distributedInfo"] |= {"backend": job.backend, "world_size": len(job.ranks)}
        return self.whole(json.dumps(document).encode())


def traces(job: Job) -> list[bytes]:
    """Return the text of each rank's trace as PyTorch writes it."""
    return [each.in_pytorch() for each in recordings(job)]


def recordings(job: Job) -> list[Recording]:
    """Run each rank; ranks meet in collectives."""
    ranks = [_Rank(job, number) for number in range(len(job.ranks))]
    runs = [rank.run() for rank in ranks]
    waiting = [next(run, None) for run in runs]
    while all(start is not None for start in waiting):
        last = max(start for start in waiting if start is not None)
        waiting = [_resumed(run, last) for run in runs]
    return [rank.recording() for rank in ranks]


def _resumed(run: Generator[float, float, None], start: float) -> float | None:
    try:
        return run.send(start)
    except StopIteration:
        return None


class _Rank:
    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.made = TraceWriter(rank=number)
        self.random = random.Random(f"{job.seed} {number}")
        self.pace = random.Random(job.seed)
        self.now = 50.0 + self.random.random() * 5
        self.free: dict[int, float] = {}
        self.ids = 0
        self.slower = job.clocks[number] if job.clocks else 1.0

    def run(self) -> Generator[float, float, None]:
        starts = []
        for number, step in enumerate(self.job.ranks[self.number]):
            begin = self.now
            for op in step:
                yield from self._op(op)
            self.made.step(number, begin, self.now - begin)
            starts.append((begin, self.now - begin))
        self._remember(starts)

    def _remember(self, starts: list[tuple[float, float]]) -> None:
        for event in self.job.memory:
            begin, lasts = starts[event["step"]]
            row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1}
            self.made.events.append({**row, "ts": begin + lasts * event["at"], "args": event["args"]})

    def _op(self, op: Op) -> Generator[float, float, None]:
        begin = self.now
        self.ids += 1
        mine = self.ids
        self.now += op.host * self._varied()
        if op.joins:
            self.free[COMPUTE] = max(self.free.get(COMPUTE, 0.0), self.free.get(COMMUNICATION, 0.0))
        for work in op.works:
            yield from self._work(work, mine)
        for other in op.inside:
            yield from self._op(other)
        if op.sync:
            ends = max([self.now + 4, *self.free.values()])
            self.made.event(
                "cuda_runtime", self._called(op.sync), self.now, ends - self.now, args={"External id": mine}
            )
            self.now = ends
        self.now += op.after * self._varied()
        if op.name:
            args = {"External id": mine} | ({} if not op.shapes else self._inputs(op))
            args = args if op.category == "cpu_op" else {}
            self.made.event(op.category, op.name, begin, self.now - begin, args=args)

    def _inputs(self, op: Op) -> dict[str, Any]:
        values = dict(op.values)
        types = [*op.types] or ["c10::BFloat16" if shape else "" for shape in op.shapes]
        types += [""] * (len(op.shapes) - len(types))
        said = {"Input Dims": [*op.shapes], "Input type": types}
        return said | {"Concrete Inputs": [values.get(place, "") for place in range(len(op.shapes))]}

    def _work(self, work: Work, mine: int) -> Generator[float, float, None]:
        made = self.made
        made.launched += 1
        ids = {"correlation": made.launched, "External id": mine}
        called, launched = self.now, self.now + LAUNCH
        start = max(launched + (LATENCY if not self.job.gpu.is_amd else 9.0), self.free.get(work.stream, 0.0))
        lasts = work.us * (1 + self.job.jitter * (2 * self.random.random() - 1))
        if work.stream % SECOND_GPU == COMPUTE:
            lasts *= self.slower
        if work.collective:
            start = max(start, self.free.get(COMPUTE, 0.0))
            last = yield start
            lasts += last - start
        self.free[work.stream] = start + lasts
        self.now = max(start + lasts + 5, launched) if work.waits else launched
        made.event("cuda_runtime", self._called(work.call), called, self.now - called, args=ids)
        gpu, stream = divmod(work.stream, SECOND_GPU)
        said: dict[str, Any] = {"device": gpu, "stream": stream, "blocks per SM": work.blocks}
        said |= {"bytes": work.bytes} if work.bytes else {}
        said |= {"Collective name": work.collective, "dtype": "BFloat16"} if work.collective else {}
        if any(work.elements):
            said |= {"In msg nelems": work.elements[0], "Out msg nelems": work.elements[1]}
        made.event(work.category, work.name, start, lasts, args=ids | said)

    def _varied(self) -> float:
        return 1 + 0.1 * (2 * self.pace.random() - 1)

    def _called(self, call: str) -> str:
        return call.replace("cuda", "hip").replace("KernelExC", "Kernel") if self.job.gpu.is_amd else call

    def recording(self) -> Recording:
        kept = [each for each in self.made.events if not self._is_lost(each)]
        return Recording(self.job, self.number, sorted(kept, key=lambda each: each["ts"]))

    def _is_lost(self, event: dict[str, Any]) -> bool:
        shares = {"kernel": self.job.lost, "cuda_runtime": self.job.unlaunched}
        share = shares.get(event.get("cat", ""), 0.0)
        return share > 0 and self.random.random() < share
