"""Plots 1 to 4 of the dashboard: how long GPUs and hosts are active, and when."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from trainguard.kernels.document import Distribution, RankProfile, StreamEntry
from trainguard.kernels.words import are, counted
from trainguard.render.blocks import Block, Cell, Column, Figure, Figures, Folded, Key, Note, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, count, number, share
from trainguard.render.plots.charts import COLOURS, SERIES_COLOURS, Part, donut, lines_over
from trainguard.render.plots.scale import PERCENT
from trainguard.report.html.kernels.island import nanos, node_of, rank_name

MOST_STREAMS = 24


def stream_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the streams with the most time, folded; nothing where no trace has any."""
    found = [(rank, stream) for rank in ranks for stream in rank.streams]
    if not found:
        return []
    shown = sorted(found, key=lambda each: -each[1].busy_ns)[:MOST_STREAMS]
    titles = ("Events", "Busy", "Idle: host late", "Idle: GPU's own", "Idle: other", "Mean queue", "Longest queue")
    columns = [Column("Stream"), *(Column(title, "number") for title in titles)]
    left = len(found) - len(shown) + sum(rank.streams_left_out for rank in ranks)
    note = (
        "The host is late where a kernel is launched after the one before it has ended. The queue counts launches that "
        "have not begun."
    )
    if left:
        note += f" {counted(left, 'stream')} with less time left out."
    rows = [_row(rank, stream, len(ranks)) for rank, stream in shown]
    return [Folded(counted(len(found), "stream"), [Table("Streams", columns, rows, (), note)])]


def _row(rank: RankProfile, stream: StreamEntry, ranks: int) -> list[Cell]:
    where = f"{rank_name(rank)}, " if ranks > 1 else ""
    device = f"GPU {stream.device}, " if stream.device >= 0 else ""
    return [
        f"{where}{device}stream {shown_name(stream.stream)}",
        count(stream.count),
        nanos(stream.busy_ns),
        nanos(stream.idle.host_wait_ns),
        nanos(stream.idle.kernel_wait_ns),
        nanos(stream.idle.other_ns),
        number(stream.queue_mean),
        count(stream.queue_max),
    ]


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
    alt = f"The {what} is active for {nanos(busy)} of {nanos(window)}"
    parts = [
        Part("active", busy / window, nanos(busy), 1),
        Part("idle", (window - busy) / window, nanos(window - busy), GREY),
    ]
    recorded = "" if what == "GPU" else ": threads that the trace recorded"
    figures = [Figure(f"{what} active time{recorded}", donut(parts, alt=alt))]
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
    alt = f"{what} over the window, {counted(len(lines), 'line')}"
    chart = lines_over(points, step=step, alt=alt, across=across, up=PERCENT)
    legend = [Key(f"line s{place % SERIES_COLOURS + 1}", name) for place, name in enumerate(lines)]
    return chart, legend if len(lines) > 1 else []


def _mean(lines: Sequence[Sequence[float]]) -> list[float]:
    length = min(len(values) for values in lines)
    mean: list[float] = np.mean([values[:length] for values in lines], axis=0).tolist()
    return mean


MOST_LAUNCHES = 16


def launch_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the table of launches, a row a rank; nothing where no trace has kernels."""
    found = [(rank, rank.launches) for rank in ranks if rank.launches is not None and rank.launches.kernels]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            rank_name(rank) if len(ranks) > 1 else "all kernels",
            count(launches.kernels),
            count(launches.calls),
            _times(rank.launch_to_start_ns),
            _times(rank.launch_delay_ns),
            share(launches.short_kernels / launches.kernels),
            count(launches.slow_calls),
            count(launches.slow_starts),
        ]
        for rank, launches in found[:MOST_LAUNCHES]
    ]
    titles = (
        "Kernels",
        "Calls",
        "Call to start",
        "End of call to start",
        "Shorter than their call",
        "Calls over 50 µs",
        "Starts over 100 µs",
    )
    note = "From a call to its kernel: median, and 90th percentile. A kernel that waits in a full queue starts late."
    if len(found) > MOST_LAUNCHES:
        note += f" {counted(len(found) - MOST_LAUNCHES, 'rank')} more are in kernels.json."
    columns = [Column("Launches"), *(Column(title, "number") for title in titles)]
    return [Table("From launches to kernels", columns, rows, (), note)]


def _times(found: Distribution | None) -> str:
    return NOTHING if found is None else f"{nanos(found.median)}, {nanos(found.p90)}"


MOST_DEVICES = 60


def hardware_blocks(ranks: Sequence[RankProfile]) -> list[Block]:
    """Return the tables of the GPUs and of their counters; nothing where traces have neither."""
    return [*_devices(ranks), *_counters(ranks)]


def _where(rank: RankProfile, gpu: int, ranks: int) -> str:
    device = f"GPU {gpu}" if gpu >= 0 else "GPU"
    return f"{rank_name(rank)}, {device}" if ranks > 1 else device


def _devices(ranks: Sequence[RankProfile]) -> list[Block]:
    found = [
        (rank, device)
        for rank in ranks
        for device in rank.devices
        if len(rank.devices) > 1 or device.sm_efficiency is not None or device.occupancy is not None
    ]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            _where(rank, device.device, len(ranks)),
            *(
                share(part / rank.window_ns if rank.window_ns else None)
                for part in (
                    device.busy_ns,
                    device.kernel_ns,
                    device.compute_ns,
                    device.communication_ns,
                    device.exposed_communication_ns,
                )
            ),
            share(device.sm_efficiency),
            share(device.occupancy),
        ]
        for rank, device in found[:MOST_DEVICES]
    ]
    titles = (
        "Busy",
        "In kernels",
        "Computes",
        "Communicates",
        "Only communicates",
        "Multiprocessors with a block",
        "Occupancy",
    )
    note = "Of the window; the occupancy is that of the kernels, as the profiler estimates it from their size."
    if any(len(rank.devices) > 1 for rank in ranks):
        note += " The figures of a rank with several GPUs are the means over them, without GPUs with hardly any work."
    if len(found) > MOST_DEVICES:
        note += f" {counted(len(found) - MOST_DEVICES, 'GPU')} more are in kernels.json."
    return [Table("GPUs", [Column("GPU"), *(Column(title, "number") for title in titles)], rows, (), note)]


def _counters(ranks: Sequence[RankProfile]) -> list[Block]:
    found = [(rank, counter) for rank in ranks for counter in rank.counters]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            f"{_where(rank, counter.gpu, len(ranks))}: {shown_name(counter.name, 80)}",
            number(counter.mean),
            number(counter.min),
            number(counter.max),
            count(counter.samples),
        ]
        for rank, counter in found[:MOST_DEVICES]
    ]
    columns = [Column("Counter"), *(Column(title, "number") for title in ("Mean", "Least", "Most", "Samples"))]
    note = "Samples over the whole trace, in the unit that the counter's name has."
    if len(found) > MOST_DEVICES:
        note += f" {counted(len(found) - MOST_DEVICES, 'counter')} more are in kernels.json."
    return [Table("Hardware counters", columns, rows, (), note)]
