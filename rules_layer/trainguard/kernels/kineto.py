"""A PyTorch (Kineto) trace, old or new, CUDA or ROCm, to columns: streamed, and as far as it can be read."""

import gc
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from trainguard.errors import KernelTraceError
from trainguard.kernels.columns import Floats, Gpu, GpuRows, Ints, Kind, Names, RowBuilder, Trace, as_floats, as_ints
from trainguard.kernels.events import NO_ARGS, Event, number, whole
from trainguard.kernels.splitter import EventSplitter, Metadata
from trainguard.kernels.unpacking import text_chunks
from trainguard.ports import ByteStream

NS_PER_US = 1_000
LONGEST_US = 7 * 24 * 3600 * 1e6
"""A longer event is a broken one: HTA, too, drops it."""

EXACT_US = float(1 << 43)
"""Up to here a double of microseconds still holds each of their thousandths."""

_LATEST_US = float(1 << 53)
_STEP = "ProfilerStep"
_LOADER = "enumerate(DataLoader)"
_COMMUNICATION = re.compile(r"nccl|rccl|hccl|oneccl|msccl", re.IGNORECASE)
_GPU_KINDS = {"kernel": Kind.COMPUTE, "gpu_memcpy": Kind.MEMCPY, "gpu_memset": Kind.MEMSET}
_GPU_KINDS |= {"Kernel": Kind.COMPUTE, "Memcpy": Kind.MEMCPY, "Memset": Kind.MEMSET}
_HOST = {
    "cuda_runtime": "launches",
    "cuda_driver": "launches",
    "Runtime": "launches",
    "user_annotation": "annotations",
    "gpu_user_annotation": "gpu_annotations",
    "cuda_sync": "waits",
    "cpu_op": "operators",
    "Operator": "operators",
    "overhead": "overhead",
}
_GPU_DEVICE_TYPE = 1


def read_trace(name: str, stream: ByteStream) -> Trace:
    """Read a trace.

    Parameters
    ----------
    name : str
        The file's name: named in errors, and the last place that a rank is looked for.
    stream : ByteStream
        Plain or gzip.

    Raises
    ------
    KernelTraceError
        When it is no Chrome trace, or nothing of it can be read.
    """
    tally: Counter[str] = Counter()
    builder = _TraceBuilder(tally)
    splitter = EventSplitter(name, tally)
    with _without_collector():
        for events in splitter.batches(text_chunks(name, stream, tally)):
            builder.add(events)
    if not tally["events"] and (tally["truncated_gzip"] or tally["unreadable_events"] or tally["cut_off"]):
        raise KernelTraceError(name, "not one of its events is whole, expected a Chrome trace")
    return builder.build(name, splitter.metadata)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the cyclic collector from walking over events: none of them is in a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def nanoseconds(us: Floats) -> Ints:
    """Return microseconds as whole nanoseconds; exact where a double still holds thousandths."""
    below = np.floor(us)
    found: Ints = below.astype(np.int64) * NS_PER_US + np.rint((us - below) * NS_PER_US).astype(np.int64)
    return found


