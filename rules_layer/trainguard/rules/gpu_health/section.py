"""What the page shows of each GPU's health."""

from trainguard.render.blocks import Block, Column
from trainguard.render.nodes import nodes_of, table_of
from trainguard.render.numbers import number, shown_name
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.gpu_health.rule import HealthDetails


def blocks(entry: RuleEntry) -> list[Block]:
    found = [
        (node, gpu, held) for node, each in nodes_of(entry, HealthDetails).items() for gpu, held in each.series.items()
    ]
    rows = [
        (
            f"{shown_name(node)} / {shown_name(gpu)}",
            ", ".join(map(shown_name, held.problems)) or "none",
            ", ".join(f"{shown_name(code)} ({count:,})" for code, count in held.xids.items()) or "none",
            f"{held.uncorrectable_errors:,}",
            number(held.clock),
            f"{held.throttled_minutes} of {held.loaded_minutes}",
            number(held.link_width),
        )
        for node, gpu, held in sorted(found, key=lambda each: not each[2].problems)
    ]
    columns = [
        *(Column(what) for what in ("GPU", "Problems", "XIDs")),
        *(Column(what, "number") for what in ("Uncorrectable errors", "Clock, MHz", "Throttled minutes", "PCIe lanes")),
    ]
    return table_of("Health of each GPU", columns, rows)
