"""A memory timeline of torch.profiler (``export_memory_timeline``) to memory over time, by category.

The forms are those of pytorch's torch/profiler/_memory_profiler.py: ``.json`` and ``.json.gz`` hold microseconds, and
for each of them bytes by category behind a zero; ``.raw.json.gz`` holds events, each with nanoseconds (-1: before the
recording), action, bytes that came or went, and category. Neither names its device, nor who allocates.
"""

import re
from collections import Counter
from typing import Annotated

import msgspec
import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import Ints
from trainguard.kernels.memory.entries import KINDS, UNNAMED, GpuMemory, MemoryPurpose
from trainguard.kernels.memory.history import MOST_EVENTS, curve_of
from trainguard.kernels.memory.snapshot import LARGEST_BYTES, NS_PER_US, MemorySnapshot

EXPECTED = "expected the .json or .raw.json of export_memory_timeline"

# Of parameters, optimizer state, inputs, temporaries, activations, gradients, details of autograd, and no category.
CATEGORIES = (
    MemoryPurpose.PARAMETERS,
    MemoryPurpose.OPTIMIZER_STATE,
    MemoryPurpose.UNATTRIBUTED,
    MemoryPurpose.WORKSPACE,
    MemoryPurpose.ACTIVATIONS,
    MemoryPurpose.GRADIENTS,
    MemoryPurpose.WORKSPACE,
    MemoryPurpose.UNATTRIBUTED,
)

_KINDS = np.array([KINDS.index(kind) for kind in CATEGORIES], dtype=np.int64)
_FIRST = re.compile(rb"\s*\[\s*\[\s*(?:-?\d|\]\s*,\s*\[\s*\])")
_LATEST_NS = 1 << 62

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=_LATEST_NS)]
_Size = Annotated[int, msgspec.Meta(ge=-LARGEST_BYTES, le=LARGEST_BYTES)]
_PLAIN = msgspec.json.Decoder(tuple[list[_Number], list[list[_Size]]])
_RAW = msgspec.json.Decoder(list[tuple[_Number, _Number, _Size, _Number]])


def is_timeline(first: bytes) -> bool:
    return _FIRST.match(first) is not None


def read_timeline(name: str, data: bytes) -> MemorySnapshot:
    """Read a memory timeline; raises KernelTraceError for what is none."""
    tally: Counter[str] = Counter()
    try:
        at, held = _of_rows(_PLAIN.decode(data), tally)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as fault:
        try:
            at, held = _of_events(_RAW.decode(data), tally)
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
            raise KernelTraceError(name, f"{fault}, {EXPECTED}") from fault
    if not len(at):
        raise KernelTraceError(name, "a memory timeline without an event: its device may be another one")
    # Nothing is negative: where events are lost, more was held than is known.
    tally["inconsistent"] += int((held < 0).any(axis=1).sum())
    memory = _memory(np.maximum.accumulate(at), np.maximum(held, 0))
    return MemorySnapshot(name=name, histories=[], tally={k: v for k, v in tally.items() if v}, memory=[memory])


def _of_rows(found: tuple[list[int], list[list[int]]], tally: Counter[str]) -> tuple[Ints, Ints]:
    """Return nanoseconds and bytes by kind from times and rows of bytes by category; ValueError for other rows."""
    times, rows = found
    width = len(CATEGORIES) + 1
    if len(times) != len(rows) or any(len(row) != width for row in rows):
        raise ValueError(f"{len(times):,} times and {len(rows):,} rows, expected as many, each of {width} sizes")
    tally["left_out"] += len(times[MOST_EVENTS:])
    by_category = np.array(rows[:MOST_EVENTS], dtype=np.int64).reshape(-1, width)[:, 1:]
    at = np.clip(np.array(times[:MOST_EVENTS], dtype=np.int64), 0, _LATEST_NS // NS_PER_US) * NS_PER_US
    return at, _by_kind(by_category)


def _of_events(events: list[tuple[int, int, int, int]], tally: Counter[str]) -> tuple[Ints, Ints]:
    tally["left_out"] += len(events[MOST_EVENTS:])
    rows = np.array(events[:MOST_EVENTS], dtype=np.int64).reshape(-1, 4)
    known = (rows[:, 3] >= 0) & (rows[:, 3] < len(CATEGORIES))
    tally["bad_events"] += int((~known).sum())
    at, size, category = rows[known, 0], rows[known, 2], rows[known, 3]
    deltas = np.zeros((len(at), len(CATEGORIES)), dtype=np.int64)
    deltas[np.arange(len(at)), category] = size
    timed = at >= 0
    at = np.where(timed, at, int(at[timed].min()) if timed.any() else 0)
    return at, _by_kind(np.cumsum(deltas, axis=0))


def _by_kind(by_category: Ints) -> Ints:
    held = np.zeros((len(by_category), len(KINDS)), dtype=np.int64)
    for category, kind in enumerate(_KINDS.tolist()):
        held[:, kind] += by_category[:, category]
    return held


def _memory(at: Ints, held: Ints) -> GpuMemory:
    allocated = held.sum(axis=1)
    peak = int(np.argmax(allocated))
    return GpuMemory(
        device=UNNAMED,
        source="timeline",
        clock="time",
        limit=None,
        is_relative=False,
        peak=int(allocated[peak]),
        peak_at_ns=int(at[peak] - at[0]),
        peak_reserved=None,
        most_reserved=None,
        moment="peak",
        held=int(allocated[peak]),
        kinds={kind.value: int(held[peak, place]) for place, kind in enumerate(KINDS)},
        curve=curve_of(at, allocated, None, held.T),
        holders=[],
        holders_left_out=0,
        holders_left_out_bytes=0,
        fragments=None,
        estimates=[],
        growth=None,
        ran_out=None,
        expandable_segments=None,
        counts={"events": len(at)},
    )
