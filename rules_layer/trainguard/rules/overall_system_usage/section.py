"""OverallSystemUsage: ranges and percentiles of each metric, node by node."""

from trainguard.render.blocks import Block, Cell, Column, Key, Table, plot_column
from trainguard.render.nodes import Picked, folded_rest, label, most, nodes_of, pick
from trainguard.render.numbers import percent, rate, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import PERCENT, Scale, up_from_zero
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.overall_system_usage.rule import NETWORK, Percentiles, UsageDetails

NAMES = {
    "GPU": "GPU utilization",
    "GPU memory": "GPU memory activity",
    "CPU": "CPU utilization",
    "I/O": "I/O wait",
    "CPU memory": "host memory",
    NETWORK: "network",
}
LEGEND = (Key("box", "least to 95th percentile"), Key("median", "median"), Key("whisker", "up to the largest"))
Metrics = dict[str, Percentiles]


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = {node: dict(held.series) for node, held in nodes_of(entry, UsageDetails).items() if held.series}
    picked = pick(nodes, worst=entry.worst, badness=lambda metrics: -(_of(metrics, "GPU") or 0.0))
    known = [*NAMES, *sorted({metric for metrics in nodes.values() for metric in metrics} - set(NAMES))]
    of_percent = [row for metric in known if metric != NETWORK for row in _rows(metric, picked, PERCENT)]
    largest = most([metrics[NETWORK].max for _, metrics in picked.full if NETWORK in metrics])
    shown: list[Block] = []
    if of_percent:
        shown.append(_table("Utilization", of_percent, PERCENT, " %"))
    if largest:
        prefix, size = ("MB/s", 1e6) if largest >= 1e6 else ("kB/s", 1e3)
        scale = up_from_zero(largest / size)
        shown.append(_table("Network", _rows(NETWORK, picked, scale, size), scale, f" {prefix}"))
    rest = [
        (shown_name(node), *(percent(_of(metrics, metric)) for metric in ("GPU", "CPU", "I/O")))
        for node, metrics in picked.rest
    ]
    heads = [Column("Node"), *(Column(f"p95 {what}", "number") for what in ("GPU", "CPU", "I/O wait"))]
    return [*shown, *folded_rest("Usage", heads, rest)]


def _table(caption: str, rows: list[tuple[Cell, ...]], scale: Scale, unit: str) -> Table:
    quantiles = ("Min", "Median", "p95", "p99", "Max")
    columns = [Column("Metric"), plot_column("Range", scale, unit), *(Column(what, "number") for what in quantiles)]
    return Table(caption, columns, rows, LEGEND)


def _rows(metric: str, picked: Picked[Metrics], scale: Scale, size: float = 1.0) -> list[tuple[Cell, ...]]:
    """Return a row of each node that has the metric; values are drawn in units of ``size``."""
    rows: list[tuple[Cell, ...]] = []
    write = rate if metric == NETWORK else percent
    title = NAMES.get(metric, shown_name(metric))
    for node, metrics in picked.full:
        held = metrics.get(metric)
        if held is None:
            continue
        five = (held.min, held.p50, held.p95, held.p99, held.max)
        shown = label(node, title, picked)
        said = f"{shown}: median {write(held.p50)}, 95th percentile {write(held.p95)}, largest {write(held.max)}"
        drawn = strips.spread([(value or 0.0) / size for value in five], scale, alt=said)
        rows.append((shown, drawn, *(write(value) for value in five)))
    return rows


def _of(metrics: Metrics, metric: str) -> float | None:
    return metrics[metric].p95 if metric in metrics else None
