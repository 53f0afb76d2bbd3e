"""OverallFrameworkMetrics: where the time went, by phase, pass, device, operator and communication."""

from collections.abc import Mapping, Sequence

from trainguard.render.blocks import Block, Column, Folded, Table, plot_column
from trainguard.render.nodes import folded_rest, nodes_of, pick
from trainguard.render.numbers import event_name, percent, seconds, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import up_from_zero
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.overall_framework_metrics.rule import TimeDetails

SHOWN_OPERATORS = 12
OTHERS = "others"


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = {node: held for node, held in nodes_of(entry, TimeDetails).items() if held.ratio or held.phase}
    picked = pick(nodes, worst=entry.worst, badness=lambda held: held.phase.get(OTHERS, 0.0))
    if not nodes:
        return []
    node, first = picked.full[0]
    shown: list[Block] = _of_node(node, first)
    shown.extend(Folded(f"The same of {shown_name(node)}", _of_node(node, held)) for node, held in picked.full[1:])
    rest = [(shown_name(node), percent(held.phase.get(OTHERS))) for node, held in picked.rest]
    return [*shown, *folded_rest("Between steps", [Column("Node"), Column("Share of time", "number")], rest)]


def _of_node(node: str, held: TimeDetails) -> list[Block]:
    parts: Sequence[tuple[str, str, Mapping[str, float], Mapping[str, float]]] = (
        ("Training loop by phase", "Phase", held.phase, held.phase_time),
        ("Forward and backward pass", "Pass", held.forward_backward, {}),
        ("Operators by device", "Device", held.ratio, {}),
        ("CPU operators", "Operator", held.cpu, held.cpu_total),
        ("GPU operators", "Operator", held.gpu, held.gpu_total),
        ("Other framework events", "Event", held.general, {}),
        ("Horovod", "Operation", held.horovod, {}),
        ("SageMaker data parallel", "Operation", held.smdataparallel, {}),
    )
    time = f"Time, {held.processes:,} processes together" if held.processes > 1 else "Time"
    return [
        _bars(f"{title}, {shown_name(node)}", what, time, shares, totals)
        for title, what, shares, totals in parts
        if shares
    ]


def _bars(caption: str, what: str, time: str, shares: Mapping[str, float], totals_us: Mapping[str, float]) -> Table:
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    scale = up_from_zero(max(ranked[0][1], 1.0))
    columns = [Column(what), plot_column("Share of the time", scale, " %"), Column("Share", "number")]
    if totals_us:
        columns.append(Column(time, "number"))
    rows = []
    for key, part in ranked[:SHOWN_OPERATORS]:
        shown = "between steps" if key == OTHERS else event_name(key)
        total_us = totals_us.get(key)
        drawn = strips.bar(part, scale, alt=f"{shown}: {percent(part)}")
        total = [seconds(None if total_us is None else total_us / 1e6)] if totals_us else []
        rows.append((shown, drawn, percent(part), *total))
    left = ranked[SHOWN_OPERATORS:]
    note = f"{len(left):,} more take {percent(sum(part for _, part in left))} together." if left else None
    return Table(caption, columns, rows, note=note)
