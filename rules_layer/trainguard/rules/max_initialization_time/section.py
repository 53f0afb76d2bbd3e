"""MaxInitializationTime: the time before the first step against the threshold."""

from trainguard.render.blocks import Block, Column, Table, plot_column
from trainguard.render.nodes import most
from trainguard.render.numbers import duration
from trainguard.render.plots import strips
from trainguard.render.plots.scale import up_from_zero
from trainguard.render.rule_entry import RuleEntry, limit_of
from trainguard.rules.max_initialization_time.rule import Initialization


def blocks(entry: RuleEntry) -> list[Block]:
    if not entry.details:
        return []
    held = Initialization.read(entry.details)
    minutes, limits = held.initialization_s / 60.0, limit_of(entry, "threshold", unit=" min")
    scale = up_from_zero(most([minutes, *(limit.value for limit in limits)], 1.0) or 1.0)
    what = "until the first step" if held.step_seen else "without a step so far"
    said = f"{duration(held.initialization_s)} {what}"
    hot = bool(limits) and minutes > limits[0].value
    drawn = strips.bar(minutes, scale, alt=said, tone="hot" if hot else "plain", limits=limits)
    columns = [Column("Since training start"), plot_column("Minutes", scale, " min", limits), Column("Time", "number")]
    return [Table("Time before the first step", columns, [(what, drawn, duration(held.initialization_s))])]
