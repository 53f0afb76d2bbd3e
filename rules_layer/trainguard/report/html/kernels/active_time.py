"""Plots 1 to 4 of the dashboard: how long GPUs and hosts are active, and when."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import RankProfile
from trainguard.kernels.words import are, counted
from trainguard.report.html.blocks import Block, Figure, Figures, Key, Note
from trainguard.report.html.kernels.island import node_of, rank_name
from trainguard.report.html.kernels.streams import stream_blocks
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.numbers import share
from trainguard.report.html.plots.charts import SERIES_COLOURS, lines_over
from trainguard.report.html.plots.donut import COLOURS, Part, donut
from trainguard.report.html.plots.scale import PERCENT

MOST_LINES = SERIES_COLOURS
GREY = COLOURS
NO_COUNTERS = (
    "A trace has no samples of the host's CPUs. The CPU counts as active here while at least one thread that the trace "
    "recorded is in an operator or in a call of the runtime. A training job's report has the CPUs' own utilization."
)


def time_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the time in which GPUs and recorded threads are busy, in parts and over the window."""
    window = sum(rank.window_ns for rank in ranks)
    if not window:
        return [Note("The window has no length, so there is no share of it to show.")]
    host = {rank_name(rank): rank.host_utilization for rank in ranks}
    blocks: list[Block] = []
    if any(rank.busy_ns for rank in ranks):
        blocks += _blocks("GPU", sum(rank.busy_ns for rank in ranks), window, _by_device(ranks), ranks)
    else:
        blocks.append(Note("The trace has no work of a GPU, so there is nothing to show of it."))
    parts = [rank.active_share for rank in ranks if rank.active_share is not None]
    if parts:
        counted = share(sum(parts) / len(parts))
        blocks.append(
            Note(f"As SageMaker Profiler counts, by parts of the window with any activity: {counted} active.")
        )
    blocks += stream_blocks(ranks)
    blocks += _blocks("CPU", sum(rank.host_busy_ns for rank in ranks), window, host, ranks)
    return [*blocks, Note(NO_COUNTERS)]


def _blocks(
    what: str, busy: int, window: int, shares: Mapping[str, list[float]], ranks: Sequence[RankProfile]
) -> list[Block]:
    """Return a whole in two parts, and lines over the window."""
    said = f"The {what} is active for {nanos(busy)} of {nanos(window)}"
    parts = [
        Part("active", busy / window, nanos(busy), 1),
        Part("idle", (window - busy) / window, nanos(window - busy), GREY),
    ]
    recorded = "" if what == "GPU" else ": threads that the trace recorded"
    figures = [Figure(f"{what} active time{recorded}", donut(parts, said=said))]
    known = {name: values for name, values in shares.items() if values}
    if not known:
        return [Figures(figures)]
    lines, note = busy_lines(known, ranks)
    chart, legend = utilization_chart(lines, ranks, f"{what} utilization")
    figures.append(Figure(f"{what} utilization over time", chart, legend))
    return [Figures(figures), *([Note(note)] if note else [])]


def _by_device(ranks: Sequence[RankProfile]) -> dict[str, list[float]]:
    """Return how busy GPUs are: a line a rank, and where one trace has several GPUs, a line each."""
    if len(ranks) == 1 and len(ranks[0].devices) > 1:
        return {f"GPU {each.device}": each.utilization for each in ranks[0].devices}
    return {rank_name(rank): rank.utilization for rank in ranks}


def busy_lines(
    shares: Mapping[str, list[float]], ranks: Sequence[RankProfile]
) -> tuple[dict[str, list[float]], str | None]:
    """Return a line a node, else a rank, in percent, and what is left out; of many those with the lowest mean."""
    nodes = {rank_name(rank): node_of(rank.trace) for rank in ranks}
    grouped: dict[str, list[list[float]]] = {}
    for name, values in shares.items():
        grouped.setdefault(nodes.get(name) or name, []).append(values)
    lines = {name: _mean(values) for name, values in grouped.items()}
    order = sorted(lines, key=lambda name: sum(lines[name]) / len(lines[name]))
    if len(order) <= MOST_LINES:
        return lines, None
    shown = {f"mean of all {len(order):,}": _mean(list(lines.values()))}
    shown |= {name: lines[name] for name in order[: MOST_LINES - 1]}
    left = len(order) - MOST_LINES + 1
    return (
        shown,
        f"The lines are the mean and the {MOST_LINES - 1} with the lowest one; {are(left, 'other')} not drawn.",
    )


def utilization_chart(
    lines: dict[str, list[float]], ranks: Sequence[RankProfile], what: str
) -> tuple[Markup, list[Key]]:
    """Draw lines over the window: in milliseconds of one rank's window, in percent of several."""
    parts = max(len(values) for values in lines.values())
    one = len(ranks) == 1
    step = ranks[0].window_ns / 1e6 / parts if one else 100.0 / parts
    across = "milliseconds from the start of the window" if one else "% of each rank's window"
    points = {name: [100.0 * value for value in values] for name, values in lines.items()}
    said = f"{what} over the window, {counted(len(lines), 'line')}"
    chart = lines_over(points, step=step, said=said, across=across, up=PERCENT)
    legend = [Key(f"line s{place % SERIES_COLOURS + 1}", name) for place, name in enumerate(lines)]
    return chart, legend if len(lines) > 1 else []


def _mean(lines: Sequence[Sequence[float]]) -> list[float]:
    length = min(len(values) for values in lines)
    mean: list[float] = np.mean([values[:length] for values in lines], axis=0).tolist()
    return mean