class _TraceBuilder:
    def __init__(self, tally: Counter[str]) -> None:
        self._tally = tally
        self._names = Names()
        self._rows = {sort: RowBuilder() for sort in {"gpu", *_HOST.values()}}
        self._kind, self._device, self._size = array("q"), array("q"), array("q")
        self._blocks, self._occupancy = array("d"), array("d")
        self._reserved: dict[int, int] = {}

    def add(self, events: list[Event]) -> None:
        """Add the wanted ones of a batch."""
        self._tally["events"] += len(events)
        sorted_in: dict[str, list[Event]] = {}
        for event in events:
            category = event.cat
            if category == "python_function":
                continue
            if event.ph == "X" and type(category) is str:
                sort = "gpu" if category in _GPU_KINDS else _HOST.get(category)
                if sort is not None:
                    sorted_in.setdefault(sort, []).append(event)
            elif event.name == "[memory]":
                self._add_reserved(event)
        for sort, found in sorted_in.items():
            self._add(sort, found)

    def _add(self, sort: str, found: list[Event]) -> None:
        ts, dur = _floats([event.ts for event in found]), _floats([event.dur for event in found])
        good = (dur >= 0) & (dur <= LONGEST_US) & (np.abs(ts) < _LATEST_US)
        timed = found if good.all() else [event for event, kept in zip(found, good, strict=True) if kept]
        self._tally["bad_times"] += len(found) - len(timed)
        if sort == "operators":
            # Traces of 2021 have their annotations among the operators.
            named = [event for event in timed if _is_annotation(event)]
            if named:
                self._add_rows("annotations", named)
                timed = [event for event in timed if not _is_annotation(event)]
        self._add_rows(sort, timed)
        if sort == "gpu":
            self._add_gpu(timed)

    def _add_rows(self, sort: str, events: list[Event]) -> None:
        args = [event.args or NO_ARGS for event in events]
        ts = _floats([event.ts for event in events])
        self._tally["rounded_times"] += int(((ts > EXACT_US) & (ts != np.floor(ts))).sum())
        starts = nanoseconds(ts)
        lanes = [each.stream for each in args] if sort in ("gpu", "waits") else [event.tid for event in events]
        self._rows[sort].extend(
            (
                starts,
                starts + nanoseconds(_floats([event.dur for event in events])),
                self._names.of([event.name for event in events]),
                self._names.of(lanes),
                self._names.of([_first_float(each.input_types) for each in args])
                if sort == "operators"
                else _ints([each.correlation for each in args]),
                _ints([each.old_external_id if each.external_id is None else each.external_id for each in args]),
            )
        )

    def _add_gpu(self, events: list[Event]) -> None:
        args = [event.args or NO_ARGS for event in events]
        self._kind.extend(_kind(event) for event in events)
        self._device.extend(whole(each.device) for each in args)
        self._size.extend(whole(each.bytes) for each in args)
        self._blocks.extend(number(each.blocks_per_sm) for each in args)
        self._occupancy.extend(number(each.occupancy) for each in args)

    def _add_reserved(self, event: Event) -> None:
        args = event.args or NO_ARGS
        if whole(args.device_type) == _GPU_DEVICE_TYPE:
            device = whole(args.device_id)
            self._reserved[device] = max(self._reserved.get(device, 0), whole(args.reserved))

    def build(self, name: str, metadata: Metadata) -> Trace:
        """Return the trace."""
        distributed = metadata.distributedInfo if isinstance(metadata.distributedInfo, dict) else {}
        rows = {sort: builder.build() for sort, builder in self._rows.items()}
        gpu = GpuRows(
            rows=rows.pop("gpu"),
            kind=as_ints(self._kind),
            device=as_ints(self._device),
            size=as_ints(self._size),
            blocks_per_sm=as_floats(self._blocks),
            occupancy=as_floats(self._occupancy),
        )
        return Trace(
            name=name,
            rank=_known(distributed.get("rank")),
            world_size=_known(distributed.get("world_size")),
            base_ns=max(whole(metadata.baseTimeNanoseconds), 0),
            names=self._names.texts(),
            gpus=_gpus(metadata.deviceProperties),
            gpu=gpu,
            reserved=self._reserved,
            tally={what: count for what, count in sorted(self._tally.items()) if count},
            **rows,
        )


def _floats(values: list[Any]) -> Floats:
    """Return numbers; NaN for what is none."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([number(value) for value in values], dtype=np.float64)


def _ints(values: list[Any]) -> Ints:
    """Return whole numbers; -1 for what is none."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([whole(value) for value in values], dtype=np.int64)


def _is_annotation(event: Event) -> bool:
    return type(event.name) is str and event.name.startswith((_STEP, _LOADER))


def _kind(event: Event) -> int:
    kind = _GPU_KINDS[event.cat]
    if kind is not Kind.COMPUTE:
        return kind
    collective = event.args is not None and event.args.collective is not None
    return Kind.COMMUNICATION if collective or _communicates(str(event.name)) else Kind.COMPUTE


@lru_cache(maxsize=4_096)
def _communicates(name: str) -> bool:
    return _COMMUNICATION.search(name) is not None


def _first_float(types: Any) -> str:
    """Return the first floating type among an operator's inputs; empty where there is none."""
    if not isinstance(types, list):
        return ""
    for each in types:
        if isinstance(each, str) and ("float" in each or "Float" in each or "Half" in each or each == "double"):
            return each
    return ""


def _known(value: Any) -> int | None:
    known = whole(value)
    return known if known >= 0 else None


def _gpus(properties: Any) -> list[Gpu]:
    if not isinstance(properties, list):
        return []
    return [
        Gpu(
            name=str(each.get("name", "")),
            memory=max(whole(each.get("totalGlobalMem")), 0),
            capability=(max(whole(each.get("computeMajor")), 0), max(whole(each.get("computeMinor")), 0)),
            sms=max(whole(each.get("numSms")), 0),
        )
        for each in properties
        if isinstance(each, dict)
    ]
