"""Plot 9 of the dashboard: how long steps take, and what they consist of."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import RankProfile, StepEntry
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Block, Cell, Column, Figure, Figures, Key, Note, Table, plot_column
from trainguard.report.html.kernels.critical_path import path_blocks
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.numbers import share
from trainguard.report.html.plots.bins import MOST_COLUMNS, Bins
from trainguard.report.html.plots.charts import Line, histogram
from trainguard.report.html.plots.scale import Scale, up_from_zero
from trainguard.report.html.plots.strips import parts_of_whole

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
    said = f"{counted(len(values), 'duration')}: p50 {nanos(1e6 * p50)}, p95 {nanos(1e6 * p95)}, p99 {nanos(1e6 * p99)}"
    return histogram(duration_bins(values), said=said, across="milliseconds", up=up, lines=lines)


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
    said = ", ".join(f"{label} {share(part / max(step.gpu_duration_ns, 1))}" for label, part, _ in parts)
    name = f"step {step.number}" + (f", {rank_name(rank)}" if ranks > 1 else "")
    drawn = [(label, part / 1e6 / scale.high, tone) for label, part, tone in parts]
    bar = parts_of_whole(drawn, said=f"{name}: {said}", whole=step.gpu_duration_ns / 1e6 / scale.high)
    return [name, nanos(step.gpu_duration_ns), nanos(step.duration_ns), bar]
