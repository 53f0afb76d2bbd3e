"""The memory of GPUs on the terminal."""

from collections.abc import Iterator, Sequence

from trainguard.cli.output.rendering import Block, Column, Facts, Heading, Item, Line, severity_cell, table
from trainguard.kernels.memory.entries import GpuMemory, MemoryHolder, SnapshotProfile
from trainguard.kernels.memory.frames import own_frame
from trainguard.kernels.rules.allocator import UNKNOWN_PLACE, said_size

_LABEL_WIDTH = 8
_CHANGES = {"recompute": "with recomputed activations", "half_batch": "with half the batch"}


def snapshot_blocks(snapshot: SnapshotProfile) -> Iterator[Block]:
    yield Heading(snapshot.trace if snapshot.rank is None else f"rank {snapshot.rank}: {snapshot.trace}")
    for finding in snapshot.findings:
        labels = [(severity_cell(finding.severity), _LABEL_WIDTH)]
        text = f"{finding.id}: {finding.summary}" + (" Low confidence." if finding.confidence == "low" else "")
        yield Item(labels=labels, text=text, advice=finding.recommendation)
    yield from memory_blocks(snapshot.memory)


def memory_blocks(memory: Sequence[GpuMemory]) -> Iterator[Block]:
    for each in memory:
        yield Facts([(f"memory of {each.name}", _sizes(each)), *_parts(each), *_estimates(each)])
        if each.unknown:
            yield Line(each.unknown)
        if each.holders:
            at = "when an allocation failed" if each.moment == "failure" else "at the peak"
            columns = {
                Column(f"holds most {at}", folds=True): _where,
                Column("kind"): lambda held: held.kind.replace("_", " "),
                Column("size", right=True): lambda held: said_size(held.bytes),
                Column("blocks", right=True, drops=1): lambda held: f"{held.blocks:,}",
            }
            yield table(each.holders, columns)


def _sizes(memory: GpuMemory) -> str:
    reserved = "" if memory.most_reserved is None else f", {said_size(memory.most_reserved)} reserved"
    limit = f" of {said_size(memory.limit)}" if memory.limit else ""
    without = " beyond what was held before" if memory.is_relative else ""
    return f"at most {said_size(memory.peak)} allocated{without}{reserved}{limit}"


def _parts(memory: GpuMemory) -> Iterator[tuple[str, str]]:
    held = sorted(((size, kind) for kind, size in memory.kinds.items() if size), reverse=True)
    when = "at the failure" if memory.moment == "failure" else "at the peak"
    if held:
        yield when, ", ".join(f"{kind.replace('_', ' ')} {100 * size / memory.held:.0f} %" for size, kind in held)
    parts = memory.fragments
    if parts is not None:
        largest = f"the largest block {said_size(parts.largest_free)}"
        yield "free at the end", f"{said_size(parts.free)}, {largest}, {said_size(parts.inactive_split)} beside others"


def _estimates(memory: GpuMemory) -> Iterator[tuple[str, str]]:
    for each in memory.notable_estimates:
        basis = f"estimated from {said_size(each.acts_on)} that it acts on"
        yield _CHANGES[each.change], f"at most {said_size(each.saves_at_most)} less, {basis}"


def _where(held: MemoryHolder) -> str:
    return own_frame(held.where) or UNKNOWN_PLACE
