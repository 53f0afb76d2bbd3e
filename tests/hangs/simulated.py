"""Ranks that enter collectives as a training does, with a planted fault, and the dumps that they leave.

A rank enters operations up to ``AHEAD`` before they end; its device ends them in order, each when the devices of all
members have reached it. Nothing here is shared with what judges the dumps.
"""

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

AHEAD = 6
STEPS = 12


@dataclass(frozen=True, slots=True)
class Entered:
    """An operation: of a group, with what all members must agree on; ``peer`` for a transfer, by global rank."""

    group: str
    name: str
    numel: int
    peer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of ``ranks`` in a step. ``kind`` is one of KINDS."""

    kind: str
    ranks: tuple[int, ...]
    step: int


WITHOUT_DUMP = ("killed", "stopped", "out_of_memory")
HOST = ("lock", "slow_loader", "left_early")
PROGRAM = ("other_operation", "other_order", "other_shape", "other_group", "skipped")
KINDS = (*WITHOUT_DUMP, *HOST, *PROGRAM, "gpu")


@dataclass(slots=True)
class Job:
    """Ranks in a group of all, "0", and groups of ``tensor`` neighbours; with ``pipeline`` two halves send on."""

    world: int
    tensor: int = 2
    pipeline: bool = False
    fault: Fault | None = None
    broken_link: int | None = None
    host: dict[int, int] = field(default_factory=dict)
    device: dict[int, int] = field(default_factory=dict)

    def groups(self) -> dict[str, tuple[int, ...]]:
        parts = {
            str(1 + first // self.tensor): tuple(range(first, first + self.tensor))
            for first in range(0, self.world, self.tensor)
        }
        return {"0": tuple(range(self.world)), **parts}

    def program(self, rank: int) -> list[Entered]:
        own = str(1 + rank // self.tensor)
        half = self.world // 2
        entered: list[Entered] = []
        for step in range(STEPS):
            forward = [Entered(own, "_all_gather_base", 64), Entered(own, "_reduce_scatter_base", 64)]
            if self.pipeline:
                other = rank + half if rank < half else rank - half
                forward += [Entered("0", "send" if rank < half else "recv", 32, other)]
            backward = [Entered("0", "all_reduce", 100 * (layer + 1)) for layer in range(3)]
            entered += self._with_fault(rank, step, own, forward + backward)
        return entered

    def _with_fault(self, rank: int, step: int, own: str, entered: list[Entered]) -> list[Entered]:
        fault = self.fault
        if fault is None or rank not in fault.ranks or step != fault.step:
            return entered
        changed = {
            "other_operation": [*entered[:-1], Entered("0", "broadcast", 300)],
            "other_order": [*entered[:-3], *reversed(entered[-3:])],
            "other_shape": [*entered[:-1], Entered("0", "all_reduce", 7)],
            "other_group": [*entered[:-3], Entered(own, "all_reduce", 100), *entered[-3:]],
            "skipped": entered[:-1],
        }
        return changed.get(fault.kind, entered)

    def run(self) -> None:
        """Let all ranks go on until none can."""
        programs = {rank: self.program(rank) for rank in range(self.world)}
        ends = {rank: self._end(rank, programs[rank]) for rank in programs}
        self.host, self.device = dict.fromkeys(programs, 0), dict.fromkeys(programs, 0)
        moved = True
        while moved:
            moved = False
            for rank in programs:
                while self.host[rank] < min(ends[rank], self.device[rank] + AHEAD):
                    self.host[rank] += 1
                    moved = True
            for rank in programs:
                moved |= self._advance(rank, programs)

    def _end(self, rank: int, program: Sequence[Entered]) -> int:
        fault = self.fault
        if fault is None or rank not in fault.ranks or fault.kind in PROGRAM or fault.kind == "gpu":
            return len(program)
        return fault.step * (len(program) // STEPS)

    def _advance(self, rank: int, programs: dict[int, list[Entered]]) -> bool:
        at = self.device[rank]
        if at >= self.host[rank] or self._is_broken(rank, at, programs[rank]):
            return False
        own = programs[rank][at]
        others = (own.peer,) if own.peer is not None else self.groups()[own.group]
        if not all(self._reached(rank, other, programs) for other in others if other != rank):
            return False
        self.device[rank] += 1
        return True

    def _is_broken(self, rank: int, at: int, program: list[Entered]) -> bool:
        fault = self.fault
        if fault is not None and fault.kind == "gpu" and rank in fault.ranks:
            return at >= fault.step * (len(program) // STEPS)
        return self.broken_link is not None and program[at].group == "0" and at >= self.broken_link

    def _reached(self, rank: int, other: int, programs: dict[int, list[Entered]]) -> bool:
        """Say whether another device is in, or behind, the operation of ``rank``, and agrees with it."""
        own = programs[rank][self.device[rank]]
        count = sum(_is_like(each, own, rank, other) for each in programs[rank][: self.device[rank] + 1])
        there = min(self.device[other] + 1, self.host[other])
        alike = [each for each in programs[other][:there] if _is_like(each, own, other, rank)]
        if len(alike) < count:
            return False
        found = alike[count - 1]
        return own.peer is not None or (found.name, found.numel) == (own.name, own.numel)

    def write(self, folder: Path, *, as_json: bool, only_active: bool) -> None:
        """Write the dumps of all ranks that leave one."""
        silent = self.fault.ranks if self.fault is not None and self.fault.kind in WITHOUT_DUMP else ()
        for rank in set(range(self.world)) - set(silent):
            dump = self._dump(rank, only_active=only_active)
            data = json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=2)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)

    def _dump(self, rank: int, *, only_active: bool) -> dict[str, object]:
        groups = {name: ranks for name, ranks in self.groups().items() if rank in ranks}
        ids = {name: number for number, name in enumerate(groups)}
        counts: Counter[tuple[str, bool]] = Counter()
        status: dict[str, dict[str, int]] = {}
        entries = []
        for order, each in enumerate(self.program(rank)[: self.host[rank]]):
            counts[each.group, each.peer is not None] += 1
            sequence = counts[each.group, each.peer is not None]
            is_over, size = order < self.device[rank], len(groups[each.group])
            if each.peer is None:
                held = status.setdefault(str(ids[each.group]), {"last_completed_collective": 0})
                held["last_enqueued_collective"] = sequence
                held["last_completed_collective"] = sequence if is_over else held["last_completed_collective"]
            if is_over and only_active:
                continue
            arrow = "->" if each.name == "send" else "<-"
            name = each.name if each.peer is None else f"{each.name} {rank}{arrow}{each.peer}"
            entries.append(
                {
                    "record_id": order,
                    "pg_id": ids[each.group],
                    "process_group": (each.group, "default_pg" if each.group == "0" else "TENSOR"),
                    "collective_seq_id": 0 if each.peer is not None else sequence,
                    "p2p_seq_id": sequence if each.peer is not None else 0,
                    "is_p2p": each.peer is not None,
                    "profiling_name": f"nccl:{name}",
                    "state": "completed" if is_over else "scheduled",
                    "retired": is_over,
                    "input_sizes": [[each.numel * (size if each.name == "_reduce_scatter_base" else 1)]],
                    "output_sizes": [[each.numel * (size if each.name == "_all_gather_base" else 1)]],
                    "input_dtypes": ["Float"],
                    "output_dtypes": ["Float"],
                    "op_id": order,
                    "timeout_ms": 600_000,
                    "time_created_ns": 1_000_000 * order,
                    "frames": [{"name": "step", "filename": "/job/train.py", "line": 40 + len(each.name)}],
                }
            )
        config = {
            name: {"name": name, "desc": "default_pg" if name == "0" else "TENSOR", "ranks": str(list(ranks))}
            for name, ranks in groups.items()
        }
        return {"version": "2.10", "pg_config": config, "pg_status": status, "entries": entries}


def _is_like(each: Entered, own: Entered, of: int, to: int) -> bool:
    """Say whether an operation takes the same place in its group, or is a transfer between the same two ranks."""
    del of
    if own.peer is None:
        return each.peer is None and each.group == own.group
    return each.peer == to
