"""Small trainings of gloo ranks under the recorder, with planted sleeps."""

import gzip
import os
import random
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder

WAIT_S = 120.0
# Of each training, cut into parts: what differs by chance differs otherwise in the next.
PARTS, STEPS = 3, 66
PLACES = ("forward", "backward", "optimizer", "data_wait", "other")
WAYS = ("ddp", "fsdp", "by_hand")
BALANCED = ("even", "jitter", "turns", "checkpoints", "pauses")


@dataclass(frozen=True, slots=True)
class Training:
    """``rank`` sleeps ``late_ms`` in a ``place`` of each step; of balanced ones ``place`` is one of BALANCED."""

    place: str
    way: str
    world: int
    rank: int
    late_ms: int
    work_ms: int
    seed: int
    steps: int = STEPS

    @property
    def is_balanced(self) -> bool:
        return self.place in BALANCED

    @property
    def name(self) -> str:
        return f"{self.place}-{self.way}-{self.world}-rank{self.rank}-{self.late_ms}ms-of-{self.work_ms}ms"


def drawn(seed: int, count: int, kinds: Sequence[str] = (*PLACES, *BALANCED)) -> list[Training]:
    """Return trainings of the kinds in turn: small and quick, so that many are tried."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        place, way, world = kinds[number % len(kinds)], chance.choice(WAYS), chance.randint(2, 4)
        work_ms = chance.choice([20, 30, 40])
        late_ms = round(work_ms * chance.uniform(0.8, 2.0))
        found.append(Training(place, way, world, chance.randrange(world), late_ms, work_ms, chance.randrange(10**6)))
    return found


class _Slept:
    """How long this process has slept: on a busy machine a sleep lasts longer than it was asked to."""

    seconds = 0.0

    def __call__(self, seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        self.seconds += time.perf_counter() - began


_sleep = _Slept()


class _Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        _sleep(ctx.seconds)
        return gradients[0], None


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
        self.register_buffer("counted", torch.zeros(1))  # DDP sends it from rank 0 before each forward pass
        self.forward_s = self.backward_s = 0.0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        _sleep(self.forward_s)
        middle: torch.Tensor = _Sleeps.apply(self.first(values), self.backward_s)  # type: ignore[no-untyped-call]
        found: torch.Tensor = self.last(torch.relu(middle))
        return found


class _Sgd(torch.optim.SGD):
    seconds = 0.0

    def step(self, closure: Any = None) -> Any:
        _sleep(self.seconds)
        return super().step(closure)


class _Rank:
    """One rank: where it sleeps, step by step."""

    def __init__(self, training: Training, rank: int) -> None:
        self._training, self._rank = training, rank
        self._chance = random.Random(training.seed)
        self.extra = dict.fromkeys((*PLACES, "checkpoint", "evaluation"), 0.0)

    def plan(self, step: int) -> None:
        training = self._training
        turn, spread = self._chance.randrange(training.world), self._chance.random()
        own = random.Random(hash((training.seed, self._rank, step))).random()
        late = training.late_ms / 1e3
        self.extra = dict.fromkeys(self.extra, 0.0)
        if training.place in PLACES and self._rank == training.rank:
            self.extra[training.place] = late
        elif training.place == "jitter":
            self.extra["forward"], self.extra["backward"] = late * spread, 0.3 * late * own
        elif training.place == "turns" and self._rank == turn:
            self.extra["forward"] = late
        elif training.place == "checkpoints" and self._rank == 0 and step % 10 == 9:
            self.extra["checkpoint"] = 3.0 * late
        elif training.place == "pauses" and self._rank == training.rank and step == training.steps // 2:
            self.extra["other"] = 10.0 * late

    def batches(self) -> Iterator[torch.Tensor]:
        for step in range(self._training.steps):
            self.plan(step)
            _sleep(0.002 + self.extra["data_wait"])
            yield torch.randn(4, 8)


def run(trainings: Sequence[Training], folder: Path) -> Iterator[tuple[dict[tuple[str, str], bytes], float]]:
    """Run trainings of one number of ranks; yield what each has recorded, by node and process, and its lateness.

    That is by how many milliseconds of a step its ``rank`` slept longer than the median of the others. The ranks are
    started once: a start takes longer than a training.
    """
    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401 - slow to import: not once in each rank

    context = get_context("fork")
    world = trainings[0].world
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [context.Process(target=_rank, args=(trainings, rank, folder, port), daemon=True) for rank in range(world)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(WAIT_S * (2 + len(trainings)))
        if each.exitcode != 0:
            raise RuntimeError(f"{trainings[0].name} and {len(trainings) - 1} more: a rank ended with {each.exitcode}")
    for number, training in enumerate(trainings):
        slept = [float(_slept_file(folder, number, rank).read_text("ascii")) for rank in range(world)]
        late_s = slept.pop(training.rank) - statistics.median(slept)
        files = timelines(folder, f"run-{number}", sorted({node_of(rank) for rank in range(world)}))
        yield files, 1e3 * late_s / training.steps


def _slept_file(folder: Path, number: int, rank: int) -> Path:
    return folder / f"slept-{number}-{rank}.txt"


def _rank(trainings: Sequence[Training], rank: int, folder: Path, port: int) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
        RANK=str(rank),
        WORLD_SIZE=str(trainings[0].world),
        TRAINGUARD_OUTPUT=str(folder / "output"),
        TRAINGUARD_SPOOL=str(folder / "spool"),
        TRAINGUARD_NODE=node_of(rank),
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=trainings[0].world)
    for number, training in enumerate(trainings):
        recorder = Recorder(job=f"run-{number}", with_sampler=False)
        _sleep.seconds = 0.0
        _train(training, rank, recorder)
        recorder.close()
        _slept_file(folder, number, rank).write_text(str(_sleep.seconds), "ascii")
        if recorder.faults.newest:
            os._exit(1)
        dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


def _train(training: Training, rank: int, recorder: Recorder) -> None:
    plain = _Model()
    model: nn.Module = plain
    if training.way == "ddp":
        model = nn.parallel.DistributedDataParallel(plain, bucket_cap_mb=1e-5)  # type: ignore[arg-type]
    elif training.way == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(plain, mesh=init_device_mesh("cpu", (training.world,)))
    optimizer = _Sgd(model.parameters(), lr=0.01)
    recorder.attach(model)
    sleeps = _Rank(training, rank)
    for batch in recorder.wrap(sleeps.batches()):
        extra = sleeps.extra
        with recorder.step():
            plain.forward_s = 0.4 * training.work_ms / 1e3 + extra["forward"]
            plain.backward_s = 0.5 * training.work_ms / 1e3 + extra["backward"]
            optimizer.seconds = 0.1 * training.work_ms / 1e3 + extra["optimizer"]
            model(batch).square().mean().backward()
            if training.way == "by_hand":
                for each in model.parameters():
                    dist.all_reduce(each.grad)
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(extra["other"])
        if extra["checkpoint"]:
            with recorder.phase("checkpoint"):
                time.sleep(extra["checkpoint"])


def node_of(rank: int) -> str:
    return f"node-{rank // 4}"


def timelines(folder: Path, job: str, nodes: list[str]) -> dict[tuple[str, str], bytes]:
    """Return what the processes of nodes have recorded of a job, by node and process."""
    files = {}
    for node in nodes:
        outgoing = Outgoing(objects_folder(str(folder / "spool"), job, node), job, node)
        outgoing.prepare(final=True)
        for key, path in outgoing.ready():
            if key.endswith("_pythontimeline.json"):
                process = key.rpartition("/")[2].split("_")[1].partition("-")[0]
                files[node, process] = gzip.decompress(path.read_bytes())
    return files
