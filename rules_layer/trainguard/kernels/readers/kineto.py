"""A PyTorch (Kineto) trace, old or new, CUDA or ROCm, to columns: streamed, and as far as it can be read."""

import gc
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import LONGEST_NS, Bools, Floats, Framework, Gpu, Ints, Kind, Trace
from trainguard.kernels.costs import first_float, inputs_text, payload
from trainguard.kernels.entries import Collective
from trainguard.kernels.names.families import communicates
from trainguard.kernels.readers.builder import (
    DIRECTIONS,
    TraceBuilder,
    described,
    floats,
    ints,
    memcpy_name,
    memset_name,
    sequences,
    text_chunks,
    unknown,
    whole,
)
from trainguard.kernels.readers.merged import MergedRanks, apart
from trainguard.kernels.readers.splitter import NO_ARGS, NOTHING, Args, Event, EventSplitter, Metadata

if TYPE_CHECKING:
    from trainguard.core.ports import ByteStream

NS_PER_US = 1_000
MOST_GROUP = 200

LONGEST_US = LONGEST_NS / NS_PER_US
EXACT_US = float(1 << 43)
"""Up to here a double of microseconds still holds each of their thousandths."""

_LATEST_US = float(1 << 53)
_STEP = "ProfilerStep"
_LOADER = "enumerate(DataLoader)"
_COMPUTES, _COPIES, _SETS = (int(each) for each in (Kind.COMPUTE, Kind.MEMCPY, Kind.MEMSET))
_GPU_KINDS = {"kernel": _COMPUTES, "gpu_memcpy": _COPIES, "gpu_memset": _SETS}
_GPU_KINDS |= {"Kernel": _COMPUTES, "Memcpy": _COPIES, "Memset": _SETS}
_HOST = {
    "cuda_runtime": "launches",
    "cuda_driver": "launches",
    "Runtime": "launches",
    "xpu_runtime": "launches",
    "privateuse1_runtime": "launches",
    "privateuse1_driver": "launches",
    "user_annotation": "annotations",
    "gpu_user_annotation": "gpu_annotations",
    "cuda_sync": "waits",
    "cpu_op": "operators",
    "Operator": "operators",
    "overhead": "overhead",
}
_CATEGORIES = _HOST | dict.fromkeys(_GPU_KINDS, "gpu")
_SORTS = sorted(set(_CATEGORIES.values()))
_PYTHON = "python_function"
_MODULE = "nn.Module: "
_HOST_DEVICE_TYPE, _GPU_DEVICE_TYPES = 0, (1, 6, 12, 20)
"""PyTorch's numbers of the host, and of CUDA, HIP, XPU and a backend of its own."""

_LARGEST_BYTES = float(1 << 40)
"""A larger allocation is a broken one; so their sums fit into 64 bits."""

_MTIA = "mtia_"
"""Categories of Meta's accelerator, as Kineto's ActivityType names them."""

_ASCEND = "Ascend Hardware"
"""The process that torch_npu writes the work of an NPU to, in ``trace_view.json``."""

_COUNTED = re.compile(r"GPU (\d{1,9}) Counters")
"""The process that PyTorch gives the counters of a GPU."""

_MEMORY = ("", "pageable", "pinned", "device", "array", "managed", "device static", "managed static")


def read_trace(name: str, stream: "ByteStream") -> Trace:
    """Read a trace, plain or gzip; a rank is looked for in ``name`` last. KernelTraceError when nothing can be read."""
    tally: Counter[str] = Counter()
    builder = TraceBuilder(name, tally)
    splitter = EventSplitter(name, tally)
    sorter = _Sorter(builder, splitter.metadata, tally)
    with _without_collector():
        for events in splitter.batches(text_chunks(name, stream, tally)):
            sorter.add(events)
            events.clear()  # else they are held until the next batch is decoded
    if not tally["events"] and (tally["truncated_gzip"] or tally["unreadable_events"] or tally["cut_off"]):
        raise KernelTraceError(name, "not one of its events is whole, expected a Chrome trace")
    sorter.ranks.count_mixed()
    metadata = splitter.metadata
    distributed = metadata.distributedInfo if isinstance(metadata.distributedInfo, dict) else {}
    backend = distributed.get("backend")
    return builder.build(
        rank=_known(distributed.get("rank")),
        world_size=_known(distributed.get("world_size")),
        base_ns=max(whole(metadata.baseTimeNanoseconds), 0),
        gpus=_gpus(metadata.deviceProperties),
        framework=Framework.PYTORCH,
        backend=backend[:MOST_GROUP] if isinstance(backend, str) else "",
        software=_software(metadata) | {"nccl": distributed.get("nccl_version")},
    )


