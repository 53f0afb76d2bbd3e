"""Trainings of several gloo ranks that stand still by a planted fault, with the dumps and stacks that they leave."""

import faulthandler
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist

# Without progress for so long a rank writes its dump.
QUIET_S = 2.5

WAIT_S = 60.0
STEPS = 40


@dataclass(frozen=True, slots=True)
class Hang:
    """A fault of ``ranks`` in a step; ``kind`` is a key of FAULTS."""

    kind: str
    world: int
    ranks: tuple[int, ...]
    step: int
    layers: int
    as_json: bool
    with_stacks: bool

    @property
    def name(self) -> str:
        form = "json" if self.as_json else "pickle"
        return f"{self.kind}-{self.world}-{'_'.join(map(str, self.ranks))}-step{self.step}-{form}"


class _LeftError(Exception):
    """The rank ends its loop."""


def _sleep() -> None:
    time.sleep(1_000)


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _slow_loader() -> None:
    read, _write = os.pipe()
    os.read(read, 1)


def _out_of_memory() -> None:
    raise MemoryError("DefaultCPUAllocator: not enough memory")


def _left_early() -> None:
    raise _LeftError


FAULTS: dict[str, Callable[[], None]] = {
    "killed": _killed,
    "stopped": _stopped,
    "lock": _lock,
    "slow_loader": _slow_loader,
    "out_of_memory": _out_of_memory,
    "left_early": _left_early,
    "busy_host": _sleep,
}
IN_THE_STEP = ("other_operation", "other_order", "other_shape", "other_group", "skipped_operation")
KINDS = (*FAULTS, *IN_THE_STEP)


def drawn(seed: int, count: int) -> list[Hang]:
    """Return hangs of all kinds in turn."""
    chance = random.Random(seed)
    hangs = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        world = chance.randint(4, 8)
        several = kind in {"lock", "slow_loader", "busy_host", "stopped"} and chance.random() < 0.3
        ranks = tuple(sorted(chance.sample(range(world), 2 if several else 1)))
        hangs.append(
            Hang(
                kind,
                world,
                ranks,
                chance.randint(2, 9),
                chance.randint(1, 4),
                chance.random() < 0.5,
                chance.random() < 0.5,
            )
        )
    return hangs


def run(hang: Hang, folder: Path) -> None:
    """Run the ranks until they have stood still and left their dumps in ``folder``."""
    context = get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [context.Process(target=_rank, args=(hang, rank, folder, port), daemon=True) for rank in range(hang.world)]
    for each in ranks:
        each.start()
    deadline = time.monotonic() + WAIT_S
    silent = set(hang.ranks) if hang.kind in {"killed", "stopped"} else set()
    while time.monotonic() < deadline and not _all_left(hang, folder, ranks, silent):
        time.sleep(0.1)
    for each in ranks:
        each.kill()
        each.join()


def _all_left(hang: Hang, folder: Path, ranks: list[BaseProcess], silent: set[int]) -> bool:
    expected = {rank for rank, each in enumerate(ranks) if rank not in silent and each.is_alive()}
    return all((folder / f"done_{rank}").exists() for rank in expected) and bool(expected)


class _Watch(threading.Thread):
    """Writes a rank's dump and stack once it makes no progress."""

    def __init__(self, hang: Hang, rank: int, folder: Path) -> None:
        super().__init__(daemon=True, name="watch")
        self.progress = 0
        self._hang, self._rank, self._folder = hang, rank, folder

    def run(self) -> None:
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            time.sleep(0.05)
            if self.progress != seen:
                seen, since = self.progress, time.monotonic()
        self.write()

    def write(self) -> None:
        if (self._folder / f"done_{self._rank}").exists():
            return
        c10d = torch._C._distributed_c10d
        if self._hang.as_json:
            data = c10d._dump_fr_trace_json(True, False)
            data = data.encode() if isinstance(data, str) else data
        else:
            data = c10d._dump_fr_trace(True, False, False)
        (self._folder / f"trace_rank_{self._rank}").write_bytes(data)
        if self._hang.with_stacks:
            with (self._folder / f"stack_{self._rank}.txt").open("w") as file:
                faulthandler.dump_traceback(file=file, all_threads=True)
        (self._folder / f"done_{self._rank}").touch()


def _rank(hang: Hang, rank: int, folder: Path, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_FR_BUFFER_SIZE="2000")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    watch = _Watch(hang, rank, folder)
    dist.init_process_group("gloo", rank=rank, world_size=hang.world)
    halves = [list(range(0, hang.world, 2)), list(range(1, hang.world, 2))]
    groups = [dist.new_group(half) for half in halves]
    watch.start()
    try:
        for step in range(STEPS):
            _step(hang, rank, step, groups[rank % 2], watch)
    except (_LeftError, MemoryError):
        # After a fault as in a handler that reports it, and then never ends.
        watch.join()
    except RuntimeError as fault:
        # Another rank has closed its connections.
        (folder / f"error_{rank}.log").write_text(str(fault))
        watch.write()
    _sleep()


def _step(hang: Hang, rank: int, step: int, half: dist.ProcessGroup, watch: _Watch) -> None:
    is_faulty = step == hang.step and rank in hang.ranks
    if is_faulty and hang.kind in FAULTS:
        FAULTS[hang.kind]()
    gradients = [torch.ones(64 * (layer + 1)) for layer in range(hang.layers + 1)]
    if is_faulty and hang.kind == "other_group":
        dist.all_reduce(torch.ones(8), group=half)
    if is_faulty and hang.kind == "other_operation":
        dist.broadcast(gradients[0], src=0)
    if is_faulty and hang.kind == "other_order":
        gradients.reverse()
    if is_faulty and hang.kind == "other_shape":
        gradients[0] = torch.ones(9_999)
    if is_faulty and hang.kind == "skipped_operation":
        gradients.pop()
    for gradient in gradients:
        dist.all_reduce(gradient)
        watch.progress += 1
    gathered = [torch.ones(4) for _ in range(dist.get_world_size(half))]
    dist.all_gather(gathered, torch.ones(4), group=half)
    watch.progress += 1
