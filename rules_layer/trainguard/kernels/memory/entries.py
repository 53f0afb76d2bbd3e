"""Parts of ``kernels.json`` that describe the memory of a GPU."""

from enum import StrEnum
from typing import Literal

import msgspec

from trainguard.kernels.entries import KernelFinding


class MemoryPurpose(StrEnum):
    """What memory is held for.

    ``WORKSPACE`` is freed in the phase that allocates it, such as the forward pass. ``UNATTRIBUTED`` was allocated
    before the recording, or nothing says for what.
    """

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    WORKSPACE = "workspace"
    UNATTRIBUTED = "unattributed"


KINDS = tuple(MemoryPurpose)

UNNAMED = -2
_NAMES = {-1: "the host", UNNAMED: "a device without a name"}


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Memory over time in at most 200 points, in bytes: of equal parts of the time the moment with most of it.

    at_ns: From the first event; where ``clock`` is ``events`` their number.
    reserved: Empty where the recording does not say it.
    kinds: By `MemoryPurpose`; together they are ``allocated``.
    """

    at_ns: list[int]
    allocated: list[int]
    reserved: list[int]
    kinds: dict[str, list[int]]


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """What was allocated at one place for one kind, and was held at one moment.

    where: The stack, innermost first: operators, then functions as ``file:line function``; empty where unknown.
    """

    kind: str
    bytes: int
    blocks: int
    where: list[str]


class MemoryFragments(msgspec.Struct, kw_only=True):
    """How reserved memory is divided when a snapshot is taken, in bytes.

    allocated, waiting, free: Blocks in use, blocks that another stream may still use, and free ones: together
        ``reserved``.
    rounding: Part of ``allocated`` that nobody asked for.
    largest_free: The largest free block.
    inactive_split: Free blocks in segments that also hold blocks in use, so that they cannot be given back.
    """

    reserved: int
    allocated: int
    waiting: int
    free: int
    rounding: int
    largest_free: int
    inactive_split: int
    segments: int


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that failed: bytes asked for, free on the device, and allocated and reserved then."""

    at_ns: int
    requested: int
    device_free: int
    allocated: int
    reserved: int
    where: list[str]


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """How much less could be held at the moment of ``holders`` at most, in bytes: an estimate from the recording.

    change: ``recompute`` holds no activation until backward; ``half_batch`` halves activations, and the workspace of
        forward and backward. No other kind changes.
    acts_on: Its basis: bytes then that the change acts on.
    saves_at_most: Less than it where the peak moves to another moment.
    """

    change: Literal["recompute", "half_batch"]
    acts_on: int
    saves_at_most: int


class StepMemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at the same point of each step, in bytes, without the first two; ``where`` is the place that keeps most.

    kept: Bytes that this place allocated up to the step before the last one and that are still held.
    """

    at_steps: list[int]
    kept: int
    where: list[str]


class GpuMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one GPU in a recording; sizes in bytes.

    device: Its number; -1 is the host, of a recording without a GPU, -2 a device that the recording does not name.
    source: Events of a trace, a snapshot of the allocator, or a memory timeline of torch.profiler.
    clock: ``events`` where the recording has no times, so that ``at_ns`` are numbers of events.
    limit: What the process can reserve at most; None where the recording does not say it. It is the GPU's memory, or
        what was reserved and free when an allocation failed.
    is_relative: Whether sizes are without what was allocated before the recording, which it does not say.
    peak, peak_at_ns, peak_reserved: Most allocated, when that was first so, and reserved then; None where the recording
        does not say it, as ``most_reserved``.
    moment: Of what is held then, ``held``, the next ones say more: when the last allocation failed, else the peak.
    kinds: By `MemoryPurpose`.
    holders: The ten largest; ``holders_left_out`` are the others, ``holders_left_out_bytes`` their size.
    expandable_segments: As the allocator is set; None where the recording does not say it.
    counts: Events, and what did not fit: ``earlier`` blocks from before the recording, ``lost_frees``, ``bad_events``.
    """

    device: int
    source: Literal["trace", "snapshot", "timeline"]
    clock: Literal["time", "events"]
    limit: int | None
    is_relative: bool
    peak: int
    peak_at_ns: int
    peak_reserved: int | None
    most_reserved: int | None
    moment: Literal["peak", "failure"]
    held: int
    kinds: dict[str, int]
    curve: MemoryCurve
    holders: list[MemoryHolder]
    holders_left_out: int
    holders_left_out_bytes: int
    fragments: MemoryFragments | None
    estimates: list[MemoryEstimate]
    growth: StepMemoryGrowth | None
    ran_out: OutOfMemory | None
    expandable_segments: bool | None
    counts: dict[str, int]

    @property
    def is_recorded(self) -> bool:
        """Whether the allocator's events were recorded, and not only what it holds at the end."""
        return self.counts.get("events", 0) > 1

    @property
    def notable_estimates(self) -> list[MemoryEstimate]:
        """Those that could save a hundredth of what is held, or more."""
        return [each for each in self.estimates if each.saves_at_most >= 0.01 * self.held]

    @property
    def name(self) -> str:
        return _NAMES.get(self.device) or f"GPU {self.device}"

    @property
    def unknown(self) -> str:
        """What the recording cannot say, in a sentence; empty where nothing needs to be said."""
        if self.source == "timeline":
            return (
                "A memory timeline names no device, no place and no failed allocation, and has no reserved memory: no "
                "rule judges it. Record a memory snapshot."
            )
        return "" if self.holders else "The recording has no addresses, so who holds the memory is unknown."


class SnapshotProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of a snapshot of PyTorch's allocator.

    rank: As the file's name says it.
    damaged: What of it could not be read, with counts.
    """

    trace: str
    rank: int | None
    memory: list[GpuMemory]
    findings: list[KernelFinding]
    damaged: list[str]
