"""Events of a Kineto trace to rows: what they are, by category and phase, and their columns."""

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from trainguard.kernels.columns import LONGEST_NS, Bools, Floats, Gpu, Ints, WorkKind
from trainguard.kernels.costs import COPY, first_float, inputs_text, payload, telling_strides
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
    unknown,
    whole,
)
from trainguard.kernels.readers.events import NO_ARGS, NO_MORE_ARGS, NOTHING, Args, KernelTraceEvent, MoreArgs
from trainguard.kernels.readers.merged import MergedRanks, apart, distinct
from trainguard.kernels.readers.splitter import Metadata

NS_PER_US = 1_000
MOST_GROUP = 200

LONGEST_US = LONGEST_NS / NS_PER_US
# Up to here a double of microseconds still holds each of their thousandths.
EXACT_US = float(1 << 43)

_LATEST_US = float(1 << 53)
_STEP = "ProfilerStep"
_LOADER = "enumerate(DataLoader)"
_COMPUTES, _COPIES, _SETS = (int(each) for each in (WorkKind.COMPUTE, WorkKind.MEMCPY, WorkKind.MEMSET))
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
# PyTorch's numbers of the host, and of CUDA, HIP, XPU and a backend of its own.
_HOST_DEVICE_TYPE, _GPU_DEVICE_TYPES = 0, (1, 6, 12, 20)

# A larger allocation is a broken one; so their sums fit into 64 bits.
_LARGEST_BYTES = float(1 << 40)

# Categories of Meta's accelerator, as Kineto's ActivityType names them.
_MTIA = "mtia_"

# The process that torch_npu writes the work of an NPU to, in ``trace_view.json``.
_ASCEND = "Ascend Hardware"

# The process that PyTorch gives the counters of a GPU.
_COUNTED = re.compile(r"GPU (\d{1,9}) Counters")

_MEMORY = ("", "pageable", "pinned", "device", "array", "managed", "device static", "managed static")


def nanoseconds(us: Floats) -> Ints:
    """Return microseconds as whole nanoseconds; exact where a double still holds thousandths."""
    below = np.floor(us)
    found: Ints = below.astype(np.int64) * NS_PER_US + np.rint((us - below) * NS_PER_US).astype(np.int64)
    return found


