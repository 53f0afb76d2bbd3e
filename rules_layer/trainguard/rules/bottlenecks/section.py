"""CPUBottleneck and IOBottleneck: shares against the threshold, and what the framework did in that time."""

from collections.abc import Sequence

from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.render.blocks import Block, Cell, Column, Folded, Key, Table, plot_column
from trainguard.render.nodes import folded_rest, most, nodes_of, pick
from trainguard.render.numbers import count, event_name, moment, percent, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.scale import PERCENT, up_from_zero
from trainguard.render.rule_entry import RuleEntry, limit_of
from trainguard.rules.bottlenecks.text import BottleneckDetails, ComparedClass, ComparedMinutes, ComparedPhase

COMPARED = (Key("bar hot", "minutes with bottlenecks"), Key("bar plain", "minutes without"))
Compared = ComparedClass | ComparedPhase


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = {node: held for node, held in nodes_of(entry, BottleneckDetails).items() if held.judged}
    picked = pick(nodes, worst=entry.worst, badness=lambda held: max(_whole(held), _recent(held)))
    if not nodes:
        return []
    limits = limit_of(entry, "threshold")
    columns = [
        Column("Node"),
        plot_column("Points with a bottleneck or in slow minutes, whole job", PERCENT, " %", limits),
        *(Column(what, "number") for what in ("Whole job", "Last 30 min", "GPUs low", "Points")),
    ]
    rows = [_row(node, held, limits) for node, held in picked.full]
    shown: list[Block] = [Table("Share of the points with a bottleneck", columns, rows)]
    worst, first = picked.full[0]
    if first.framework is not None:
        shown.extend(_compared(worst, first.framework))
    shown.extend(_newest(worst, first))
    rest = [
        (shown_name(node), percent(_whole(held)), percent(_recent(held)), count(held.judged))
        for node, held in picked.rest
    ]
    heads = [Column("Node"), *(Column(what, "number") for what in ("Whole job", "Last 30 min", "Points"))]
    return [*shown, *folded_rest("Share of the points with a bottleneck", heads, rest)]


def _row(node: str, held: BottleneckDetails, limits: list[strips.Limit]) -> tuple[str, ...]:
    shown = shown_name(node)
    whole = _whole(held)
    said = f"{shown}: {held.bottlenecked:,} of {held.judged:,} points, {percent(held.share_percent)}"
    if held.slow_share_percent > held.share_percent:
        said = f"{shown}: {percent(held.slow_share_percent)} of {held.judged:,} points lie in slow minutes"
    hot = bool(limits) and whole > limits[0].value
    drawn = strips.bar(whole, PERCENT, alt=said, tone="hot" if hot else "plain", limits=limits)
    low = 100.0 * held.low_gpu_utilization / held.judged
    recent = percent(_recent(held)) if held.recent_judged else percent(None)
    return shown, drawn, percent(whole), recent, percent(low), count(held.judged)


def _whole(held: BottleneckDetails) -> float:
    """Return the share of points that are bottlenecks, or lie in slow minutes where they are more, percent."""
    return max(held.share_percent, held.slow_share_percent)


def _recent(held: BottleneckDetails) -> float:
    return max(held.recent_share_percent, held.recent_slow_share_percent)


def _compared(node: str, minutes: ComparedMinutes) -> list[Block]:
    if not minutes.minutes_with_bottlenecks:
        return []
    where = f"{minutes.minutes_with_bottlenecks} clock minutes with bottlenecks"
    without = f" against {minutes.minutes_without} without" if minutes.minutes_without else ", none without"
    parts: Sequence[tuple[str, Sequence[Compared]]] = (("Class of events", minutes.classes), ("Phase", minutes.phases))
    return [_table(f"{what}, {where}{without}, on {shown_name(node)}", what, rows) for what, rows in parts if rows]


def _table(caption: str, what: str, compared: Sequence[Compared]) -> Table:
    shares = [value for each in compared for value in (each.with_bottlenecks_percent, each.without_percent)]
    scale = up_from_zero(most(shares, 1.0) or 1.0)
    columns = [Column(what), plot_column("Share of the processes' time", scale, " %"), Column("With", "number")]
    both = any(each.without_percent is not None for each in compared)
    rows: list[Sequence[Cell]] = []
    for each in compared:
        hit, clean = each.with_bottlenecks_percent, each.without_percent
        name = event_name(each.name)
        said = f"{name}: {percent(hit)} with bottlenecks"
        if both:
            drawn = strips.pair(hit, clean, scale, alt=f"{said}, {percent(clean)} without")
            rows.append((name, drawn, percent(hit), percent(clean)))
        else:
            rows.append((name, strips.bar(hit, scale, alt=said, tone="hot"), percent(hit)))
    if both:
        return Table(caption, [*columns, Column("Without", "number")], rows, COMPARED)
    return Table(caption, columns, rows)


def _newest(node: str, held: BottleneckDetails) -> list[Block]:
    if not held.bottlenecks:
        return []
    columns = [Column("Time (UTC)"), Column("GPUs low", "number"), Column("Highest core", "number")]
    rows = [
        (moment(iso_time(each.time)), count(each.gpus_low), percent(most([each.cpu_max, each.io_wait_max])))
        for each in reversed(held.bottlenecks)
    ]
    table = Table(f"The newest bottlenecks of {shown_name(node)}", columns, rows)
    return [Folded(f"The newest {counted(len(rows), 'bottleneck')}", (table,))]
