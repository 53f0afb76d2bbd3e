"""Plot 9 of the dashboard: how long steps take, and what they consist of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import AnnotationEntry, RankProfile, StepEntry
from trainguard.kernels.entries import CriticalPathEntry, Durations, Histogram
from trainguard.kernels.words import counted
from trainguard.render.blocks import Block, Cell, Column, Figure, Figures, Key, Note, Table, numeric, plot_column, table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, count, share
from trainguard.render.plots.charts import MOST_COLUMNS, Bins, Line, histogram
from trainguard.render.plots.scale import Scale, up_from_zero
from trainguard.render.plots.strips import parts_of_whole
from trainguard.report.html.kernels.island import NO_BREAK, nanos, rank_name

MOST_PATHS = 16
LONGEST_KERNEL = 32
PATH_PARTS = (
    ("compute", "computation", "s1"),
    ("communication", "communication", "s2"),
    ("memory", "copies, memory set", "s3"),
    ("gpu_gap", "between kernels", "s6"),
    ("launch", "launch to kernel", "s4"),
    ("host", "the host", "s5"),
    ("data_loading", "data loader", "s7"),
    ("synchronization", "return of a wait", "s8"),
)


def path_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the table of critical paths; nothing where no trace has any."""
    found = [(rank, path) for rank in ranks for path in rank.critical_paths]
    if not found:
        return []
    shown = found[:MOST_PATHS]
    scale = up_from_zero(max(path.total_ns for _, path in shown) / 1e6)
    used = [part for part in PATH_PARTS if any(path.parts.get(part[0], 0) for _, path in shown)]
    columns = [
        Column("Step"),
        Column("Length", "number"),
        plot_column("Critical path", scale, " ms"),
        Column("Mostly"),
        Column("Longest on it"),
    ]
    rows: list[list[Cell]] = []
    for rank, path in shown:
        name = _name(rank, path, len(ranks))
        parts = [(label, path.parts.get(key, 0), tone) for key, label, tone in used]
        alt = ", ".join(f"{label} {share(part / path.total_ns)}" for label, part, _ in parts)
        drawn = [(label, part / 1e6 / scale.high, tone) for label, part, tone in parts]
        bar = parts_of_whole(drawn, alt=f"{name}: {alt}", whole=path.total_ns / 1e6 / scale.high)
        label, most, _ = max(parts, key=lambda part: part[1])
        longest = path.kernels[0] if path.kernels else None
        on_it = NOTHING if longest is None else f"{shown_name(longest.name, LONGEST_KERNEL)}, {nanos(longest.total_ns)}"
        rows.append([name, nanos(path.total_ns), bar, f"{label}, {share(most / path.total_ns)}", on_it])
    note = (
        "A step of median length and the slowest one. What is not on the path can take less time without the step "
        "being shorter. Where kernels of two streams meet, the path is inferred from their times."
    )
    if len(found) > len(shown):
        note += f" {counted(len(found) - len(shown), 'path')} more are in kernels.json."
    legend = [Key(f"part {tone}", label) for _, label, tone in used]
    return [Table("Critical path", columns, rows, legend, note)]


def _name(rank: RankProfile, path: CriticalPathEntry, ranks: int) -> str:
    step = "the window" if path.step is None else f"step {path.step}"
    return (f"{step}, {rank_name(rank)}" if ranks > 1 else step).replace(" ", NO_BREAK)


MOST_STEPS = 24
PARTS = (
    ("compute", "computation", "s1"),
    ("exposed_communication", "exposed communication", "s2"),
    ("memcpy", "copies", "s3"),
    ("memset", "memory set", "s6"),
    ("runtime", "calls of the runtime", "s4"),
    ("data_loader", "data loader", "s7"),
    ("cpu_op", "operators on the host", "s5"),
    ("other", "the rest", "s8"),
)


def step_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return histograms of the steps' durations, and the slowest steps in parts."""
    steps = [(rank, step) for rank in ranks for step in rank.steps]
    if not steps:
        return [
            Note(
                "The trace has no steps. Call profiler.step() at the end of each iteration; then step times, their "
                "spread and what they consist of are shown here."
            )
        ]
    gpu = [step.gpu_duration_ns / 1e6 for _, step in steps]
    host = [step.duration_ns / 1e6 for _, step in steps]
    figures = [
        Figure("Step time, with the GPU work that the step launched", duration_histogram(gpu, "steps")),
        Figure("Step time on the host", duration_histogram(host, "steps")),
    ]
    return [Figures(figures), _slowest(steps, len(ranks)), *path_blocks(ranks)]


def duration_histogram(values: Sequence[float], up: str) -> Markup:
    """Draw a histogram of durations in milliseconds with their median, 95th and 99th percentile."""
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    lines = [Line(p50, f"p50 {nanos(1e6 * p50)}")]
    if len(values) >= 10:
        lines += [Line(p95, f"p95 {nanos(1e6 * p95)}"), Line(p99, f"p99 {nanos(1e6 * p99)}")]
    alt = f"{counted(len(values), 'duration')}: p50 {nanos(1e6 * p50)}, p95 {nanos(1e6 * p95)}, p99 {nanos(1e6 * p99)}"
    return histogram(duration_bins(values), alt=alt, across="milliseconds", up=up, lines=lines)


