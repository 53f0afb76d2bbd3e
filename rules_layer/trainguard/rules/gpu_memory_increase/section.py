"""GPUMemoryIncrease: the floors of the windows over time, and a box of the newest window for each GPU."""

from trainguard.render.blocks import Block, Column, Figure, Figures, Key, Table, plot_column
from trainguard.render.nodes import Picked, folded_rest, label, most, nodes_of, pick
from trainguard.render.numbers import duration, number, percent, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.charts import SERIES_COLOURS, lines_over
from trainguard.render.plots.scale import PERCENT
from trainguard.render.rule_entry import RuleEntry, setting
from trainguard.rules.gpu_memory_increase.text import GpuMemoryDetails, MemoryDetails

KINDS = {
    None: "no increase",
    "jump": "jumped",
    "trend": "grows steadily",
    "late": "grows since late",
    "rise": "grows of late",
    "leak": "leaks",
}
LEGEND = (Key("box", "middle half of the newest window"), Key("median", "median"))
MINUTE_S, HOUR_S = 60.0, 3_600.0
Gpus = dict[str, GpuMemoryDetails]


def blocks(entry: RuleEntry) -> list[Block]:
    details = nodes_of(entry, MemoryDetails)
    what = "memory in use" if any(held.in_use for held in details.values()) else "memory activity"
    nodes = {node: dict(held.series) for node, held in details.items() if held.series}
    picked = pick(nodes, worst=entry.worst, badness=_badness)
    charts = [
        _chart(node, gpus, what) for node, gpus in picked.full if any(len(gpu.floors) > 1 for gpu in gpus.values())
    ]
    allowed = setting(entry, "increase")
    columns = [
        Column("GPU"),
        plot_column("Activity, newest window", PERCENT, " %"),
        *(Column(what, "number") for what in ("Lowest floor", "Newest floor", "Increase")),
        Column("Judged as"),
    ]
    rows = [_row(node, gpu, held, picked) for node, gpus in picked.full for gpu, held in gpus.items()]
    shown: list[Block] = [Figures(charts)] if charts else []
    if rows:
        note = (
            None if allowed is None else f"An increase of more than {number(allowed)} percentage points is a finding."
        )
        shown.append(Table(f"{what.capitalize()} of each GPU", columns, rows, LEGEND, note))
    rest = [
        (shown_name(node), str(len(gpus)), _points(most([gpu.increase for gpu in gpus.values()])))
        for node, gpus in picked.rest
    ]
    heads = [Column("Node"), Column("GPUs", "number"), Column("Largest increase", "number")]
    return [*shown, *folded_rest(f"{what.capitalize()} of GPUs", heads, rest)]


def _chart(node: str, gpus: Gpus, what: str) -> Figure:
    window_s = max(gpu.floor_s for gpu in gpus.values())
    longest = max(len(gpu.floors) for gpu in gpus.values())
    unit, unit_s = ("h", HOUR_S) if longest * window_s > 3 * HOUR_S else ("min", MINUTE_S)
    chosen = sorted(gpus.items(), key=lambda item: -(item[1].increase or 0.0))[:SERIES_COLOURS]
    points = {shown_name(gpu, 24): held.floors for gpu, held in sorted(chosen)}
    said = f"Floors of GPU {what} on {shown_name(node)} over windows of {duration(window_s)}: " + "; ".join(
        f"{gpu} from {percent(floors[0])} to {percent(floors[-1])}" for gpu, floors in points.items() if floors
    )
    across = f"{unit} of training, a point for every {duration(window_s)}"
    markup = lines_over(points, step=window_s / unit_s, alt=said, across=across, up=PERCENT)
    legend = [Key(f"line s{index % SERIES_COLOURS + 1}", gpu) for index, gpu in enumerate(points)]
    return Figure(f"Floor of GPU {what} on {shown_name(node)}", markup, legend)


def _row(node: str, gpu: str, held: GpuMemoryDetails, picked: Picked[Gpus]) -> tuple[str, ...]:
    shown = label(node, gpu, picked)
    box = (held.lower, held.p25, held.p50, held.p75, held.upper)
    said = f"{shown}: median {percent(held.p50)}, 95th percentile {percent(held.p95)}"
    drawn = strips.box(box, PERCENT, alt=said, tone="hot" if held.kind else "plain")
    lowest, newest = min(held.floors, default=None), held.floors[-1] if held.floors else None
    kind = KINDS.get(held.kind, shown_name(str(held.kind)))
    return shown, drawn, percent(lowest), percent(newest), _points(held.increase), kind


def _points(increase: float | None) -> str:
    return number(increase) if increase is None else f"{increase:+,.1f}"


def _badness(gpus: Gpus) -> float:
    largest = most([gpu.increase for gpu in gpus.values()], 0.0) or 0.0
    return largest + 1_000.0 * any(gpu.kind for gpu in gpus.values())
