"""A GPU's memory runs out, is divided into parts that nothing fits, grows from step to step, or is held by one place.

They judge the memory of one GPU, from a trace as from a snapshot.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from trainguard.core.finding import Fact, Severity, Status
from trainguard.kernels.entries import KernelFinding
from trainguard.kernels.memory.entries import GpuMemory, MemoryPurpose
from trainguard.kernels.memory.frames import own_frame
from trainguard.kernels.rules.finding import JudgedRank
from trainguard.kernels.rules.rule import Number, RankRule, Share, of_snapshots, of_traces, portion, unread_snapshots
from trainguard.kernels.rules.text import CaptureKind, Saying, gpu_of, shown, silence
from trainguard.kernels.verdict import CaptureVerdict
from trainguard.rules.change import ChangeCode
from trainguard.rules.rule_result import FactSheet, Measure, RuleResult

UNKNOWN_PLACE = "a place without a stack"
_SMALLER = "Recompute activations (torch.utils.checkpoint), or take a smaller batch and accumulate gradients."


class MemoryRule(RankRule):
    """A rule over the memory of one GPU; on a rank it has the finding on the GPU where it is severest.

    in_traces: Whether events of a trace can say it; else snapshots alone do.
    """

    is_steady = False
    in_traces: ClassVar[bool] = True
    looks_at = "the kernel traces of the newest capture, rank by rank, and the newest memory snapshot of each rank"

    @abstractmethod
    def judge_memory(self, memory: GpuMemory) -> KernelFinding | None:
        """Return what is found in the memory of a GPU."""

    @abstractmethod
    def is_said_by(self, memory: GpuMemory) -> bool:
        """Return whether a snapshot's memory of a GPU says if the rule's condition holds."""

    def judge(self, verdict: CaptureVerdict | None) -> RuleResult:
        if verdict is None:
            return super().judge(verdict)
        found = [(each, of_traces(verdict)) for each in (verdict.of(self.name),) if each is not None]
        snapshots = verdict.snapshots
        if snapshots is not None and (in_snapshots := snapshots.of(self.name)) is not None:
            found.append((in_snapshots, of_snapshots(snapshots)))
        if not found:
            return self._silent(verdict)
        worse = max(found, key=lambda each: (bool(each[0].sure), each[0].severity.rank))
        return self.said(worse[0], verdict, worse[1])

    def _silent(self, verdict: CaptureVerdict) -> RuleResult:
        by_traces = bool(verdict.judged and self.in_traces and verdict.memory)
        snapshots = verdict.snapshots
        by_snapshots = 0 if snapshots is None else snapshots.judged.get(self.name, 0)
        if not by_snapshots and (by_traces or (verdict.has_traces and not verdict.judged)):
            return super().judge(verdict)
        files = [*(of_traces(verdict).facts if verdict.has_traces else ())]
        files += [] if snapshots is None else [*of_snapshots(snapshots).facts, *unread_snapshots(snapshots)]
        count = verdict.traces + (0 if snapshots is None else snapshots.files)
        if not by_snapshots:
            return RuleResult.of(silence, Status.WARMING_UP, CaptureKind.NO_MEMORY, tuple(files), data_points=count)
        judged = [Fact(name="snapshots_judged", value=by_snapshots)]
        judged += [Fact(name="ranks_judged", value=verdict.judged)] if by_traces else []
        facts = (*judged, *files)
        return RuleResult.of(silence, Status.OK, CaptureKind.NOT_IN_SNAPSHOTS, facts, data_points=count)

    def judge_rank(self, judged: JudgedRank) -> KernelFinding | None:
        return worst(self.judge_memory(each) for each in judged.memory if each.device >= 0)


def worst(found: Iterable[KernelFinding | None]) -> KernelFinding | None:
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: (each.severity.rank, each.value), default=None)


def size_fact(name: str, size: int, threshold: int | None = None, device: str | None = None) -> Fact:
    return Fact(name=name, value=size, unit="bytes", threshold=threshold, device=device)


def said_size(size: float) -> str:
    if abs(size) >= 1e9:
        return f"{size / 1e9:,.2f} GB"
    return f"{size / 1e6:,.1f} MB" if abs(size) >= 1e6 or not size else f"{size / 1e3:,.1f} kB"


def _size(sheet: FactSheet, name: str) -> str:
    return said_size(sheet.number(name))


def _device(memory: GpuMemory) -> str:
    return f"gpu{memory.device}"


def _place(where: Sequence[str]) -> str:
    return own_frame(where) or UNKNOWN_PLACE


def _held_most(memory: GpuMemory) -> list[str]:
    held = [f"{each.bytes:,} bytes of {each.kind}, {_place(each.where)}" for each in memory.holders[:5]]
    return held or [f"{memory.peak:,} bytes of {memory.name} allocated"]


def is_tight(memory: GpuMemory, share: float) -> bool:
    """Whether an allocation failed, or so much of what the GPU can hold was reserved."""
    if memory.ran_out is not None:
        return True
    return bool(memory.limit and memory.most_reserved is not None and memory.most_reserved >= share * memory.limit)


def _ran_out_summary(sheet: FactSheet) -> str:
    return (
        f"An allocation of {_size(sheet, 'requested')} failed on {gpu_of(sheet, 'requested')}: "
        f"{_size(sheet, 'allocated')} were allocated, {_size(sheet, 'reserved')} reserved, "
        f"{_size(sheet, 'device_free')} free. Most is {sheet.name('largest_kind')}; {sheet.name('place')} holds most."
    )


class GpuMemoryRanOut(MemoryRule):
    title = "Failed allocations"
    change = ChangeCode.SAVE_MEMORY
    fires_when = "an allocation failed; needs a memory snapshot"
    measure = Measure("bytes that were asked for")
    summary = _ran_out_summary
    advice = _SMALLER
    clause = "a GPU ran out of memory"
    in_traces = False

    def is_said_by(self, memory: GpuMemory) -> bool:
        return memory.is_recorded

    def judge_memory(self, memory: GpuMemory) -> KernelFinding | None:
        failed = memory.ran_out
        if failed is None:
            return None
        largest = max(memory.kinds, key=lambda kind: memory.kinds[kind])
        return self.found(
            [
                size_fact("requested", failed.requested, failed.device_free, _device(memory)),
                size_fact("allocated", failed.allocated),
                size_fact("reserved", failed.reserved),
                size_fact("device_free", failed.device_free),
                Fact(name="largest_kind", value=largest.replace("_", " ")),
                Fact(name="place", value=_place(memory.holders[0].where if memory.holders else [])),
            ],
            severity=Severity.HIGH,
            evidence=_held_most(memory),
        )


def _fragmented_summary(sheet: FactSheet) -> str:
    reserved, unused = (shown(sheet)[name] for name in ("reserved_share", "unused_share"))
    gpu = gpu_of(sheet, "unused_share")
    return f"{reserved} of the memory of {gpu} was reserved at its peak, and {unused} of that was free in parts."


def _in_parts_summary(sheet: FactSheet) -> str:
    return (
        f"An allocation of {_size(sheet, 'requested')} failed on {gpu_of(sheet, 'unused')}, although "
        f"{_size(sheet, 'unused')} were reserved and not in use: no free part was large enough."
    )


class GpuMemoryFragmented(MemoryRule):
    """Fires where the allocator holds memory that it cannot give out, and the GPU has hardly any other."""

    title = "Fragmented memory"
    change = ChangeCode.DEFRAGMENT_MEMORY
    fires_when = (
        "an allocation failed that fits into what is reserved and free; or {full} of the GPU's memory was reserved at "
        "the peak and {least} of that was free; needs profile_memory=True or a memory snapshot"
    )
    measure = Measure("free share of reserved memory; or free bytes")
    advice = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or keep the shapes of batches constant."
    says = (
        Saying("fragmented_memory", _fragmented_summary, advice, "a GPU's memory was fragmented"),
        Saying("failed_in_parts", _in_parts_summary, advice, "an allocation failed in fragmented memory"),
    )

    least: Share = 0.2
    full: Share = 0.9

    def is_said_by(self, memory: GpuMemory) -> bool:
        return memory.is_recorded and memory.limit is not None

    def judge_memory(self, memory: GpuMemory) -> KernelFinding | None:
        return self._failed(memory) or self._full(memory)

    def _failed(self, memory: GpuMemory) -> KernelFinding | None:
        failed = memory.ran_out
        if failed is None or failed.reserved - failed.allocated < failed.requested:
            return None
        unused = failed.reserved - failed.allocated
        return self.found(
            [
                size_fact("unused", unused, failed.requested, _device(memory)),
                size_fact("requested", failed.requested),
                *self._remedy(memory),
            ],
            kind="failed_in_parts",
            severity=Severity.HIGH,
            evidence=_parts(memory),
        )

    def _full(self, memory: GpuMemory) -> KernelFinding | None:
        reserved = memory.peak_reserved
        if not memory.limit or not reserved or reserved < self.full * memory.limit or memory.is_relative:
            return None
        unused = max(reserved - memory.peak, 0) / reserved
        if unused < self.least:
            return None
        return self.found(
            [
                portion("unused_share", unused, self.least, _device(memory)),
                portion("reserved_share", reserved / memory.limit, self.full),
                *self._remedy(memory),
            ],
            kind="fragmented_memory",
            severity=Severity.MEDIUM,
            evidence=_parts(memory),
        )

    def _remedy(self, memory: GpuMemory) -> list[Fact]:
        if not memory.expandable_segments:
            return []
        advice = (
            "expandable_segments is on: keep the shapes of batches constant, and allocate the largest tensors first."
        )
        return [Fact(name="remedy", value=advice)]


def _parts(memory: GpuMemory) -> list[str]:
    parts = memory.fragments
    if parts is None:
        return [f"{memory.peak:,} of {memory.peak_reserved or 0:,} reserved bytes allocated at the peak"]
    return [
        f"{parts.free:,} of {parts.reserved:,} reserved bytes free at the end",
        f"{parts.largest_free:,} bytes in the largest free block",
        f"{parts.inactive_split:,} free bytes beside blocks in use",
    ]


def _grows_summary(sheet: FactSheet) -> str:
    steps_left = sheet.get("steps_left")
    until = "" if steps_left is None else f", and is full in {int(steps_left.value):,} steps at this rate"
    return (
        f"The memory of {gpu_of(sheet, 'growth_per_step')} at the start of a step grew by "
        f"{_size(sheet, 'growth_per_step')} a step over {int(sheet.number('steps')):,} steps{until}. "
        f"{sheet.name('place')} keeps most."
    )


class GpuMemoryGrows(MemoryRule):
    """Fires where memory at the same point of each step grows, in both halves of the recording, and hardly ever falls.

    The first two steps, which allocate gradients and optimizer state, do not count.
    """

    title = "Growing memory"
    change = ChangeCode.FIX_LEAK
    fires_when = (
        "memory at the start of a step grows by {least} MB a step, and falls by {falls} of its rises at most, over "
        "{steps} steps behind the first two; needs profile_memory=True or a memory snapshot"
    )
    measure = Measure("bytes a step")
    summary = _grows_summary
    advice = (
        "Free what a step leaves behind: store loss.item() or loss.detach() and no loss with its graph, and bound "
        "lists and caches of tensors."
    )
    clause = "a GPU's memory grew from step to step"

    least: Number = 1.0
    falls: Share = 0.1
    steps: Number = 4
    sure_steps: Number = 8
    soon: Number = 1_000

    def is_said_by(self, memory: GpuMemory) -> bool:
        return memory.growth is not None and len(memory.growth.at_steps) > self.steps

    def judge_memory(self, memory: GpuMemory) -> KernelFinding | None:
        growth = memory.growth
        if growth is None or len(growth.at_steps) <= self.steps:
            return None
        values = np.array(growth.at_steps, dtype=np.int64)
        changes, half = np.diff(values), len(values) // 2
        rises, falls = int(changes[changes > 0].sum()), -int(changes[changes < 0].sum())
        per_step = int(values[-1] - values[0]) // len(changes)
        grows_on = values[0] < values[half] < values[-1]
        if per_step < self.least * 1e6 or falls > self.falls * rises or not grows_on:
            return None
        left = None if not memory.limit else max(memory.limit - int(values[-1]), 0) // per_step
        facts = [
            size_fact("growth_per_step", per_step, int(self.least * 1e6), _device(memory)),
            Fact(name="steps", value=len(changes)),
            Fact(name="place", value=_place(growth.where)),
        ]
        facts += [] if left is None else [Fact(name="steps_left", value=left)]
        return self.found(
            facts,
            severity=Severity.HIGH if left is not None and left < self.soon else Severity.MEDIUM,
            evidence=[f"{growth.kept:,} bytes kept, {_place(growth.where)}"],
            confidence="normal" if len(changes) >= self.sure_steps else "low",
        )


def _one_holder_summary(sheet: FactSheet) -> str:
    return (
        f"{shown(sheet)['held_share']} of what {gpu_of(sheet, 'held_share')} holds at most, "
        f"{_size(sheet, 'held')}, is {sheet.name('held_kind')} of {sheet.name('place')}."
    )


class GpuMemoryHeld(MemoryRule):
    """Fires where one place holds much of a GPU's memory for one step, and hardly any is left."""

    title = "Memory of one place"
    change = ChangeCode.SAVE_MEMORY
    fires_when = (
        "one place holds {least} of what is allocated, as activations or workspace, at the peak with {full} of the "
        "GPU's memory reserved, or when an allocation fails; needs profile_memory=True or a memory snapshot"
    )
    measure = Measure("share of allocated memory")
    summary = _one_holder_summary
    advice = (
        "Start there: compute it in parts, recompute it in backward (torch.utils.checkpoint), or keep it in fewer "
        "bits. Logits of a large vocabulary need a loss in parts."
    )
    clause = "one place held much of a GPU's memory"

    least: Share = 0.4
    full: Share = 0.9

    def is_said_by(self, memory: GpuMemory) -> bool:
        return memory.is_recorded and memory.limit is not None and bool(memory.holders)

    def judge_memory(self, memory: GpuMemory) -> KernelFinding | None:
        passing = (MemoryPurpose.ACTIVATIONS, MemoryPurpose.WORKSPACE)
        largest = next((each for each in memory.holders if each.kind in passing), None)
        if largest is None or not is_tight(memory, self.full) or largest.bytes < self.least * memory.held:
            return None
        return self.found(
            [
                portion("held_share", largest.bytes / memory.held, self.least, _device(memory)),
                size_fact("held", largest.bytes),
                Fact(name="held_kind", value=largest.kind),
                Fact(name="place", value=_place(largest.where)),
            ],
            severity=Severity.MEDIUM,
            evidence=_held_most(memory),
        )