_VERSIONS = {
    "CUDA runtime": "cuda_runtime_version",
    "CUDA driver": "cuda_driver_version",
    "HIP runtime": "hip_runtime_version",
    "HIP driver": "hip_driver_version",
}
OPTIONS = ("record_shapes", "with_stack", "profile_memory")
"""Of the profiler, which slow the host down. Kineto writes 1 and true, and the default not at all."""


def _software(metadata: Metadata) -> dict[str, Any]:
    """Return the versions as CUDA and HIP count them, 12040 for 12.4, and the options as on and off."""
    versions = {name: _version(getattr(metadata, field)) for name, field in _VERSIONS.items()}
    options = {each: "off" if getattr(metadata, each) in (0, None, "0", "false") else "on" for each in OPTIONS}
    return versions | options


def _version(value: Any) -> str:
    found = whole(value)
    if found <= 0:
        return ""
    # HIP counts 60032830 for 6.0.32830.
    return (
        f"{found // 1_000}.{found % 1_000 // 10}" if found < 1_000_000 else f"{found // 10**7}.{found // 10**5 % 100}"
    )


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


class _Sorter:
    def __init__(self, builder: TraceBuilder, metadata: Metadata, tally: Counter[str]) -> None:
        self._builder = builder
        self._metadata = metadata
        self._tally = tally
        self._has_memory = False
        self.ranks = MergedRanks(tally)

    def add(self, events: list[Event]) -> None:
        self._tally["events"] += len(events)
        sorted_in: dict[str, list[Event]] = {sort: [] for sort in _SORTS}
        take = {category: sorted_in[sort].append for category, sort in _CATEGORIES.items()}
        functions: list[Event] = []
        take[_PYTHON] = functions.append
        others: list[Event] = []
        count_mtia = self._count_mtia
        for event in events:
            phase = event.ph
            if phase == "X":
                category = event.cat
                if type(category) is str:
                    take.get(category, count_mtia)(event)
            elif phase not in {"s", "f"}:  # arrows, a third of a trace
                others.append(event)
        self._add_others(others)
        sorted_in["modules"] = [event for event in functions if _is_module(event.name)]
        # PyTorch writes functions behind the events of memory; of other traces nobody asks for them.
        sorted_in["functions"] = functions if self._has_memory else []
        self.ranks.launch([event.pid for event in sorted_in["launches"]])
        for sort, found in sorted_in.items():
            if found:
                self._add(sort, found)

    def _add(self, sort: str, found: list[Event]) -> None:
        ts, dur = floats([event.ts for event in found]), floats([event.dur for event in found])
        good = (dur >= 0) & (dur <= LONGEST_US) & (np.abs(ts) < _LATEST_US)
        if not good.all():
            self._tally["bad_times"] += int((~good).sum())
            found, ts, dur = _chosen(found, good), ts[good], dur[good]
        if sort == "operators":
            # Traces of 2021 have their annotations among the operators.
            marked = _annotations_among(found)
            if marked is not None:
                self._add_rows("annotations", _chosen(found, marked), ts[marked], dur[marked])
                found, ts, dur = _chosen(found, ~marked), ts[~marked], dur[~marked]
        self._add_rows(sort, found, ts, dur)

    def _add_rows(self, sort: str, events: list[Event], ts: Floats, dur: Floats) -> None:
        args = [event.args or NO_ARGS for event in events]
        self._tally["rounded_times"] += int(((ts > EXACT_US) & (ts != np.floor(ts))).sum())
        starts, names = nanoseconds(ts), self._builder.names
        lanes = [each.stream for each in args] if sort in ("gpu", "waits") else [event.tid for event in events]
        places = self.ranks.places([event.pid for event in events])
        if places is not None:
            lanes = self.ranks.lanes(places, lanes)
        columns: dict[str, Any] = {
            "start": starts,
            "end": starts + nanoseconds(dur),
            "name": names.of(
                [_work_name(event) for event in events] if sort == "gpu" else [each.name for each in events]
            ),
            "lane": names.of(lanes),
            "operator": ints([each.old_external_id if each.external_id is None else each.external_id for each in args]),
        }
        telling = []
        if sort == "operators":
            telling = [(place, each) for place, each in enumerate(args) if _tells(each)]
            columns |= self._operator_columns(len(args), telling)
            columns["sequence"] = sequences([each.sequence for each in args])
        else:
            columns["correlation"] = ints([each.correlation for each in args])
        if sort == "gpu":
            columns |= self._gpu_columns(events, args)
        if places is not None:
            columns["operator"] = apart(columns["operator"], places)
            if sort != "operators":
                columns["correlation"] = apart(columns["correlation"], places)
            if sort == "gpu":
                columns["device"] = self.ranks.devices(places, columns["device"])
        self._builder.add(sort, **columns)
        for place, each in telling:
            if each.collective is not None:
                self._builder.call(int(columns["operator"][place]), _collective(each), _payload(each))

    def _operator_columns(self, count: int, telling: list[tuple[int, Args]]) -> dict[str, Ints]:
        """Return the first type and the inputs of operators, of which some tell what they are given."""
        names, inputs = self._builder.names, unknown(count)
        types = np.full(count, names.number(""), dtype=np.int64)
        places = [place for place, _ in telling]
        types[places] = names.of([first_float(bytes(each.input_types)) for _, each in telling])
        held = [(each.input_dims, each.input_types, each.input_values) for _, each in telling]
        texts = [inputs_text(*map(bytes, each)) for each in held]
        found = names.of(texts)
        found[np.array([not text for text in texts], dtype=np.bool_)] = -1
        inputs[places] = found
        return {"correlation": types, "inputs": inputs}

    def _gpu_columns(self, events: list[Event], args: list[Args]) -> dict[str, Any]:
        gpus, device = _gpus(self._metadata.deviceProperties), ints([each.device for each in args])
        kind, size = self._kinds(events, args), ints([each.bytes for each in args])
        collective = unknown(len(args))
        for place in np.flatnonzero(kind == Kind.COMMUNICATION).tolist():
            each = args[place]
            if each.collective is not None:
                collective[place] = self._builder.collective(_collective(each))
                size[place] = _payload(each)
        blocks = floats([each.blocks_per_sm for each in args])
        for place in np.flatnonzero(np.isnan(blocks)).tolist():
            if args[place].blocks_per_sm is None:
                blocks[place] = _blocks(args[place].grid, int(device[place]), gpus)
        return {
            "kind": kind,
            "device": device,
            "size": size,
            "blocks_per_sm": blocks,
            "occupancy": floats([each.occupancy for each in args]),
            "collective": collective,
        }

    def _kinds(self, events: list[Event], args: list[Args]) -> Ints:
        kinds = np.array([_GPU_KINDS[event.cat] for event in events], dtype=np.int64)
        for place in np.flatnonzero(kinds == Kind.COMPUTE).tolist():
            if args[place].collective is not None or communicates(str(events[place].name)):
                kinds[place] = Kind.COMMUNICATION
        return kinds

    def _count_mtia(self, event: Event) -> None:
        if event.cat.startswith(_MTIA):
            self._tally["mtia_events"] += 1

    def _add_others(self, events: list[Event]) -> None:
        """Add samples and events of memory; count what says which work a trace holds that is not read."""
        memory = []
        for event in events:
            if event.ph == "C":
                self._add_sample(event)
            elif event.name == "[memory]":
                memory.append(event)
            elif event.ph == "B":
                self._tally["begin_events"] += 1
            elif event.name == "process_name" and event.args is not None:
                self._tally["ascend_processes"] += event.args.name == _ASCEND
        if memory:
            self._add_memory(memory)

    def _add_memory(self, events: list[Event]) -> None:
        args = [event.args or NO_ARGS for event in events]
        kind, ts = ints([each.device_type for each in args]), floats([event.ts for event in events])
        size, held, reserved = (
            floats([getattr(each, name) for each in args]) for name in ("size", "allocated", "reserved")
        )
        on_gpu = np.isin(kind, _GPU_DEVICE_TYPES)
        known = (np.abs(ts) < _LATEST_US) & (np.abs(size) < _LARGEST_BYTES) & (on_gpu | (kind == _HOST_DEVICE_TYPE))
        device = np.where(on_gpu, ints([each.device_id for each in args]), -1)
        columns = {
            "at": nanoseconds(np.where(np.abs(ts) < _LATEST_US, ts, 0.0)),
            "device": device,
            "address": ints([each.address for each in args]),
            "size": np.where(known, size, 0.0),
            "allocated": _sizes(held),
            "reserved": _sizes(reserved),
            "lane": self._builder.names.of([event.tid for event in events]),
        }
        self._tally["bad_memory_events"] += int((~known & (columns["reserved"] < 0)).sum())
        self._builder.add("memory", kept=known, **columns)
        for place in np.flatnonzero(on_gpu & (columns["reserved"] > 0)).tolist():
            self._builder.reserve(int(device[place]), int(columns["reserved"][place]), int(columns["at"][place]))
        self._has_memory = True

    def _add_sample(self, event: Event) -> None:
        gpu = _COUNTED.fullmatch(event.pid) if isinstance(event.pid, str) else None
        if gpu and event.args is not None:
            value = event.args.value if event.args.counted is None else event.args.counted
            self._builder.count(int(gpu[1]), str(event.name), floats([value]))