def duration_bins(values: Sequence[float]) -> Bins:
    """Return bins of the width of Freedman and Diaconis, at most as many as a chart can show."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(high, 1e-9):
        middle = max(high, 1e-6)
        return Bins((middle * 0.95, middle * 1.05), (len(values),))
    quarters = np.percentile(values, (25, 75))
    width = 2.0 * float(quarters[1] - quarters[0]) / len(values) ** (1.0 / 3.0)
    wanted = (high - low) / width if width > 0.0 else MOST_COLUMNS
    counts, edges = np.histogram(values, bins=min(max(int(np.ceil(wanted)), 1), MOST_COLUMNS))
    return Bins(edges.tolist(), counts.tolist())


def _slowest(steps: Sequence[tuple[RankProfile, StepEntry]], ranks: int) -> Table:
    chosen = sorted(steps, key=lambda each: -each[1].gpu_duration_ns)[:MOST_STEPS]
    scale = up_from_zero(chosen[0][1].gpu_duration_ns / 1e6)
    chosen.sort(key=lambda each: (each[1].number, each[0].rank or 0))
    used = [part for part in PARTS if any(step.breakdown.get(part[0], 0) for _, step in chosen)]
    rows = [_row(rank, step, used, scale, ranks) for rank, step in chosen]
    columns = [
        Column("Step"),
        Column("With GPU work", "number"),
        Column("On the host", "number"),
        plot_column("Parts", scale, " ms"),
    ]
    left = len(steps) - len(chosen)
    note = "Each moment of a step counts for the first of these that goes on in it, so the parts add up to the step."
    if left:
        note += f" The {len(chosen)} slowest steps are shown, {left:,} are not; kernels.json has them."
    legend = [Key(f"part {tone}", label) for _, label, tone in used]
    return Table("What steps consist of", columns, rows, legend, note)


def _row(
    rank: RankProfile, step: StepEntry, used: Sequence[tuple[str, str, str]], scale: Scale, ranks: int
) -> list[Cell]:
    parts = [(label, step.breakdown.get(key, 0), tone) for key, label, tone in used]
    alt = ", ".join(f"{label} {share(part / max(step.gpu_duration_ns, 1))}" for label, part, _ in parts)
    name = f"step {step.number}" + (f", {rank_name(rank)}" if ranks > 1 else "")
    drawn = [(label, part / 1e6 / scale.high, tone) for label, part, tone in parts]
    bar = parts_of_whole(drawn, alt=f"{name}: {alt}", whole=step.gpu_duration_ns / 1e6 / scale.high)
    return [name, nanos(step.gpu_duration_ns), nanos(step.duration_ns), bar]


MOST_SHOWN = 24
BINS = 40
LONGEST_ANNOTATION = 100


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of all ranks: its name, and its histograms on the host and, if there is one, on the GPU."""

    name: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those with the most time; ``table`` has the numbers of each."""

    shown: Sequence[Annotation]
    table: Table


def annotations_of(ranks: Sequence[RankProfile]) -> Annotations | None:
    """Return the annotations of all ranks; None where no trace has any."""
    found: dict[str, list[AnnotationEntry]] = {}
    for rank in ranks:
        for entry in rank.annotations:
            found.setdefault(entry.name, []).append(entry)
    if not found:
        return None
    order = sorted(found, key=lambda name: -sum(each.total_ns for each in found[name]))
    kept = order[:MOST_SHOWN]
    left = len(order) - len(kept)
    left += sum(rank.annotations_left_out for rank in ranks)
    note = f"{left:,} with less time are not shown." if left else None
    shown = table(
        "On the host",
        kept,
        ("Annotation", lambda name: shown_name(name, LONGEST_ANNOTATION)),
        (numeric("Times"), lambda name: count(sum(each.count for each in found[name]))),
        (numeric("Total"), lambda name: nanos(sum(each.total_ns for each in found[name]))),
        (numeric("Min"), lambda name: nanos(min(each.min_ns for each in found[name]))),
        (
            numeric("Median"),
            lambda name: nanos(found[name][0].median_ns) if len(found[name]) == 1 else NOTHING,
        ),
        (numeric("Max"), lambda name: nanos(max(each.max_ns for each in found[name]))),
        note=note,
    )
    return Annotations([_annotation(name, found[name]) for name in kept], shown)


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


def _annotation(name: str, entries: Sequence[AnnotationEntry]) -> Annotation:
    sides = (("on the host", [each.host for each in entries]), ("on the GPU", [each.gpu for each in entries]))
    known = [(where, [each for each in found if each is not None]) for where, found in sides]
    return Annotation(shown_name(name, LONGEST_ANNOTATION), [_figure(where, found) for where, found in known if found])


def _figure(where: str, found: Sequence[Durations]) -> Figure:
    whole = joined([each.histogram for each in found])
    bins = Bins([edge / 1e6 for edge in whole.edges_ns], whole.counts)
    times = sum(whole.counts)
    alt = f"{counted(times, 'time')}, {nanos(whole.edges_ns[0])} to {nanos(whole.edges_ns[-1])}"
    lines = [Line(found[0].median_ns / 1e6, f"p50 {nanos(found[0].median_ns)}")] if len(found) == 1 else []
    return Figure(f"Durations {where}", histogram(bins, alt=alt, across="milliseconds", up="times", lines=lines))
