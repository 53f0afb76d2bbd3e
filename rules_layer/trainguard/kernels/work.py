"""The GPU's work in a rank's window by name: kernels, operations on memory, collectives, annotations; and durations."""

import math
import re

import numpy as np
from msgspec.structs import asdict

from trainguard.core.text import one_line
from trainguard.kernels.columns import Bools, Floats, Ints, Rows, Trace, WorkKind
from trainguard.kernels.document import AnnotationEntry
from trainguard.kernels.entries import (
    Collective,
    CollectiveEntry,
    CollectiveStepsEntry,
    Histogram,
    KernelDurations,
    KernelEntry,
    MemoryEntry,
)
from trainguard.kernels.names.families import RowFamily
from trainguard.kernels.names.kernel_names import KernelName, Precision, classify
from trainguard.kernels.peaks import link_share
from trainguard.kernels.times.metrics import RankMetrics
from trainguard.kernels.times.window import TraceWindow
from trainguard.kernels.typical import StepTable

MOST_BINS = 50
_EXACT = 1 << 62


def exact_sum(values: Ints) -> int:
    """Return the sum of numbers that are not negative, beyond 64 bits, too."""
    if len(values) and int(values.max()) * len(values) >= _EXACT:
        return sum(values.tolist())
    return int(values.sum())


def durations(values: Ints) -> KernelDurations | None:
    if not len(values):
        return None
    total = exact_sum(values)
    median, p95, p99 = np.percentile(values, (50, 95, 99))
    return KernelDurations(
        count=len(values),
        total_ns=total,
        mean_ns=round(total / len(values)),
        min_ns=int(values.min()),
        median_ns=round(float(median)),
        p95_ns=round(float(p95)),
        p99_ns=round(float(p99)),
        max_ns=int(values.max()),
        histogram=histogram(values),
    )


