"""A box for each GPU, with the newest window's quantiles and both thresholds."""

from trainguard.render.blocks import Block, Column, Key, Note, Table, plot_column
from trainguard.render.nodes import Picked, folded_rest, label, least, nodes_of, pick
from trainguard.render.numbers import percent, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import PERCENT
from trainguard.render.rule_entry import RuleEntry, limit_of
from trainguard.rules.low_gpu_utilization.usage import GpuUsage, LowGpuDetails

KINDS = {None: "steady", "under": "under-used", "fluctuating": "fluctuates"}
MEMORY = {
    "held": "a process holds the memory of idle GPUs.",
    "free": "the idle GPUs hold no memory, so that no process waits on them.",
    "not collected": (
        "whether idle GPUs hold memory is not known: trainguard-collector, dcgm-exporter and W&B record memory in use."
    ),
}
LEGEND = (
    Key("box", "middle half of all values"),
    Key("median", "median"),
    Key("mark", "95th percentile of the newest window"),
    Key("mark hollow", "5th percentile of the newest window"),
    Key("limit", "threshold"),
)


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = nodes_of(entry, LowGpuDetails)
    picked = pick(nodes, worst=entry.worst, badness=_badness)
    limits = [*limit_of(entry, "threshold_p5", "p5"), *limit_of(entry, "threshold_p95", "p95")]
    columns = [
        Column("GPU"),
        plot_column("Utilization", PERCENT, " %", limits),
        *(Column(what, "number") for what in ("Median", "Newest p95", "Newest p5")),
        Column("Newest window"),
    ]
    rows = [_row(node, gpu, usage, picked, limits) for node, held in picked.full for gpu, usage in held.gpus.items()]
    shown: list[Block] = []
    if rows:
        shown.append(Table("Utilization of each GPU, start-up and pauses left out", columns, rows, LEGEND))
    for node, held in picked.full:
        if held.never_active:
            gpus = ", ".join(shown_name(gpu, 24) for gpu in held.never_active[:16])
            shown.append(Note(f"Never used on {shown_name(node)}: {gpus}."))
    shown.extend(
        Note(f"{shown_name(node)}: {MEMORY[held.memory]}") for node, held in picked.full if held.memory in MEMORY
    )
    rest = [
        (shown_name(node), str(len(held.gpus)), percent(_least_busy(held)), _kinds(held)) for node, held in picked.rest
    ]
    least_busy = [Column("Node"), Column("GPUs", "number"), Column("Lowest p95", "number"), Column("Newest window")]
    return [*shown, *folded_rest("Utilization of GPUs", least_busy, rest)]


def _row(
    node: str, gpu: str, usage: GpuUsage, picked: Picked[LowGpuDetails], limits: list[strips.Limit]
) -> tuple[str, ...]:
    shown = label(node, gpu, picked)
    box = (usage.lower, usage.p25, usage.p50, usage.p75, usage.upper)
    said = f"{shown}: median {percent(usage.p50)}, middle half {percent(usage.p25)} to {percent(usage.p75)}"
    tone, marks = "hot" if usage.kind else "plain", (usage.gpu_95, usage.gpu_5)
    drawn = strips.box(box, PERCENT, alt=said, tone=tone, limits=limits, marks=marks)
    kind = "not judged" if usage.gpu_95 is None else KINDS.get(usage.kind, shown_name(str(usage.kind)))
    return shown, drawn, percent(usage.p50), percent(usage.gpu_95), percent(usage.gpu_5), kind


def _least_busy(held: LowGpuDetails) -> float | None:
    return least([usage.gpu_95 for usage in held.gpus.values()])


def _kinds(held: LowGpuDetails) -> str:
    kinds = sorted({KINDS.get(usage.kind, str(usage.kind)) for usage in held.gpus.values() if usage.kind})
    return held.finding or ", ".join(kinds) or "steady"


def _badness(held: LowGpuDetails) -> float:
    low = sum(usage.kind is not None for usage in held.gpus.values()) + 2.0 * (held.finding is not None)
    return 100.0 * low - (_least_busy(held) or 0.0)
