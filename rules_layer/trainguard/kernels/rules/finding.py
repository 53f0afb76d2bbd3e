"""A finding of a kernel profile: what is wrong, how much, where, what it costs at most, and its evidence."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from msgspec.structs import replace

from trainguard.core.finding import Severity
from trainguard.core.text import one_line
from trainguard.kernels.columns import Bools, Ints, Rows, Trace
from trainguard.kernels.entries import Evidence, Gain, KernelFinding
from trainguard.kernels.memory.entries import GpuMemory
from trainguard.kernels.memory.events import histories_of
from trainguard.kernels.memory.history import memory_entry
from trainguard.kernels.operators import Called, operators_of
from trainguard.kernels.ranking import place_of
from trainguard.kernels.times.gpu_times import TraceGpuTime, until_launched
from trainguard.kernels.times.intervals import Spans, clipped, difference, gaps, merged, union
from trainguard.kernels.times.metrics import RankMetrics
from trainguard.kernels.work import KernelLine, exact_sum, kernel_lines

SHOWN = 5
FAMILY = "kernels/"
FEW_STEPS = 3
# What could win less than that of the window is of low severity, whatever its value.
SMALL_GAIN = 0.01


def time_of(lines: Iterable[KernelLine]) -> int:
    return sum(line.total_ns for line in lines)


class JudgedRank(RankMetrics):
    @cached_property
    def kernels(self) -> list[KernelLine]:
        return kernel_lines(self)

    @cached_property
    def memory(self) -> list[GpuMemory]:
        return [memory_entry(each) for each in histories_of(self.trace, self.window.steps.start)]

    @cached_property
    def operators(self) -> list[Called]:
        return operators_of(self, self.kernels)

    @property
    def has_gpu(self) -> bool:
        return bool(self.in_window.any())

    @property
    def compute(self) -> list[KernelLine]:
        return [line for line in self.kernels if not line.communication]

    @property
    def computing_ns(self) -> int:
        return time_of(self.compute)

    @property
    def tensor_core_ns(self) -> int:
        return time_of(line for line in self.compute if line.tensor_core)

    @property
    def eligible_ns(self) -> int:
        return time_of(line for line in self.compute if line.eligible)

    def by_precision(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for line in self.compute:
            sums[line.precision] = sums.get(line.precision, 0) + line.total_ns
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def steps(self) -> int:
        return max(len(self.window.steps), 1)

    @cached_property
    def communicating(self) -> Spans:
        every = [gpu.communication for gpu in self.gpus]
        return union(*every) if every else self.busy

    @cached_property
    def gaps(self) -> Spans:
        """When no GPU works, and none does work that the trace lost."""
        idle = gaps(self.busy, self.window.start, self.window.end)
        return difference(idle, union(*(gpu.unknown for gpu in self.gpus))) if self.gpus else idle

    @cached_property
    def unlaunched_gaps(self) -> Spans:
        """These gaps up to the launch of the next work; whole, where nothing says when that was."""
        every = np.ones(len(self.trace.gpu), dtype=np.bool_)
        return union(*until_launched(self.trace, self.window, every, self.gaps, self.waiting_calls))

    @property
    def capability(self) -> tuple[int, int]:
        """The highest compute capability of the rank's GPUs; (0, 0) where the trace says none."""
        return max((gpu.capability for gpu in self.trace.gpus), default=(0, 0))

    @property
    def is_amd(self) -> bool:
        """Whether the runtime is HIP, which launches more slowly than CUDA."""
        calls = np.bincount(self.trace.launches.name, minlength=len(self.trace.names)).tolist()
        return any(count and name.startswith("hip") for name, count in zip(self.trace.names, calls, strict=True))

    def step_at(self, time: int) -> int | None:
        steps = self.window.steps
        inside = (steps.start <= time) & (time < steps.end)
        return int(steps.number[inside][0]) if inside.any() else None

    def gain(self, total_ns: float) -> Gain:
        """Return the most that can be won where so much of the window goes away."""
        return Gain(ns_per_step=round(total_ns / self.steps), share=round(self.share(total_ns), 4))

    def runs(self, what: str, rows: Ints) -> Evidence:
        gpu = self.trace.gpu
        found = self.several(what, gpu.start[rows], gpu.end[rows])
        step = int(self.window.step[rows[int((gpu.end[rows] - gpu.start[rows]).argmax())]])
        return found if step < 0 else replace(found, step=int(self.window.steps.number[step]))

    def several(self, what: str, start: Ints, end: Ints) -> Evidence:
        lasted = end - start
        longest = int(lasted.argmax())
        return Evidence(
            what=what,
            duration_ns=exact_sum(lasted),
            count=len(lasted),
            step=self.step_at(int(start[longest])),
            longest_start_ns=int(start[longest]) - self.window.start,
            longest_ns=int(lasted[longest]),
        )

    def when(self, rows: Ints, gpu: TraceGpuTime) -> Spans:
        columns = self.trace.gpu
        mine = rows[columns.device[rows] == gpu.number]
        spans = merged(columns.start[mine], columns.end[mine])
        return clipped(spans, self.window.start, self.window.end)

    def lines(self, lines: Iterable[KernelLine]) -> list[Evidence]:
        return [self.runs(line.name, line.rows) for line in islice(lines, SHOWN)]

    def stretch(self, what: str, start: int, end: int) -> Evidence:
        return Evidence(
            what=what, duration_ns=end - start, start_ns=start - self.window.start, step=self.step_at(start)
        )


