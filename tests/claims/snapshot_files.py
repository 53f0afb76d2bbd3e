"""Snapshots of the allocator, drawn at random, and the checker's own reader of them, which loads no pickle."""

import gzip
import os
import pickletools
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.memory_snapshots import FORWARD, MIB, SETUP, Allocator, Training, frame, pickled

FAULTS = ("", "leak", "short leak", "full", "full with a leak", "parts")
WRITTEN_AT = 1_795_000_000
DAMAGED = b"\x80\x04cbuiltins\nlist\n."


@dataclass(frozen=True)
class Drawn:
    """The snapshots of a job: what is wrong with each rank's, and the rank whose file is damaged; -1 for none."""

    faults: tuple[str, ...]
    damaged: int
    seed: int


def drawn_snapshots(seed: int) -> Drawn:
    rng = np.random.default_rng([seed, 41])
    ranks = int(rng.integers(1, 4))
    faults = tuple(str(each) for each in rng.choice(FAULTS, ranks))
    return Drawn(faults, int(rng.integers(ranks)) if ranks > 1 and rng.random() < 0.3 else -1, seed)


def write_snapshots_job(seed: int, root: Path) -> Path:
    """Write the folder of a job with a snapshot a rank, and an older one of the first rank; return it."""
    job = drawn_snapshots(seed)
    folder = root / f"snapshots-{seed}"
    place = folder / "kernel-traces"
    (place / "iteration_1").mkdir(parents=True)
    (folder / "metrics.csv").write_text("step,loss\n0,2.0\n1,1.5\n")
    _write(place / "iteration_1" / "rank0_memory_snapshot.pickle", DAMAGED, WRITTEN_AT - 900)
    for rank, fault in enumerate(job.faults):
        rng = np.random.default_rng([seed, 42, rank])
        body = pickled(_snapshot(fault, rng), int(rng.choice([0, 2, 4])))
        packed = bool(rng.random() < 0.3)
        name = f"rank{rank}_memory_snapshot.pickle" + ".gz" * packed
        body = DAMAGED if rank == job.damaged else body
        _write(place / name, gzip.compress(body) if packed else body, WRITTEN_AT + rank)
    return folder


def _write(file: Path, body: bytes, at: int) -> None:
    file.write_bytes(body)
    os.utime(file, (at, at))


def _snapshot(fault: str, rng: np.random.Generator) -> dict[str, Any]:
    if fault == "parts":
        return _in_parts(rng)
    training = Training(layers=int(rng.integers(1, 5)), state=int(rng.integers(0, 3)))
    training.parameters, training.activations, training.workspace = (int(each) for each in rng.integers(1, 30, 3))
    training.logits = int(rng.integers(0, 3)) * 40
    training.leak = int(rng.integers(2, 9)) if "leak" in fault else 0
    if fault.startswith("full"):
        need = training.layers * (training.parameters * (2 + training.state) + training.activations) + training.logits
        training.allocator.limit = int(need * float(rng.uniform(0.5, 1.1)) + 40) * MIB
    with suppress(MemoryError):
        training.setup()
        training.run(int(rng.integers(7, 10)) if fault == "short leak" else int(rng.integers(12, 30)))
    version = str(rng.choice(["2.0", "2.12"]))
    return training.allocator.snapshot(version)


def _in_parts(rng: np.random.Generator) -> dict[str, Any]:
    """Free every other block, and fail in what is free."""
    count, size = int(rng.integers(10, 40)) * 2, int(rng.integers(3, 9))
    allocator = Allocator(limit=count * 20 * MIB)
    held = [allocator.alloc(size * MIB, FORWARD if place % 2 else SETUP) for place in range(count)]
    allocator.limit = allocator.reserved
    for address in held[1::2]:
        allocator.free(address)
    wanted = int(rng.integers(22, count * size))
    with suppress(MemoryError):
        allocator.alloc(wanted * MIB, [frame("/app/model.py", 5, "wide")])
    return allocator.snapshot()


def read_values(file: Path) -> Any:
    """Return what a pickle of plain values holds; raises ValueError for any other."""
    body = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(body):
        _apply(opcode.name, argument, stack, memo)
    return stack[-1]


_MARK = object()
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_VALUES = frozenset(
    {"INT", "LONG", "LONG1", "BININT", "BININT1", "BININT2", "BINFLOAT", "FLOAT", "UNICODE", "BINUNICODE"}
    | {"SHORT_BINUNICODE", "BINUNICODE8"}
)


def _apply(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _VALUES:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name in _TUPLES:
        count = _TUPLES[name]
        stack[-count:] = [tuple(stack[-count:])]
    elif name in {"PUT", "BINPUT", "LONG_BINPUT"}:
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in {"GET", "BINGET", "LONG_BINGET"}:
        stack.append(memo[argument])
    elif name not in {"PROTO", "FRAME", "STOP"}:
        _gather(name, stack)


def _gather(name: str, stack: list[Any]) -> None:
    """Apply an opcode that puts values into a container, or marks where they begin."""
    if name == "MARK":
        stack.append(_MARK)
        return
    count = {"APPEND": 1, "SETITEM": 2}.get(name)
    begin = len(stack) - count if count else len(stack) - 1 - stack[::-1].index(_MARK)
    values = stack[begin + (not count) :]
    del stack[begin:]
    if name in {"LIST", "TUPLE", "DICT"}:
        made = {"LIST": list, "TUPLE": tuple}.get(name)
        stack.append(made(values) if made else dict(zip(values[::2], values[1::2], strict=True)))
    elif name in {"APPEND", "APPENDS"}:
        stack[-1].extend(values)
    elif name in {"SETITEM", "SETITEMS"}:
        stack[-1].update(zip(values[::2], values[1::2], strict=True))
    else:
        raise ValueError(f"opcode {name}, expected one of plain values")
