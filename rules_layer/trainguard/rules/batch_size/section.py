"""Boxes for a node's CPU, and for each GPU and its memory."""

from trainguard.render.blocks import Block, Column, Key, Note, Table, plot_column
from trainguard.render.nodes import Picked, folded_rest, label, most, nodes_of, pick
from trainguard.render.numbers import percent, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import PERCENT
from trainguard.render.rule_entry import RuleEntry, limit_of
from trainguard.rules.batch_size.rule import BatchDetails, SeriesUsage

_MEMORY = "_memory"
LEGEND = (
    Key("box", "middle half"),
    Key("median", "median"),
    Key("mark", "95th percentile of the newest window"),
    Key("limit", "threshold"),
)
Series = dict[str, SeriesUsage]


def blocks(entry: RuleEntry) -> list[Block]:
    details = nodes_of(entry, BatchDetails)
    nodes = {node: dict(held.series) for node, held in details.items() if held.series}
    picked = pick(nodes, worst=entry.worst, badness=lambda held: -(_highest(held)[1] or 0.0))
    columns = [
        Column("Series"),
        plot_column("Utilization", PERCENT, " %"),
        *(Column(what, "number") for what in ("Median", "p95 newest", "Threshold")),
    ]
    rows = [_row(entry, node, series, box, picked) for node, held in picked.full for series, box in held.items()]
    shown: list[Block] = []
    if rows:
        shown.append(Table("CPU, GPUs and their memory", columns, rows, LEGEND))
        shown.extend(Note(held.memory_note) for held in [*details.values()][:1])
    rest = [(shown_name(node), *(percent(value) for value in _highest(held))) for node, held in picked.rest]
    heads = [Column("Node"), *(Column(f"p95 {what}", "number") for what in ("CPU", "GPU", "GPU memory"))]
    return [*shown, *folded_rest("Highest 95th percentiles", heads, rest)]


def _row(entry: RuleEntry, node: str, series: str, box: SeriesUsage, picked: Picked[Series]) -> tuple[str, ...]:
    memory = series.endswith(_MEMORY)
    shown = label(node, f"{series.removesuffix(_MEMORY)} memory" if memory else series.replace("cpu", "CPU"), picked)
    parameter = (
        "gpu_memory_threshold_p95" if memory else "cpu_threshold_p95" if series == "cpu" else "gpu_threshold_p95"
    )
    limits = limit_of(entry, parameter, "")
    values = (box.lower, box.p25, box.p50, box.p75, box.upper)
    said = f"{shown}: median {percent(box.p50)}, 95th percentile {percent(box.window_p95)}"
    tone = "quiet" if memory else "plain"
    drawn = strips.box(values, PERCENT, alt=said, tone=tone, limits=limits, marks=(box.window_p95,))
    return shown, drawn, percent(box.p50), percent(box.window_p95), percent(limits[0].value if limits else None)


def _highest(held: Series) -> tuple[float | None, float | None, float | None]:
    gpus = [box.window_p95 for series, box in held.items() if series != "cpu" and not series.endswith(_MEMORY)]
    memory = [box.window_p95 for series, box in held.items() if series.endswith(_MEMORY)]
    cpu = held["cpu"].window_p95 if "cpu" in held else None
    return cpu, most(gpus), most(memory)
