"""Charts of kernel profiles: how long GPUs and hosts are active and when, what steps and the GPU's time consist of."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from markupsafe import Markup

from trainguard.core.units import counted
from trainguard.kernels.comparison.text import PARTS
from trainguard.kernels.document import AnnotationEntry, RankProfile, StepEntry
from trainguard.kernels.entries import Histogram, KernelDurations, MemoryEntry
from trainguard.kernels.words import are
from trainguard.render.blocks import Block, Figure, Figures, Key, Note
from trainguard.render.numbers import nanos, share
from trainguard.render.plots.charts import (
    COLOURS,
    MOST_COLUMNS,
    SERIES_COLOURS,
    Bins,
    donut,
    histogram,
    lines_over,
)
from trainguard.render.plots.scale import PERCENT, Scale
from trainguard.render.plots.strips import Limit, parts_of_whole
from trainguard.report.html.kernels.island import node_of, rank_name

T = TypeVar("T")
MOST_LINES = SERIES_COLOURS
GREY = COLOURS


def grouped(entries: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Return the entries of one key together, those with the most time first."""
    found: dict[object, list[T]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return sorted(found.values(), key=lambda each: -total_of(each))


def total_of(entries: Iterable[object], field: str = "total_ns") -> int:
    return sum(getattr(each, field) for each in entries)


def active_time(what: str, ranks: Sequence[RankProfile]) -> list[Block]:
    """Return how long ``GPU`` or ``CPU`` are active in the windows, and when."""
    on_gpu = what == "GPU"
    busy, window = total_of(ranks, "busy_ns" if on_gpu else "host_busy_ns"), total_of(ranks, "window_ns")
    parts = [
        ("active", busy / window, nanos(busy), 1),
        ("idle", (window - busy) / window, nanos(window - busy), GREY),
    ]
    recorded = "" if on_gpu else ": threads that the trace recorded"
    whole = donut(parts, alt=f"The {what} is active for {nanos(busy)} of {nanos(window)}")
    figures = [Figure(f"{what} active time{recorded}", whole)]
    if on_gpu and len(ranks) == 1 and len(ranks[0].devices) > 1:
        shares = {f"GPU {each.device}": each.utilization for each in ranks[0].devices}
    else:
        shares = {rank_name(rank): rank.utilization if on_gpu else rank.host_utilization for rank in ranks}
    known = {name: values for name, values in shares.items() if values}
    if not known:
        return [Figures(figures)]
    lines, note = _busy_lines(known, ranks)
    chart, legend = _utilization_chart(lines, ranks, f"{what} utilization")
    return [
        Figures([*figures, Figure(f"{what} utilization over time", chart, legend)]),
        *([Note(note)] if note else []),
    ]


def _busy_lines(
    shares: Mapping[str, list[float]], ranks: Sequence[RankProfile]
) -> tuple[dict[str, list[float]], str | None]:
    """Return a line a node, else a rank, and what is left out; of many those with the lowest mean."""
    nodes = {rank_name(rank): node_of(rank.trace) for rank in ranks}
    by_name: dict[str, list[list[float]]] = {}
    for name, values in shares.items():
        by_name.setdefault(nodes.get(name) or name, []).append(values)
    lines = {name: _mean(values) for name, values in by_name.items()}
    if len(lines) <= MOST_LINES:
        return lines, None
    lowest = sorted(lines, key=lambda name: sum(lines[name]) / len(lines[name]))[: MOST_LINES - 1]
    shown = {f"mean of all {len(lines):,}": _mean(list(lines.values())), **{name: lines[name] for name in lowest}}
    left = are(len(lines) - len(lowest), "other")
    return shown, f"The lines are the mean and the {len(lowest)} with the lowest one; {left} not drawn."


def _utilization_chart(
    lines: Mapping[str, list[float]], ranks: Sequence[RankProfile], what: str
) -> tuple[Markup, list[Key]]:
    """Draw lines over the window: in milliseconds of one rank's window, in percent of several."""
    parts = max(len(values) for values in lines.values())
    one = len(ranks) == 1
    step = ranks[0].window_ns / 1e6 / parts if one else 100.0 / parts
    across = "milliseconds from the start of the window" if one else "% of each rank's window"
    points = {name: [100.0 * value for value in values] for name, values in lines.items()}
    alt = f"{what} over the window, {counted(len(lines), 'line')}"
    chart = lines_over(points, step=step, alt=alt, across=across, up=PERCENT)
    legend = [Key(f"line s{place % SERIES_COLOURS + 1}", name) for place, name in enumerate(lines)]
    return chart, legend if len(lines) > 1 else []


def _mean(lines: Sequence[Sequence[float]]) -> list[float]:
    length = min(len(values) for values in lines)
    mean: list[float] = np.mean([values[:length] for values in lines], axis=0).tolist()
    return mean


MOST_STEPS = 24
StepPart = tuple[str, str, str]
STEP_PARTS: tuple[StepPart, ...] = (
    ("compute", "computation", "s1"),
    ("exposed_communication", "exposed communication", "s2"),
    ("memcpy", "copies", "s3"),
    ("memset", "memory set", "s6"),
    ("runtime", "calls of the runtime", "s4"),
    ("data_loader", "data loader", "s7"),
    ("cpu_op", "operators on the host", "s5"),
    ("other", "the rest", "s8"),
)
PATH_PARTS: tuple[StepPart, ...] = (
    ("compute", "computation", "s1"),
    ("communication", "communication", "s2"),
    ("memory", "copies, memory set", "s3"),
    ("gpu_gap", "between kernels", "s6"),
    ("launch", "launch to kernel", "s4"),
    ("host", "the host", "s5"),
    ("data_loading", "data loader", "s7"),
    ("synchronization", "return of a wait", "s8"),
)


def slowest_steps(steps: Sequence[tuple[RankProfile, StepEntry]]) -> list[tuple[RankProfile, StepEntry]]:
    slowest = sorted(steps, key=lambda each: -each[1].gpu_duration_ns)[:MOST_STEPS]
    return sorted(slowest, key=lambda each: (each[1].number, each[0].rank or 0))


def used_parts(parts: Sequence[StepPart], breakdowns: Sequence[Mapping[str, int]]) -> list[StepPart]:
    return [part for part in parts if any(each.get(part[0], 0) for each in breakdowns)]


def keys_of_parts(parts: Sequence[StepPart]) -> list[Key]:
    return [Key(f"part {tone}", label) for _, label, tone in parts]


def largest_part(breakdown: Mapping[str, int], parts: Sequence[StepPart]) -> tuple[str, str]:
    field, label, _ = max(parts, key=lambda part: breakdown.get(part[0], 0))
    return field, label


def bar_of_parts(
    name: str, breakdown: Mapping[str, int], parts: Sequence[StepPart], total_ns: int, scale: Scale
) -> Markup:
    """Draw what a step, or its critical path, consists of; ``scale`` is in milliseconds."""
    held = [(label, breakdown.get(field, 0), tone) for field, label, tone in parts]
    alt = ", ".join(f"{label} {share(part / max(total_ns, 1))}" for label, part, _ in held)
    drawn = [(label, part / 1e6 / scale.high, tone) for label, part, tone in held]
    return parts_of_whole(drawn, alt=f"{name}: {alt}", whole=total_ns / 1e6 / scale.high)


def step_histograms(ranks: Sequence[RankProfile]) -> list[Block]:
    steps = [step for rank in ranks for step in rank.steps]
    sides = (
        ("Step time, with the GPU work that the step launched", [step.gpu_duration_ns / 1e6 for step in steps]),
        ("Step time on the host", [step.duration_ns / 1e6 for step in steps]),
    )
    figures = []
    for caption, values in sides if steps else ():
        marks = zip(("p50", "p95", "p99"), np.percentile(values, (50, 95, 99)).tolist(), strict=True)
        lines = [Limit(value, f"{name} {nanos(1e6 * value)}") for name, value in marks]
        alt = f"{counted(len(values), 'duration')}: {', '.join(line.label for line in lines)}"
        shown = lines if len(values) >= 10 else lines[:1]
        chart = histogram(duration_bins(values), alt=alt, across="milliseconds", up="steps", lines=shown)
        figures.append(Figure(caption, chart))
    return [Figures(figures)] if figures else []


def duration_bins(values: Sequence[float]) -> Bins:
    """Return bins of the width of Freedman and Diaconis, at most as many as a chart can show."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(high, 1e-9):
        middle = max(high, 1e-6)
        return (middle * 0.95, middle * 1.05), (len(values),)
    quarters = np.percentile(values, (25, 75))
    width = 2.0 * float(quarters[1] - quarters[0]) / len(values) ** (1.0 / 3.0)
    wanted = (high - low) / width if width > 0.0 else MOST_COLUMNS
    counts, edges = np.histogram(values, bins=min(max(int(np.ceil(wanted)), 1), MOST_COLUMNS))
    return edges.tolist(), counts.tolist()


MOST_ANNOTATIONS = 24
BINS = 40


def annotation_figures(found: Sequence[list[AnnotationEntry]]) -> list[tuple[str, list[AnnotationEntry], list[Figure]]]:
    """Return the annotations with the most time: name, entries of ranks, histograms on the host and on the GPU."""
    return [
        (
            entries[0].name,
            entries,
            [
                *_annotation_figure("on the host", [each.host for each in entries if each.host is not None]),
                *_annotation_figure("on the GPU", [each.gpu for each in entries if each.gpu is not None]),
            ],
        )
        for entries in found[:MOST_ANNOTATIONS]
    ]


def _annotation_figure(where: str, found: Sequence[KernelDurations]) -> list[Figure]:
    if not found:
        return []
    whole = joined([each.histogram for each in found])
    bins = [edge / 1e6 for edge in whole.edges_ns], whole.counts
    alt = f"{counted(sum(whole.counts), 'time')}, {nanos(whole.edges_ns[0])} to {nanos(whole.edges_ns[-1])}"
    lines = [Limit(found[0].median_ns / 1e6, f"p50 {nanos(found[0].median_ns)}")] if len(found) == 1 else []
    return [Figure(f"Durations {where}", histogram(bins, alt=alt, across="milliseconds", up="times", lines=lines))]


def joined(histograms: Sequence[Histogram]) -> Histogram:
    """Return histograms as one: what a bin holds counts at its middle."""
    if len(histograms) == 1:
        return histograms[0]
    low = min(each.edges_ns[0] for each in histograms)
    high = max(*(each.edges_ns[-1] for each in histograms), low + 1)
    bins = min(BINS, high - low)
    counts = [0] * bins
    for each in histograms:
        for place, held in enumerate(each.counts):
            middle = (each.edges_ns[place] + each.edges_ns[place + 1]) // 2
            counts[min((middle - low) * bins // (high - low), bins - 1)] += held
    return Histogram(edges_ns=[low + (high - low) * place // bins for place in range(bins + 1)], counts=counts)


PRECISIONS = {"integer": "integer, bool", "unknown": "not known"}


def memory_totals(ranks: Iterable[RankProfile]) -> list[MemoryEntry]:
    """Return the operations on memory by kind, most time first; bytes only where every rank says them."""
    totals = [
        MemoryEntry(
            name=entries[0].name,
            count=total_of(entries, "count"),
            total_ns=total_of(entries),
            bytes=None if None in (sizes := [each.bytes for each in entries]) else sum(filter(None, sizes)),
        )
        for entries in grouped((each for rank in ranks for each in rank.memory_operations), lambda each: each.name)
    ]
    return sorted(totals, key=lambda each: (-each.total_ns, each.name))


def share_figures(ranks: Sequence[RankProfile], memory: Sequence[MemoryEntry]) -> list[Block]:
    found = [*_precision(ranks), *_activity(ranks), *_memory(memory)]
    return [Figures(found)] if found else []


def _precision(ranks: Sequence[RankProfile]) -> list[Figure]:
    found: Counter[str] = Counter()
    for rank in ranks:
        found.update(rank.precision)
    parts = [
        (PRECISIONS.get(name, name.upper()), part, GREY if name == "unknown" else place % 7 + 1)
        for place, (name, part) in enumerate(sorted(found.items(), key=lambda each: -each[1]))
    ]
    tensor = share(total_of(ranks, "tensor_core_ns") / (found.total() or 1))
    caption = f"Precision of the kernels that compute; {tensor} of their time is on tensor cores"
    return _whole(caption, parts, "Time of the kernels that compute, by precision")


def _activity(ranks: Sequence[RankProfile]) -> list[Figure]:
    found = [rank.activity for rank in ranks if rank.activity is not None]
    kernels, copies = (total_of(found, field) for field in ("kernel_ns", "memory_ns"))
    communication = total_of(ranks, "communication_kernels_ns")
    parts = [
        ("kernels that compute", kernels - communication, 1),
        ("kernels that communicate", communication, 2),
        ("memory", copies, 3),
    ]
    return _whole("GPU activity", parts, "Time of the GPU's activities")


def _memory(memory: Sequence[MemoryEntry]) -> list[Figure]:
    shown, rest = memory[: COLOURS - 1], memory[COLOURS - 1 :]
    parts = [(each.name.replace("->", "to"), each.total_ns, place + 1) for place, each in enumerate(shown)]
    parts += [(f"{len(rest)} others", total_of(rest), GREY)]
    return _whole("GPU memory operations", parts, "Time of the operations on memory, by kind", keep=len(shown))


def communication_figures(ranks: Sequence[RankProfile]) -> list[Block]:
    total, exposed = total_of(ranks, "communication_ns"), total_of(ranks, "exposed_communication_ns")
    parts = [("overlapped by computation", total - exposed, 1), ("exposed", exposed, 2)]
    alt = "Communication that computation overlaps, and exposed"
    found = _whole("Time in which a collective runs", parts, alt, keep=2)
    return [Figures(found)] if found else []


def _whole(caption: str, parts: Sequence[tuple[str, int, int]], alt: str, keep: int = 0) -> list[Figure]:
    """Draw nanoseconds as parts of their sum; the first ``keep`` ones also where they are 0."""
    total = sum(part for _, part, _ in parts)
    shown = [
        (label, part / total, nanos(part), colour)
        for place, (label, part, colour) in enumerate(parts)
        if total and (part or place < keep)
    ]
    return [Figure(caption, donut(shown, alt=alt))] if shown else []


# Colours of families, which charts and timeline share.
TONES: Mapping[str, str] = {
    "gemm": "s1",
    "attention": "s4",
    "convolution": "s6",
    "normalisation": "s3",
    "embedding": "s3",
    "reduction": "s5",
    "elementwise": "s5",
    "optimizer": "s7",
    "communication": "s2",
    "copy": "s8",
    "other": "s8",
}

_WAITS = {"idle_loader": "wait-loader", "idle_host": "wait-host", "idle_other": "wait-other"}
_LEAST_SHOWN = 0.005

# A label, nanoseconds, and the class of its colour.
Part = tuple[str, float, str]


def glance(ranks: Sequence[RankProfile]) -> tuple[str, Markup, list[Key]] | None:
    """Return a caption, the bar and its legend, as means over ranks; None without work of a GPU."""
    busy = [rank for rank in ranks if rank.busy_ns]
    if not busy:
        return None
    by_step = all(rank.typical_step is not None for rank in busy)
    totals: defaultdict[tuple[str, str], float] = defaultdict(float)
    for rank in busy:
        for label, ns, tone in _parts(rank, by_step=by_step):
            totals[label, tone] += ns
    whole = sum(totals.values())
    shown = [(label, ns / len(busy), tone) for (label, tone), ns in totals.items() if ns >= _LEAST_SHOWN * whole]
    what = "A typical step" if by_step else "The window"
    mean = f", mean of {len(busy):,} ranks" if len(busy) > 1 else ""
    alt = ", ".join(f"{label} {share(ns * len(busy) / whole)}" for label, ns, _ in shown)
    bar = parts_of_whole([(label, ns * len(busy) / whole, tone) for label, ns, tone in shown], alt=f"{what}: {alt}")
    keys = [Key(f"part {tone}", f"{label} {share(ns * len(busy) / whole)}, {nanos(ns)}") for label, ns, tone in shown]
    return f"{what}, {nanos(whole / len(busy))}{mean}", bar, keys


def _parts(rank: RankProfile, *, by_step: bool) -> Iterator[Part]:
    step = rank.typical_step
    parts: Mapping[str, int] = step.parts if by_step and step is not None else rank.window_parts
    families = _families(rank)
    for family, part in families.items():
        yield family, part * parts["compute"], f"{TONES[family]} family-{family}"
    yield PARTS["exposed_communication"], parts["exposed_communication"], "s2"
    yield PARTS["exposed_memory"], sum(parts.get(name, 0) for name in ("exposed_memory", "memcpy", "memset")), "s8"
    for name, tone in _WAITS.items():
        yield PARTS[name], parts[name], tone


def _families(rank: RankProfile) -> dict[str, float]:
    """Return the shares of the families in the time of kernels that compute, most first."""
    totals: Counter[str] = Counter()
    for each in rank.kernels:
        if not each.communication:
            totals[each.family if each.family in TONES else "other"] += each.total_ns
    whole = totals.total() or 1
    return {family: ns / whole for family, ns in totals.most_common()} or {"other": 1.0}
