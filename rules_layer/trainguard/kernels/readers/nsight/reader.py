"""An export of Nsight Systems to columns, table by table."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trainguard.core.errors import KernelTraceError
from trainguard.kernels.columns import LATEST_NS, LONGEST_NS, Bools, Floats, Gpu, Ints, Trace, WorkKind
from trainguard.kernels.costs import inputs_text
from trainguard.kernels.names.families import communicates
from trainguard.kernels.readers.builder import (
    DIRECTIONS,
    TraceBuilder,
    by_number,
    call_name,
    described,
    floats,
    ints,
    memcpy_name,
    memset_name,
    sequences,
    text_of,
    whole,
)
from trainguard.kernels.readers.nsight.database import Export

_OF_PROCESS = ~np.int64(0xFFFFFF)
_PID_SHIFT, _PID_MASK = 24, 0xFFFFFF
_CORRELATION_BITS = 32
_CORRELATION_MASK = (1 << _CORRELATION_BITS) - 1
GPU_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


class Processes:
    """Gives each process a number, in the order of their first appearance."""

    def __init__(self, export: Export) -> None:
        held = [export.columns[table] for table in GPU_TABLES if table in export.columns]
        # Old exports do not say whose work it is: then all of it is one process's.
        self._known = all("globalPid" in columns for columns in held)
        self._numbers: dict[int, int] = {}
        self._gpus: dict[tuple[int, int], int] = {}
        for gpu, cuda, pid in export.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")):
            for number, ordinal, process in zip(ints(gpu), ints(cuda), ints(pid), strict=True):
                self._gpus[int(process), int(ordinal)] = int(number)

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, identities: Ints) -> Ints:
        if not self._known:
            return np.zeros(len(identities), dtype=np.int64)
        found, place = np.unique(identities & _OF_PROCESS, return_inverse=True)
        known = [self._numbers.setdefault(int(each), len(self._numbers)) for each in found]
        return np.array(known, dtype=np.int64)[place]

    def correlations(self, identities: Ints, correlations: Ints) -> Ints:
        """Return what joins a launch and its work; -1 where it is not known."""
        joined = self.numbers(identities) << _CORRELATION_BITS | (correlations & _CORRELATION_MASK)
        return np.where(correlations > 0, joined, -1)

    def devices(self, identities: Ints, ordinals: Ints) -> Ints:
        if not self._gpus:
            return ordinals
        pids = (identities >> _PID_SHIFT) & _PID_MASK
        found, place = np.unique(np.stack([pids, ordinals]), axis=1, return_inverse=True)
        pairs = zip(found[0].tolist(), found[1].tolist(), strict=True)
        known = [self._gpus.get(pair, pair[1]) for pair in pairs]
        return np.array(known, dtype=np.int64)[place.reshape(-1)]


KERNELS, COPIES, SETS = GPU_TABLES
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS, WAITS = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RANGES, OVERHEAD = "NVTX_EVENTS", "PROFILER_OVERHEAD"
_TABLES = (KERNELS, COPIES, SETS, GRAPHS, CALLS, WAITS, RANGES)
COUNTERS, SAMPLES = "TARGET_INFO_GPU_METRICS", "GPU_METRICS"
_LOW_HALF = 0xFFFFFFFF
_WORK = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
_PUSH_POP, _START_END = 59, 60
# Of a grid, in blocks.
_LONGEST_SIDE = (1 << 31) - 1

_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_STEP = re.compile(
    r"(?:ProfilerStep|(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?))[ #:=_-]*(\d{1,18})", re.IGNORECASE
)
_OPERATOR = re.compile(r"(?:aten|autograd|c10d)::\w")
# What `emit_nvtx` writes: ``getNvtxStr`` in PyTorch's ``torch/csrc/profiler/util.cpp``.
_NVTX = re.compile(
    r"(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[[^a-z]*\]))?"
    r"(?:, input_op_ids = .*)?",
    re.DOTALL,
)


def read_nsight(name: str, path: Path) -> Trace:
    """Read an export, a file that nobody writes to; raises KernelTraceError when it is none, or unreadable."""
    tally: Counter[str] = Counter()
    with Export(name, path, tally) as export:
        if not any(table in export.columns for table in _TABLES):
            raise KernelTraceError(name, f"it has none of the tables {', '.join(_TABLES)}, expected an nsys export")
        return _ExportReader(name, export, tally).read()


class _ExportReader:
    def __init__(self, name: str, export: Export, tally: Counter[str]) -> None:
        self._export = export
        self._tally = tally
        self._builder = TraceBuilder(name, tally)
        self._processes = Processes(export)
        self._gpus = _gpus(export)

    def read(self) -> Trace:
        self._read_kernels()
        self._read_graphs()
        self._read_copies()
        self._read_sets()
        self._read_calls()
        self._read_waits()
        self._read_ranges()
        self._read_overhead()
        self._read_counters()
        if len(self._processes) > 1:
            self._tally["processes"] = len(self._processes)
        return self._builder.build(base_ns=_base_ns(self._export), gpus=self._gpus, software=_software(self._export))

    def _read_kernels(self) -> None:
        more = ("demangledName", "shortName", "gridX", "gridY", "gridZ")
        for *work, demangled, short, x, y, z in self._export.rows(KERNELS, (*_WORK, *more)):
            names = [self._export.text(a) or self._export.text(b) for a, b in zip(demangled, short, strict=True)]
            kinds = [WorkKind.COMMUNICATION if communicates(name) else WorkKind.COMPUTE for name in names]
            self._add_work(work, names, ints(kinds), blocks=_blocks(x, y, z))

    def _read_graphs(self) -> None:
        """Add CUDA graphs that were traced as a whole: one row each, without their kernels."""
        for *work, graphs in self._export.rows(GRAPHS, (*_WORK, "graphId")):
            names = [f"CUDA graph {whole(graph)}" for graph in graphs]
            self._tally["whole_graphs"] += len(names)
            self._add_work(work, names, WorkKind.COMPUTE)

    def _read_copies(self) -> None:
        more = ("bytes", "copyKind", "srcKind", "dstKind")
        for *work, sizes, kinds, sources, targets in self._export.rows(COPIES, (*_WORK, *more)):
            names = [
                memcpy_name(
                    DIRECTIONS.get(whole(kind), ""), _MEMORY.get(whole(source), ""), _MEMORY.get(whole(target), "")
                )
                for kind, source, target in zip(kinds, sources, targets, strict=True)
            ]
            self._add_work(work, names, WorkKind.MEMCPY, ints(sizes))

    def _read_sets(self) -> None:
        for *work, sizes, kinds in self._export.rows(SETS, (*_WORK, "bytes", "memKind")):
            names = [memset_name(_MEMORY.get(whole(kind), "")) for kind in kinds]
            self._add_work(work, names, WorkKind.MEMSET, ints(sizes))

    def _add_work(
        self,
        work: Sequence[list[Any]],
        names: list[str],
        kind: Ints | WorkKind,
        size: Ints | None = None,
        blocks: Floats | None = None,
    ) -> None:
        start, end, process, device, stream, correlation = (ints(each) for each in work)
        device = self._processes.devices(process, device)
        sms = np.array([0, *(gpu.sms for gpu in self._gpus)], dtype=np.float64)
        mine = sms[np.where((device >= 0) & (device < len(self._gpus)), device + 1, 0)]
        filled = np.full(len(names), np.nan)
        if blocks is not None:
            np.divide(blocks, mine, out=filled, where=(mine > 0) & (blocks > 0))
        pairs = zip(self._processes.numbers(process).tolist(), stream.tolist(), strict=True)
        self._builder.add(
            "gpu",
            self._good(start, end),
            start=start,
            end=end,
            name=self._builder.names.of(names),
            lane=self._builder.names.of([f"{each}:{lane}" if each else str(lane) for each, lane in pairs]),
            correlation=self._processes.correlations(process, correlation),
            kind=np.full(len(names), kind),
            device=device,
            size=size,
            blocks_per_sm=filled,
        )

    def _read_calls(self) -> None:
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for start, end, thread, correlation, name in self._export.rows(CALLS, wanted):
            shown = [call_name(self._export.text(each)) for each in name]
            identity = ints(thread)
            self._add("launches", start, end, thread, shown, self._processes.correlations(identity, ints(correlation)))

    def _read_waits(self) -> None:
        wanted = ("start", "end", "globalPid", "streamId", "correlationId", "syncType")
        for start, end, process, stream, correlation, kind in self._export.rows(WAITS, wanted):
            shown = [_WAITS.get(whole(each), "Sync") for each in kind]
            self._add(
                "waits", start, end, stream, shown, self._processes.correlations(ints(process), ints(correlation))
            )

    def _read_ranges(self) -> None:
        wanted = ("start", "end", "eventType", "globalTid", "text", "textId")
        for start, end, kind, thread, text, number in self._export.rows(RANGES, wanted):
            is_range = np.isin(ints(kind), (_PUSH_POP, _START_END)) & (ints(end) >= 0)
            shown = [text_of(a) or self._export.text(b) for a, b in zip(text, number, strict=True)]
            names, operators, given, numbered = (list(column) for column in zip(*map(_range, shown), strict=True))
            is_operator = np.array(operators, dtype=bool)
            self._add("annotations", start, end, thread, names, chosen=is_range & ~is_operator)
            no_type = np.full(len(names), self._builder.names.number(""), dtype=np.int64)
            inputs = self._builder.names.of(given)
            inputs[np.array([not each for each in given], dtype=bool)] = -1
            chosen = is_range & is_operator
            self._add(
                "operators",
                start,
                end,
                thread,
                names,
                no_type,
                chosen,
                inputs=inputs,
                sequence=sequences(numbered),
            )

    def _read_overhead(self) -> None:
        for start, end, thread, name in self._export.rows(OVERHEAD, ("start", "end", "globalTid", "nameId")):
            shown = [self._export.text(each) for each in name]
            self._add("overhead", start, end, thread, shown)

    def _read_counters(self) -> None:
        named: dict[tuple[int, int], str] = {}
        for kinds, numbers, names in self._export.rows(COUNTERS, ("typeId", "metricId", "metricName")):
            for kind, number, name in zip(ints(kinds).tolist(), ints(numbers).tolist(), names, strict=True):
                named[kind, number] = text_of(name)
        for kinds, numbers, values in self._export.rows(SAMPLES, ("typeId", "metricId", "value")):
            pairs, place = np.unique(np.stack([ints(kinds), ints(numbers)]), axis=1, return_inverse=True)
            sampled = floats(values)
            for at, (kind, number) in enumerate(pairs.T.tolist()):
                if name := named.get((kind, number)):
                    self._builder.count(kind & _LOW_HALF, name, sampled[place.reshape(-1) == at])

    def _add(
        self,
        sort: str,
        start: list[Any],
        end: list[Any],
        lane: list[Any],
        names: list[str],
        correlation: Ints | None = None,
        chosen: Bools | None = None,
        **more: Any,
    ) -> None:
        begins, ends = ints(start), ints(end)
        kept = np.ones(len(names), dtype=bool) if chosen is None else chosen
        good = kept.copy()
        good[kept] = self._good(begins[kept], ends[kept])
        self._builder.add(
            sort,
            good,
            start=begins,
            end=ends,
            name=self._builder.names.of(names),
            lane=self._builder.names.of(ints(lane).tolist()),
            correlation=correlation,
            **more,
        )

    def _good(self, start: Ints, end: Ints) -> Bools:
        self._tally["events"] += len(start)
        found: Bools = (start >= 0) & (end >= start) & (end <= LATEST_NS) & (end - np.maximum(start, 0) <= LONGEST_NS)
        self._tally["bad_times"] += int((~found).sum())
        return found


def _blocks(*sides: list[Any]) -> Floats:
    """Return the blocks of grids; NaN where a side is none that a grid has."""
    found = np.ones(len(sides[0]))
    for side in sides:
        length = floats(side)
        found *= np.where((length >= 1) & (length <= _LONGEST_SIDE), length, np.nan)
    return found


@lru_cache(maxsize=16_384)
def _range(text: str) -> tuple[str, bool, str, str]:
    """Return an NVTX range's name, whether it is an operator, its inputs as of `inputs_text`, and its sequence."""
    step = _STEP.fullmatch(text)
    if step:
        return f"ProfilerStep#{int(step[1])}", False, "", ""
    said = _NVTX.fullmatch(text)
    if said is None:
        return text, False, "", ""
    name, sizes = said["name"], said["sizes"] or ""
    is_operator = bool(sizes or said["seq"] or _OPERATOR.match(name))
    return name, is_operator, inputs_text(sizes.encode(), b"[]", b"[]"), said["seq"] or ""


def _base_ns(export: Export) -> int:
    for (found,) in export.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        return int(max(ints(found)[0], 0))
    return 0


_VERSIONS = {
    ("TARGET_INFO_SYSTEM_ENV", "NvDriverVersion"): "driver",
    ("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION"): "Nsight Systems",
}


def _software(export: Export) -> dict[str, str]:
    found: dict[str, str] = {}
    for table, wanted in _VERSIONS:
        for names, values in export.rows(table, ("name", "value")):
            pairs = zip(map(text_of, names), map(text_of, values), strict=True)
            found |= {_VERSIONS[table, name]: value for name, value in pairs if name == wanted}
    return found


def _gpus(export: Export) -> list[Gpu]:
    wanted = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount")
    found: dict[int, Gpu] = {}
    for rows in export.rows("TARGET_INFO_GPU", wanted):
        for number, name, memory, major, minor, sms in zip(*rows, strict=True):
            found[whole(number)] = described(text_of(name), memory, major, minor, sms)
    return by_number(found)
