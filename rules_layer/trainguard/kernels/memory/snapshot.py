"""A snapshot of PyTorch's allocator, a pickle or JSON, to histories.

The format is that of ``torch.cuda.memory._snapshot`` (pytorch: torch/cuda/memory.py, torch/cuda/_memory_viz.py): lists
of ``segments`` with their blocks, and for each device a list of events, the last ones where there were too many.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.formats.plain_pickle import PickleError, read_plain
from trainguard.kernels.columns import Ints
from trainguard.kernels.memory.entries import GpuMemory, MemoryFragments, OutOfMemory
from trainguard.kernels.memory.frames import Frames
from trainguard.kernels.memory.history import MOST_EVENTS, MemoryHistory, MemoryPhase, shown_place

MOST_DEVICES = 1_024
# A larger block is a broken one; so their sums fit into 64 bits.
LARGEST_BYTES = 1 << 40

NS_PER_US = 1_000
_SIZE = {"alloc": 1, "free_requested": -1}
_SEGMENT = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_PICKLE = re.compile(rb"\x80[\x02-\x05]|[\(}\]](?:dp|lp|q\x00|\x94)")
_JSON = re.compile(rb'\s*\{\s*"(?:segments|device_traces|allocator_settings|external_annotations)"\s*:')

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """One process's snapshot: a history for each device that has events or segments; ``tally`` counts what is odd.

    ``memory`` is that of a memory timeline, which has no history.
    """

    name: str
    histories: list[MemoryHistory]
    tally: dict[str, int]
    memory: list[GpuMemory] = field(default_factory=list)


def is_snapshot(first: bytes) -> bool:
    """Whether a file that begins so is a pickle, or the JSON of a snapshot."""
    return _PICKLE.match(first) is not None or _JSON.match(first) is not None


def read_snapshot(name: str, data: bytes) -> MemorySnapshot:
    """Read a snapshot; raises KernelTraceError for what is none."""
    try:
        found = read_plain(data) if _PICKLE.match(data) else msgspec.json.decode(data)
    except PickleError as fault:
        raise KernelTraceError(name, f"a pickle with {fault}") from fault
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise KernelTraceError(name, f"{fault}, expected the JSON of a memory snapshot") from fault
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        shown = type(found).__name__ if not isinstance(found, dict) else f"keys {', '.join(list(found)[:5])!r}"
        raise KernelTraceError(name, f"{shown}, expected segments and device_traces of torch.cuda.memory._snapshot()")
    return _Reader(name, found).snapshot()


# What is held at the end on a device: by address the size asked for and the stack, and how segments are divided.
_Held = tuple[dict[int, tuple[int, Any]], MemoryFragments]


def _nothing() -> _Held:
    return {}, MemoryFragments(**dict.fromkeys(MemoryFragments.__struct_fields__, 0))


class _Reader:
    def __init__(self, name: str, found: dict[str, Any]) -> None:
        self._name = name
        self._found = found
        self._tally: Counter[str] = Counter()
        self._frames = Frames()
        self._left = MOST_EVENTS
        settings = found.get("allocator_settings")
        expandable = settings.get("expandable_segments") if isinstance(settings, dict) else None
        self._expandable = expandable if isinstance(expandable, bool) else None

    def snapshot(self) -> MemorySnapshot:
        held = self._segments()
        traces = _list(self._found.get("device_traces"))[:MOST_DEVICES]
        devices = sorted({*held, *(device for device, events in enumerate(traces) if _list(events))})
        histories = [
            history
            for device in devices
            if (
                history := self._history(
                    device,
                    _list(traces[device]) if device < len(traces) else [],
                    held.get(device) or _nothing(),
                )
            )
            is not None
        ]
        if not histories:
            raise KernelTraceError(self._name, "a memory snapshot without a block or an event, expected some of a GPU")
        return MemorySnapshot(name=self._name, histories=histories, tally={k: v for k, v in self._tally.items() if v})

    def _bounded(self, entries: Sequence[T]) -> Iterator[T]:
        """Yield entries, of all lists together as many as are read: one list can stand in many places."""
        taken = entries[: max(self._left, 0)]
        self._left -= len(taken)
        self._tally["left_out"] += len(entries) - len(taken)
        yield from taken

    def _segments(self) -> dict[int, _Held]:
        found: dict[int, _Held] = {}
        for segment in self._bounded(_list(self._found["segments"])):
            total = _size(_get(segment, "total_size"))
            device = _get(segment, "device", 0)
            if total < 0 or type(device) is not int or not 0 <= device < MOST_DEVICES:
                self._tally["bad_segments"] += 1
                continue
            self._divide(*found.setdefault(device, _nothing()), segment, total)
        return found

    def _divide(
        self, held: dict[int, tuple[int, Any]], parts: MemoryFragments, segment: dict[str, Any], total: int
    ) -> None:
        parts.reserved += total
        parts.segments += 1
        at = _get(segment, "address")
        at = at if type(at) is int else 0
        free, free_blocks, in_use = 0, [0], 0
        for block in self._bounded(_list(segment.get("blocks"))):
            size, state = _size(_get(block, "size")), _get(block, "state")
            if size < 0:
                self._tally["bad_blocks"] += 1
                continue
            address = _get(block, "address")
            address = address if type(address) is int else at
            at = address + size
            if state == "active_allocated":
                in_use += size
                asked, frames = _asked(block, size)
                parts.rounding += size - asked
                parts.allocated += size
                held[address] = (asked, frames)
            elif state == "inactive":
                free += size
                free_blocks.append(size)
            else:
                in_use += size
                parts.waiting += size
        parts.free += free
        parts.largest_free = max(parts.largest_free, *free_blocks)
        parts.inactive_split += free if in_use else 0

    def _history(self, device: int, events: Sequence[Any], held: _Held) -> MemoryHistory | None:
        if not events and not held[0]:
            return None
        lives = _Lives(self._frames)
        for event in self._bounded(events):
            lives.add(event)
        self._tally["bad_events"] += lives.bad
        lives.end(held[0])
        return lives.history(device, held, self._expandable)


class _Lives:
    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._held: dict[int, int] = {}
        self._allocations: list[list[int]] = []
        self._steps: list[tuple[int, int, int]] = []
        self._times: list[int] = []
        self._ran_out: tuple[int, dict[str, Any]] | None = None
        self._counts: Counter[str] = Counter()
        self._frees_have_stacks = False
        self.bad = 0

    def add(self, event: Any) -> None:
        action = _get(event, "action")
        if not isinstance(action, str):
            self.bad += 1
            return
        if action == "oom":
            self._ran_out = (len(self._steps), event)
            self._step(event, 0, 0, MemoryPhase.UNKNOWN)
            return
        way, segment = _SIZE.get(action, 0), _SEGMENT.get(action, 0)
        if not way and not segment:
            return
        size, address = _size(_get(event, "size")), _get(event, "addr")
        if size < 0 or type(address) is not int:
            self.bad += 1
            return
        place, phase = self._frames.place(event.get("frames"))
        if way > 0:
            # Where others have a stack, one without is of a thread without Python: that of backward.
            phase = phase or MemoryPhase.BACKWARD
            self._allocate(address, size, place, phase)
        elif way < 0:
            self._frees_have_stacks = self._frees_have_stacks or place > 0
            self._free(address)
        self._step(event, way * size, segment * size, phase if way else MemoryPhase.UNKNOWN)

    def _step(self, event: dict[str, Any], size: int, segment: int, phase: MemoryPhase) -> None:
        time = event.get("time_us")
        self._times.append(time if type(time) is int and 0 <= time < 1 << 52 else -1)
        self._steps.append((size, segment, phase))

    def _allocate(self, address: int, size: int, place: int, phase: MemoryPhase) -> None:
        self._counts["lost_frees"] += address in self._held
        self._free(address, is_seen=True)
        self._held[address] = len(self._allocations)
        self._allocations.append([size, len(self._steps), -1, phase, place])

    def _free(self, address: int, *, is_seen: bool = False) -> None:
        known = self._held.pop(address, None)
        if known is not None:
            self._allocations[known][2] = len(self._steps)
        elif not is_seen:
            self._counts["earlier"] += 1

    def end(self, blocks: dict[int, tuple[int, Any]]) -> None:
        """Compare with the blocks that are held at the end: those without an event are from before the recording."""
        if not self._steps:
            self._step({}, 0, 0, MemoryPhase.UNKNOWN)
        for address, known in self._held.items():
            if address not in blocks:
                self._allocations[known][2] = len(self._steps) - 1
                self._counts["lost_frees"] += 1
        for address, (size, frames) in blocks.items():
            if address not in self._held:
                place, phase = self._frames.place(frames)
                known_phase = phase if phase in (MemoryPhase.SETUP, MemoryPhase.OPTIMIZER) else MemoryPhase.UNKNOWN
                self._allocations.append([size, -1, -1, known_phase, place])
                self._counts["earlier"] += 1

    def history(self, device: int, held: _Held, expandable: bool | None) -> MemoryHistory:
        count, (blocks, parts) = len(self._steps), held
        deltas = np.array(self._steps, dtype=np.int64).reshape(-1, 3)
        asked = sum(size for size, _ in blocks.values())
        allocated, reserved = (_back(deltas[:, place], end) for place, end in ((0, asked), (1, parts.reserved)))
        # Nothing is negative: where events are lost, more was held than is known.
        self._counts["inconsistent"] += int((allocated < 0).sum() + (reserved < 0).sum())
        allocated, reserved = np.maximum(allocated, 0), np.maximum(reserved, 0)
        rows = np.array(self._allocations, dtype=np.int64).reshape(-1, 5)
        size, born, died, phase, place = rows.T
        context = deltas[:, 2]
        if self._frees_have_stacks:
            # So do those of backward's thread, which has no Python.
            context = np.where((deltas[:, 0] < 0) & (context == MemoryPhase.UNKNOWN), MemoryPhase.BACKWARD, context)
        if not self._frames.has_python:
            phase, context = np.zeros_like(phase), np.zeros_like(context)
        at, is_timed = _clock(self._times)
        history = MemoryHistory(
            device=device,
            source="snapshot",
            clock="time" if is_timed else "events",
            at=at,
            allocated=allocated,
            reserved=reserved,
            size=size,
            born=born,
            died=np.where(died < 0, count, died),
            phase=phase,
            context=context,
            place=place,
            places=self._frames.places,
            begins_with=max(int(allocated[0] - deltas[0, 0]), 0),
            fragments=parts,
            expandable_segments=expandable,
            counts=dict(self._counts),
        )
        return _with_steps(self._with_failure(history))

    def _with_failure(self, history: MemoryHistory) -> MemoryHistory:
        if self._ran_out is None:
            return history
        place, event = self._ran_out
        requested, free = _size(_get(event, "size")), _size(_get(event, "device_free"))
        if requested < 0:
            return history
        where, _ = self._frames.place(event.get("frames"))
        reserved = int(history.reserved[place])
        failure = OutOfMemory(
            at_ns=int(history.at[place] - history.at[0]),
            requested=requested,
            device_free=max(free, 0),
            allocated=int(history.allocated[place]),
            reserved=reserved,
            where=shown_place(self._frames.places[where]),
        )
        limit = None if free < 0 else reserved + free
        return replace(history, ran_out=failure, failed_at=place, limit=limit)


def _with_steps(history: MemoryHistory) -> MemoryHistory:
    """Mark where forward begins behind the optimizer; behind backward where the optimizer allocates nothing."""
    known = np.flatnonzero((history.born >= 0) & (history.phase >= MemoryPhase.FORWARD))
    known = known[np.argsort(history.born[known], kind="stable")]
    phase = history.phase[known]
    optimizers = np.count_nonzero((phase[:-1] == MemoryPhase.OPTIMIZER) & (phase[1:] != MemoryPhase.OPTIMIZER))
    before = MemoryPhase.OPTIMIZER if optimizers > 1 else MemoryPhase.BACKWARD
    begins = np.flatnonzero((phase[:-1] == before) & (phase[1:] == MemoryPhase.FORWARD)) + 1
    return replace(history, marks=history.born[known[begins]])


def _back(deltas: Ints, end: int) -> Ints:
    after: Ints = np.concatenate((np.cumsum(deltas[::-1])[::-1][1:], np.zeros(1, dtype=np.int64)))
    return end - after


def _clock(times: Sequence[int]) -> tuple[Ints, bool]:
    """Return nanoseconds where all events have a time, else their numbers; rising, as two threads may cross."""
    found = np.array(times, dtype=np.int64)
    if (found >= 0).all() and found.any():
        return np.maximum.accumulate(found) * NS_PER_US, True
    return np.arange(len(found), dtype=np.int64), False


def _asked(block: dict[str, Any], size: int) -> tuple[int, Any]:
    """Return how much was asked for, and the stack; snapshots of PyTorch 1.13 and 2.0 have both in a history."""
    history = _list(block.get("history"))
    asked, frames = _get(block, "requested_size"), _get(block, "frames")
    if history:
        asked = _get(history[0], "real_size") if asked is None else asked
        frames = _get(history[0], "frames") if frames is None else frames
    asked = _size(asked)
    return (asked if 0 <= asked <= size else size), frames


def _get(entry: Any, key: str, default: Any = None) -> Any:
    return entry.get(key, default) if isinstance(entry, dict) else None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else []


def _size(value: Any) -> int:
    """Return a size in bytes; -1 for what is none."""
    return value if type(value) is int and 0 <= value < LARGEST_BYTES else -1