def in_order(findings: Iterable[KernelFinding]) -> list[KernelFinding]:
    return sorted(findings, key=_place)


def _place(finding: KernelFinding) -> tuple[Any, ...]:
    return place_of(
        finding.id,
        sure=finding.confidence == "normal",
        gain_share=finding.gain.share,
        severity=finding.severity,
        gain_ns=finding.gain.ns_per_step,
    )


def severity(value: float, medium: float, high: float) -> Severity:
    if value >= high:
        return Severity.HIGH
    return Severity.MEDIUM if value >= medium else Severity.LOW


def at_most_medium(severity: Severity) -> Severity:
    return min(severity, Severity.MEDIUM, key=lambda each: each.rank)


def weighed(finding: KernelFinding) -> KernelFinding:
    """Return a finding; one that could win next to nothing is of low severity."""
    small = finding.gain.ns_per_step > 0 and finding.gain.share < SMALL_GAIN
    return replace(finding, severity=Severity.LOW) if small else finding


def capped(severity: Severity, steps: int) -> Severity:
    return severity if steps >= FEW_STEPS else at_most_medium(severity)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def rank_name(rank: int | None, trace: str) -> str:
    return trace if rank is None else f"Rank {rank}"


def longest_gaps(judged: JudgedRank, found: Spans) -> list[Evidence]:
    evidence = []
    for start, end in ordered(found):
        host = work_under(judged.trace, start, end)
        said = f"GPU idle, host {host}" if host else "GPU idle, host in nothing that was recorded"
        evidence.append(judged.stretch(said + _behind(judged, start), start, end))
    return evidence


def _behind(judged: JudgedRank, at: int) -> str:
    """Name the call that waits for the GPU as it becomes idle: what the host does next, it does with an empty queue."""
    launches = judged.trace.launches
    waits = np.flatnonzero(judged.waiting_calls & (launches.start < at) & (launches.end >= at))
    return f", behind {call_named(judged.trace, int(waits[0]))}" if len(waits) else ""


def call_named(trace: Trace, call: int) -> str:
    caller = caller_of(trace, call)
    return trace.names[int(trace.launches.name[call])] + (f" of {caller}" if caller else "")


def ordered(found: Spans) -> list[tuple[int, int]]:
    """Return the longest stretches."""
    order = np.argsort(found.start - found.end, kind="stable")[:SHOWN]
    return [(int(found.start[place]), int(found.end[place])) for place in order]


def by_name(judged: JudgedRank, mask: Bools) -> list[Evidence]:
    """Return the GPU's rows of a mask, those of a name together, with their bandwidth."""
    gpu = judged.trace.gpu
    found = []
    for name in np.unique(gpu.name[mask]):
        mine = mask & (gpu.name == name)
        size = int(np.maximum(gpu.size[mine], 0).sum())
        lasted = int((gpu.end[mine] - gpu.start[mine]).sum())
        rate = f", {size:,} bytes, {size / lasted:.2f} GB/s" if size and lasted else ""
        found.append(judged.runs(judged.trace.names[int(name)] + rate, np.flatnonzero(mine)))
    return sorted(found, key=lambda each: -each.duration_ns)[:SHOWN]


def rows_of(lines: Sequence[KernelLine | Called]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(line.rows for line in lines)])


LOOKED_AT = 8
_STEP = "ProfilerStep"
# An operator that covers so much of a stretch explains it; the innermost one explains it best.
COVERED = 0.5


def work_under(trace: Trace, start: int, end: int) -> str:
    """Name the innermost of what covers half of a stretch on the host, else of what took longest; empty without any."""
    best, covered = "", 0
    innermost: int | None = None
    for rows in (trace.operators, trace.annotations, trace.launches):
        for place, overlap in _candidates(rows, start, end):
            name, lasted = trace.names[int(rows.name[place])], int(rows.end[place] - rows.start[place])
            if name.startswith(_STEP):
                continue
            inside = overlap >= COVERED * (end - start)
            if inside and (innermost is None or lasted < innermost):
                best, innermost = name, lasted
            elif innermost is None and overlap > covered:
                best, covered = name, overlap
    if not best:
        return ""
    return f"{'longest' if innermost is None else 'mostly'} in {one_line(best)}"


def caller_of(trace: Trace, call: int) -> str:
    """Return the innermost operator of the same thread around a call; empty where there is none."""
    operators, launches = trace.operators, trace.launches
    around = (operators.lane == launches.lane[call]) & (operators.start <= launches.start[call])
    found = np.flatnonzero(around & (operators.end >= launches.end[call]))
    if not len(found):
        return ""
    return one_line(trace.names[int(operators.name[found[np.argmax(operators.start[found])]])])


def _candidates(rows: Rows, start: int, end: int) -> Iterator[tuple[int, int]]:
    met = np.flatnonzero((rows.start < end) & (rows.end > start))
    met = met[rows.end[met] > rows.start[met]]
    began, ended = rows.start[met], rows.end[met]
    overlap = np.minimum(ended, end) - np.maximum(began, start)
    wide = np.flatnonzero(overlap >= COVERED * (end - start))
    shortest = wide[np.argsort((ended - began)[wide], kind="stable")[:LOOKED_AT]]
    chosen = np.concatenate((shortest, np.argsort(-overlap, kind="stable")[:LOOKED_AT]))
    yield from zip(met[chosen].tolist(), overlap[chosen].tolist(), strict=True)