class KinetoRows:
    def __init__(self, builder: TraceBuilder, metadata: Metadata, tally: Counter[str]) -> None:
        self._builder = builder
        self._metadata = metadata
        self._tally = tally
        self._has_memory = False
        self.ranks = MergedRanks(tally)

    def add(self, events: list[KernelTraceEvent]) -> None:
        self._tally["events"] += len(events)
        sorted_in: dict[str, list[KernelTraceEvent]] = {sort: [] for sort in _SORTS}
        take = {category: sorted_in[sort].append for category, sort in _CATEGORIES.items()}
        functions: list[KernelTraceEvent] = []
        take[_PYTHON] = functions.append
        others: list[KernelTraceEvent] = []
        for event in events:
            phase = event.ph
            if phase == "X":
                try:
                    take[event.cat](event)
                except (KeyError, TypeError):
                    self._tally["mtia_events"] += isinstance(event.cat, str) and event.cat.startswith(_MTIA)
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

    def _add(self, sort: str, found: list[KernelTraceEvent]) -> None:
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

    def _add_rows(self, sort: str, events: list[KernelTraceEvent], ts: Floats, dur: Floats) -> None:
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
            telling = [
                (place, each)
                for place, each in enumerate(args)
                if each.input_types is not NOTHING or each.input_dims is not NOTHING or each.collective is not None
            ]
            columns |= self._operator_columns(events, telling)
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

    def _operator_columns(self, events: list[KernelTraceEvent], telling: list[tuple[int, Args]]) -> dict[str, Ints]:
        """Return the first type and the inputs of operators, of which some tell what they are given."""
        count = len(events)
        names, inputs = self._builder.names, unknown(count)
        types = np.full(count, names.number(""), dtype=np.int64)
        places = [place for place, _ in telling]
        types[places] = names.of([first_float(bytes(each.input_types)) for _, each in telling])
        texts = [_inputs(events[place].name, each) for place, each in telling]
        found = names.of(texts)
        found[np.array([not text for text in texts], dtype=np.bool_)] = -1
        inputs[places] = found
        return {"correlation": types, "inputs": inputs}

    def _gpu_columns(self, events: list[KernelTraceEvent], args: list[Args]) -> dict[str, Any]:
        gpus, device = gpus_of(self._metadata.deviceProperties), ints([each.device for each in args])
        kind, size = self._kinds(events, args), ints([each.bytes for each in args])
        collective = unknown(len(args))
        for place in np.flatnonzero(kind == WorkKind.COMMUNICATION).tolist():
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

    def _kinds(self, events: list[KernelTraceEvent], args: list[Args]) -> Ints:
        kinds = np.array([_GPU_KINDS[event.cat] for event in events], dtype=np.int64)
        sends = [
            each.collective is not None or communicates(str(event.name))
            for event, each in zip(events, args, strict=True)
        ]
        kinds[(kinds == WorkKind.COMPUTE) & np.array(sends, dtype=np.bool_)] = WorkKind.COMMUNICATION
        return kinds

    def _add_others(self, events: list[KernelTraceEvent]) -> None:
        """Add samples and events of memory; count what says which work a trace holds that is not read."""
        memory = []
        for event in events:
            if event.ph == "C":
                self._add_sample(event)
            elif event.name == "[memory]":
                memory.append(event)
            elif event.ph == "B":
                self._tally["begin_events"] += 1
            elif event.name == "process_name":
                self._tally["ascend_processes"] += _more(event).name == _ASCEND
        if memory:
            self._add_memory(memory)

    def _add_memory(self, events: list[KernelTraceEvent]) -> None:
        args = [_more(event) for event in events]
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

    def _add_sample(self, event: KernelTraceEvent) -> None:
        gpu = _COUNTED.fullmatch(event.pid) if isinstance(event.pid, str) else None
        if gpu and event.args is not None:
            args = _more(event)
            value = args.value if args.counted is None else args.counted
            self._builder.count(int(gpu[1]), str(event.name), floats([value]))


def _more(event: KernelTraceEvent) -> MoreArgs:
    return event.args if isinstance(event.args, MoreArgs) else NO_MORE_ARGS


def _is_module(name: Any) -> bool:
    return type(name) is str and name.startswith(_MODULE)


def _inputs(name: Any, args: Args) -> str:
    shapes, strides = bytes(args.input_dims), b""
    if args.input_strides is not NOTHING:
        strides = telling_strides(shapes, bytes(args.input_strides), is_copy=name == COPY)
    return inputs_text(shapes, bytes(args.input_types), bytes(args.input_values), strides)


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


def _work_name(event: KernelTraceEvent) -> Any:
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


def _chosen(events: list[KernelTraceEvent], mask: Bools) -> list[KernelTraceEvent]:
    return [event for event, kept in zip(events, mask.tolist(), strict=True) if kept]


def _annotations_among(events: list[KernelTraceEvent]) -> Bools | None:
    texts = distinct([event.name for event in events])
    if not any(type(text) is str and text.startswith((_STEP, _LOADER)) for text in texts):
        return None
    return np.array([str(event.name).startswith((_STEP, _LOADER)) for event in events], dtype=np.bool_)


def gpus_of(properties: Any) -> list[Gpu]:
    """Return the GPUs that a trace describes."""
    if not isinstance(properties, list):
        return []
    wanted = ("totalGlobalMem", "computeMajor", "computeMinor", "numSms")
    return [
        described(str(each.get("name", "")), *map(each.get, wanted)) for each in properties if isinstance(each, dict)
    ]