def histogram(values: Ints) -> Histogram:
    """Return the histogram of at least one duration; bins are whole nanoseconds wide."""
    least, spread = int(values.min()), int(values.max() - values.min())
    width = max(-(-spread // _bins(values, spread)), 1)
    count = max(-(-spread // width), 1)
    place = np.minimum((values - least) // width, count - 1)
    return Histogram(
        edges_ns=[least + width * each for each in range(count + 1)],
        counts=np.bincount(place, minlength=count).tolist(),
    )


def _bins(values: Ints, spread: int) -> int:
    low, high = np.percentile(values, (25, 75))
    count = len(values)
    wanted = spread * math.cbrt(count) / (2 * float(high - low)) if high > low else math.log2(count) + 1
    return min(max(math.ceil(wanted), 1), MOST_BINS)


# A collective's name gives the type of the bytes that it moves: ``int8_t`` is a copy.
_MOVES_BYTES = KernelName(Precision.UNKNOWN, tensor_core=False, eligible=False, family=RowFamily.COMMUNICATION)


class KernelLine(KernelEntry, frozen=True, kw_only=True):
    """All runs of one kernel in the window; ``rows`` are the GPU's, ``eligible`` says that it could use tensor cores.

    ``underfilled_ns`` is the time of runs with less than one block per multiprocessor.
    """

    eligible: bool
    underfilled_ns: int
    rows: Ints

    def entry(self) -> KernelEntry:
        return KernelEntry(**{name: getattr(self, name) for name in KernelEntry.__struct_fields__})


def kernel_lines(metrics: RankMetrics) -> list[KernelLine]:
    """Return the kernels of a rank's window, most time first."""
    trace = metrics.trace
    chosen = np.flatnonzero(metrics.in_window & (trace.gpu.kind <= WorkKind.COMMUNICATION))
    chosen = chosen[np.argsort(trace.gpu.name[chosen], kind="stable")]
    names, first = np.unique(trace.gpu.name[chosen], return_index=True)
    steps = StepTable.of(metrics)
    lines = [
        _line(metrics, trace.names[int(name)], rows, steps)
        for name, rows in zip(names, np.split(chosen, first[1:])[: len(names)], strict=True)
    ]
    return sorted(lines, key=lambda line: (-line.total_ns, line.name))


def _line(metrics: RankMetrics, name: str, rows: Ints, steps: StepTable) -> KernelLine:
    gpu = metrics.trace.gpu
    lasted = gpu.end[rows] - gpu.start[rows]
    total = exact_sum(lasted)
    communication = bool(gpu.kind[rows[0]] == WorkKind.COMMUNICATION)
    occupied = weighted(gpu.occupancy[rows], lasted)
    blocks = weighted(gpu.blocks_per_sm[rows], lasted)
    says = _MOVES_BYTES if communication else _says(metrics, name, rows)
    median, p99 = np.percentile(lasted, (50, 99))
    return KernelLine(
        name=name,
        precision=says.precision.value,
        tensor_core=says.tensor_core,
        eligible=says.eligible,
        communication=communication,
        count=len(rows),
        total_ns=total,
        mean_ns=round(total / len(rows)),
        min_ns=int(lasted.min()),
        max_ns=int(lasted.max()),
        p99_ns=round(float(p99)),
        std_ns=round(float(lasted.std())),
        median_ns=round(float(median)),
        per_step=steps.share_of(gpu.start[rows], lasted),
        launch_calls=distinct(_known(metrics.window.launch[rows])),
        short_count=_short(metrics, rows, lasted),
        operator=_operator(metrics, rows, lasted),
        occupancy=None if occupied is None else round(occupied / 100, 4),
        blocks_per_sm=None if blocks is None else round(blocks, 4),
        underfilled_ns=exact_sum(lasted[gpu.blocks_per_sm[rows] < 1]),
        family=says.family.value,
        rows=rows,
    )


def _says(metrics: RankMetrics, name: str, rows: Ints) -> KernelName:
    """Return what the name says, else what the first operator with a floating input does."""
    says = classify(name)
    if says.precision is not Precision.UNKNOWN:
        return says
    trace = metrics.trace
    typed = trace.operators.correlation[_known(metrics.operator[rows])]
    return next((classify(name, text) for each in typed.tolist() if (text := trace.names[each])), says)


def _operator(metrics: RankMetrics, rows: Ints, lasted: Ints) -> str:
    launched = metrics.operator[rows] >= 0
    if not launched.any():
        return ""
    names, place = np.unique(metrics.trace.operators.name[metrics.operator[rows][launched]], return_inverse=True)
    most = np.bincount(place, weights=lasted[launched]).argmax()
    return metrics.trace.names[int(names[most])]


def _short(metrics: RankMetrics, rows: Ints, lasted: Ints) -> int:
    launch = metrics.window.launch[rows]
    called = _lasted(metrics.trace.launches, _known(launch))
    return int((lasted[launch >= 0] < called).sum())


def _known(places: Ints) -> Ints:
    return places[places >= 0]


def distinct(values: Ints) -> int:
    """Return how many values differ; sorting whole numbers takes less time than the table of np.unique."""
    return int(np.count_nonzero(np.diff(np.sort(values)))) + bool(len(values))


def weighted(values: Floats, weights: Ints) -> float | None:
    """Return the mean of values that are known, weighted; None where none is or none has a weight."""
    known = ~np.isnan(values)
    total = int(weights[known].sum())
    return float((values[known] * weights[known]).sum()) / total if total else None


_COPY = re.compile(r"Mem(?:cpy|ory) (HtoD|DtoH|DtoD|PtoP|HtoH)\b(?: \((\w+) -> (\w+)\))?")
_AMD_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)")


def memory_operations(metrics: RankMetrics) -> list[MemoryEntry]:
    """Return the operations on memory in the window by name, most time first."""
    gpu = metrics.trace.gpu
    chosen = np.flatnonzero(metrics.in_window & (gpu.kind >= WorkKind.MEMCPY))
    found = []
    for name in np.unique(gpu.name[chosen]).tolist():
        mine = chosen[gpu.name[chosen] == name]
        lasted, sizes = gpu.end[mine] - gpu.start[mine], gpu.size[mine]
        timed = (sizes >= 0) & (lasted > 0)
        text = metrics.trace.names[name]
        direction, host = kind_of(text)
        found.append(
            MemoryEntry(
                name=text,
                count=len(mine),
                total_ns=exact_sum(lasted),
                bytes=sum(sizes.tolist()) if (sizes >= 0).all() else None,
                direction=direction,
                host_memory="pageable" if host == "Pageable" else "pinned" if host == "Pinned" else None,
                min_ns=int(lasted.min()),
                max_ns=int(lasted.max()),
                gb_per_s=round(exact_sum(sizes[timed]) / exact_sum(lasted[timed]), 3) if timed.any() else None,
            )
        )
    return sorted(found, key=lambda each: (-each.total_ns, each.name))


def kind_of(name: str) -> tuple[str, str]:
    """Return the direction of an operation on memory, and what the host's side is, as far as its name says it."""
    if name.startswith("Memset"):
        return "memset", ""
    if match := _COPY.match(name):
        sides = {"HtoD": match[2], "DtoH": match[3]}
        return match[1], sides.get(match[1]) or ""
    if match := _AMD_COPY.match(name):
        return f"{match[1][0]}to{match[2][0]}", ""
    return "other", ""


_ALL_REDUCE = re.compile(r"all[_-]?reduce", re.IGNORECASE)
_SHARED = re.compile(r"gather|scatter|all[_-]?to[_-]?all", re.IGNORECASE)


def bus_factor(name: str, ranks: int) -> float:
    """Return what the links carry for a byte of a collective among so many ranks, as NVIDIA's nccl-tests count it."""
    if _ALL_REDUCE.search(name):
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if _SHARED.search(name) else 1.0


def collectives_of(metrics: RankMetrics) -> list[CollectiveEntry]:
    chosen = np.flatnonzero(metrics.in_window & (metrics.trace.gpu.kind == WorkKind.COMMUNICATION))
    sorts, size = _sorts(metrics, chosen)
    found = [_entry(metrics, what, chosen[mine], size[mine]) for what, mine in sorts]
    return sorted(found, key=lambda entry: (-entry.total_ns, entry.name, entry.group))


def collective_steps_of(metrics: RankMetrics, most: int, most_steps: int) -> list[CollectiveStepsEntry]:
    """Return the ``most`` collectives with most time by step, of the first steps; none without steps."""
    trace, window = metrics.trace, metrics.window
    chosen = np.flatnonzero(
        (trace.gpu.kind == WorkKind.COMMUNICATION) & (window.step >= 0) & (window.step < most_steps)
    )
    sorts, size = _sorts(metrics, chosen)
    lasted, step = (trace.gpu.end - trace.gpu.start)[chosen], window.step[chosen]
    found = []
    for what, mine in sorts:
        places = np.unique(step[mine])
        found.append(
            CollectiveStepsEntry(
                **asdict(what),
                steps=window.steps.number[places].tolist(),
                counts=[int((step[mine] == place).sum()) for place in places],
                total_ns=[exact_sum(lasted[mine & (step == place)]) for place in places],
                bytes=[_whole(size[mine & (step == place)]) for place in places],
            )
        )
    return sorted(found, key=lambda entry: (-sum(entry.total_ns), entry.name, entry.group))[:most]


def _whole(sizes: Ints) -> int:
    """Return the sum of sizes; -1 where one is not known."""
    return exact_sum(sizes) if (sizes >= 0).all() else -1


def _sorts(metrics: RankMetrics, chosen: Ints) -> tuple[list[tuple[Collective, Bools]], Ints]:
    trace = metrics.trace
    sort, size = _called(metrics, chosen)
    # Kernels of no known collective are distinguished by their name; these numbers are negative.
    key = np.where(sort >= 0, sort, -1 - trace.gpu.name[chosen])
    found = np.unique(key).tolist()
    whats = [trace.collectives[each] if each >= 0 else Collective(trace.names[-1 - each]) for each in found]
    return [(what, key == each) for what, each in zip(whats, found, strict=True)], size


def _called(metrics: RankMetrics, chosen: Ints) -> tuple[Ints, Ints]:
    """Return of each row the collective and its bytes: as the kernel names it, else as its operator does."""
    trace = metrics.trace
    sort, size = trace.gpu.collective[chosen].copy(), trace.gpu.size[chosen].copy()
    if not trace.operator_collectives:
        return sort, size
    unknown = np.flatnonzero(sort < 0)
    callers = metrics.operator_id[chosen[unknown]]
    ids, runs = np.unique(callers, return_counts=True)
    for caller, count in zip(ids.tolist(), runs.tolist(), strict=True):
        if caller in trace.operator_collectives:
            number, whole = trace.operator_collectives[caller]
            mine = unknown[callers == caller]
            sort[mine] = number
            size[mine] = whole if count == 1 else -1  # several kernels share its bytes, and nothing says how
    return sort, size


def _entry(metrics: RankMetrics, what: Collective, rows: Ints, size: Ints) -> CollectiveEntry:
    start, end = metrics.trace.gpu.start[rows], metrics.trace.gpu.end[rows]
    lasted = end - start
    device = metrics.trace.gpu.device[rows]
    on = [(gpu.compute, device == gpu.number) for gpu in metrics.gpus]
    overlap = sum(exact_sum(compute.within(start[mine], end[mine])) for compute, mine in on)
    sized = (size >= 0) & (lasted > 0)
    total, moved, time = exact_sum(lasted), exact_sum(size[sized]), exact_sum(lasted[sized])
    rate = moved / time if time else None
    bus = None if rate is None or not what.group_size else rate * bus_factor(what.name, what.group_size)
    return CollectiveEntry(
        **asdict(what),
        count=len(rows),
        total_ns=total,
        min_ns=int(lasted.min()),
        median_ns=round(float(np.median(lasted))),
        max_ns=int(lasted.max()),
        overlap_ns=overlap,
        exposed_ns=total - overlap,
        sized_count=int(sized.sum()),
        bytes=moved if sized.any() else None,
        algorithm_gb_per_s=None if rate is None else round(rate, 3),
        bus_gb_per_s=None if bus is None else round(bus, 3),
        link_share=link_share(metrics.trace.gpus, what.group_size, bus),
    )


# Rows that are looked at to project annotations on the GPU; what is left then has no projection.
MOST_VISITS = 200_000_000

_NUMBERED = re.compile(r"[#_\- ]?\d+$")


def annotations_of(trace: Trace, window: TraceWindow) -> list[AnnotationEntry]:
    marks, on_gpu = _grouped(trace, trace.annotations), _grouped(trace, trace.gpu_annotations)
    projection = _Projection(trace, window)
    found = []
    for name, rows in sorted(marks.items(), key=lambda item: -exact_sum(_lasted(trace.annotations, item[1]))):
        host = durations(_lasted(trace.annotations, rows))
        if host is None:
            continue
        recorded = on_gpu.get(name)
        if recorded is None:
            lasted = projection.lasted(trace.annotations.start[rows], trace.annotations.end[rows])
        else:
            lasted = _lasted(trace.gpu_annotations, recorded)
        gpu = durations(lasted)
        found.append(
            AnnotationEntry(
                name=one_line(name),
                count=host.count,
                total_ns=host.total_ns,
                min_ns=host.min_ns,
                median_ns=host.median_ns,
                max_ns=host.max_ns,
                host=host,
                gpu=gpu,
                gpu_source=None if gpu is None else "annotation" if recorded is not None else "kernels",
            )
        )
    return sorted(found, key=lambda each: (-each.total_ns, each.name))


def _lasted(rows: Rows, places: Ints) -> Ints:
    return rows.end[places] - rows.start[places]


def _grouped(trace: Trace, rows: Rows) -> dict[str, Ints]:
    order = np.argsort(rows.name, kind="stable")
    names, first = np.unique(rows.name[order], return_index=True)
    groups: dict[str, list[Ints]] = {}
    for name, places in zip(names.tolist(), np.split(order, first[1:]), strict=False):
        text = trace.names[name]
        groups.setdefault(_NUMBERED.sub("", text) or text, []).append(places)
    return {name: np.concatenate(places) for name, places in groups.items()}


class _Projection:
    def __init__(self, trace: Trace, window: TraceWindow) -> None:
        known = np.flatnonzero(window.launch >= 0)
        launched = trace.launches.start[window.launch[known]]
        order = np.argsort(launched, kind="stable")
        self._launched = launched[order]
        self._start = trace.gpu.start[known][order]
        self._end = trace.gpu.end[known][order]
        self._left = MOST_VISITS

    def lasted(self, start: Ints, end: Ints) -> Ints:
        """Return how long stretches last on the GPU; those that launch nothing are left out."""
        first = np.searchsorted(self._launched, start, side="left")
        last = np.searchsorted(self._launched, end, side="left")
        some = last > first
        first, last = first[some], last[some]
        visits = int((last - first).sum(dtype=np.float64))
        if not len(first) or visits > self._left:
            return np.empty(0, dtype=np.int64)
        self._left -= visits
        stretches = zip(first.tolist(), last.tolist(), strict=True)
        found = [self._end[one:other].max() - self._start[one:other].min() for one, other in stretches]
        return np.array(found, dtype=np.int64)
