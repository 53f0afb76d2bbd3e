"""Dataloader: loader processes against cores, and how long batches and workers took."""

from trainguard.render.blocks import Block, Column, Figure, Figures, Table, plot_column
from trainguard.render.nodes import Picked, folded_rest, most, nodes_of, pick
from trainguard.render.numbers import NOTHING, count, number, percent, seconds, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.charts import duration_chart
from trainguard.render.plots.scale import Scale, up_from_zero
from trainguard.render.rule_entry import RuleEntry, limit_of, setting
from trainguard.rules.dataloader.details import LoaderDetails, LoaderWaits

CHARTED_NODES = 3
TIMES = (
    ("dataloading_time", "Time to get a batch", "batches"),
    ("fetch_time", "Time of a worker to load a batch", "batches"),
    ("worker_time", "Lifetime of a worker", "workers"),
    ("tensorflow_time", "Time of a step of the tf.data pipeline", "events"),
)
ANSWERS = {None: NOTHING, True: "on", False: "off"}


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = nodes_of(entry, LoaderDetails)
    middle = ((setting(entry, "min_threshold") or 0.0) + (setting(entry, "max_threshold") or 200.0)) / 2.0
    picked = pick(nodes, worst=entry.worst, badness=lambda held: abs((_of_cores(held) or middle) - middle))
    shown: list[Block] = []
    if any(held.dataloaders is not None for held in nodes.values()):
        shown.append(_workers(entry, picked))
    charts = [
        _chart(node, title, what, waits)
        for node, held in picked.full[:CHARTED_NODES]
        for field, title, what in TIMES
        if (waits := getattr(held, field)) is not None and waits.histogram.counts
    ]
    if charts:
        shown.append(Figures(charts))
    rest = [
        (shown_name(node), number(held.dataloaders), count(held.cores), percent(_of_cores(held)))
        for node, held in picked.rest
    ]
    heads = [Column("Node"), *(Column(what, "number") for what in ("Loader processes", "Cores", "Share of cores"))]
    return [*shown, *folded_rest("Loader processes", heads, rest)]


def _workers(entry: RuleEntry, picked: Picked[LoaderDetails]) -> Table:
    limits = [*limit_of(entry, "min_threshold", "min"), *limit_of(entry, "max_threshold", "max")]
    ends = [*(_of_cores(held) for _, held in picked.full), *(limit.value for limit in limits)]
    scale = up_from_zero(most(ends, 100.0) or 100.0)
    columns = [
        Column("Node"),
        plot_column("Loader processes, percent of cores", scale, " %", limits),
        *(Column(what, "number") for what in ("Loader processes", "Cores", "Training processes", "num_workers")),
        Column("pin_memory"),
        Column("prefetch"),
    ]
    rows = [_row(node, held, scale, limits) for node, held in picked.full]
    return Table("Loader processes and cores", columns, rows)


def _row(node: str, held: LoaderDetails, scale: Scale, limits: list[strips.Limit]) -> tuple[str, ...]:
    part = _of_cores(held)
    said = f"{shown_name(node)}: {number(held.dataloaders)} loader processes for {held.cores} cores, {percent(part)}"
    outside = part is not None and len(limits) == 2 and not limits[0].value <= part <= limits[1].value
    drawn = strips.bar(part, scale, alt=said, tone="hot" if outside else "plain", limits=limits)
    counts = (number(held.dataloaders), count(held.cores), count(held.training_processes), count(held.num_workers))
    return shown_name(node), drawn, *counts, ANSWERS[held.pin_memory], ANSWERS[held.prefetch]


def _chart(node: str, title: str, what: str, waits: LoaderWaits) -> Figure:
    caption = f"{title} on {shown_name(node)}: {waits.count:,} {what}"
    said = f"{caption}, median {seconds(waits.p50)}, 95th percentile {seconds(waits.p95)}"
    lines = ((waits.p50, "median", "mean"), (waits.p95, "p95", "limit"))
    return Figure(caption, duration_chart(waits.histogram, lines, alt=said, up=what))


def _of_cores(held: LoaderDetails) -> float | None:
    if held.dataloaders is None or not held.cores:
        return None
    return 100.0 * held.dataloaders / held.cores