def _tells(args: Args) -> bool:
    """Whether an operator says what it is given."""
    return args.input_types is not NOTHING or args.input_dims is not NOTHING or args.collective is not None


def _is_module(name: Any) -> bool:
    return type(name) is str and name.startswith(_MODULE)


def _collective(args: Args) -> Collective:
    size = whole(args.group_size)
    group = [str(each)[:MOST_GROUP] for each in (args.group_description, args.group_name) if each not in (None, "")]
    return Collective(
        name=str(args.collective)[:MOST_GROUP],
        group=" ".join(group),
        group_size=size if size > 0 else None,
        dtype=str(args.dtype or "")[:MOST_GROUP],
    )


def _payload(args: Args) -> int:
    return payload(whole(args.elements_in), whole(args.elements_out), str(args.dtype or ""))


def _blocks(grid: Any, device: int, gpus: list[Gpu]) -> float:
    """Return the blocks per multiprocessor of a grid; NaN where it is not known."""
    sms = gpus[device].sms if 0 <= device < len(gpus) else 0
    sizes = [whole(each) for each in grid] if isinstance(grid, list) else []
    return math.prod(map(float, sizes)) / sms if sms and min(sizes, default=0) > 0 else math.nan


def _work_name(event: Event) -> Any:
    args = event.args
    if args is None or event.name not in ("Memcpy", "Memset"):
        return event.name
    if event.name == "Memset":
        kind = whole(args.memory_kind)
        return memset_name(_MEMORY[kind] if 0 <= kind < len(_MEMORY) else "")
    way = args.copy_kind if isinstance(args.copy_kind, str) else DIRECTIONS.get(whole(args.copy_kind), "")
    return memcpy_name(way, *(str(each or "").replace("_", " ") for each in (args.source_kind, args.target_kind)))


def _sizes(values: Floats) -> Ints:
    """Return sizes in bytes; -1 for what is none."""
    good = (values >= 0) & (values < _LARGEST_BYTES)
    return np.where(good, values, -1.0).astype(np.int64)


def _chosen(events: list[Event], mask: Bools) -> list[Event]:
    return [event for event, kept in zip(events, mask.tolist(), strict=True) if kept]


def _annotations_among(events: list[Event]) -> Bools | None:
    texts = {event.name for event in events if type(event.name) is str}
    if not any(text.startswith((_STEP, _LOADER)) for text in texts):
        return None
    return np.array([str(event.name).startswith((_STEP, _LOADER)) for event in events], dtype=np.bool_)


def _known(value: Any) -> int | None:
    known = whole(value)
    return known if known >= 0 else None


def _gpus(properties: Any) -> list[Gpu]:
    if not isinstance(properties, list):
        return []
    wanted = ("totalGlobalMem", "computeMajor", "computeMinor", "numSms")
    return [
        described(str(each.get("name", "")), *map(each.get, wanted)) for each in properties if isinstance(each, dict)
    ]
