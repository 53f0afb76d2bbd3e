"""What the page shows of each rank beside its peers."""

from trainguard.core.units import show_step
from trainguard.render.blocks import Block, Column
from trainguard.render.nodes import table_of
from trainguard.render.numbers import shown_name
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.straggler.rule import StragglerDetails


def blocks(entry: RuleEntry) -> list[Block]:
    if not entry.details:
        return []
    rows = [
        (
            shown_name(process),
            show_step(held.own_us),
            show_step(held.peers_us),
            show_step(held.step_us),
            f"{held.steps:,}",
            "slow" if held.is_slow else "",
        )
        for process, held in StragglerDetails.read(entry.details).processes.items()
    ]
    columns = [
        Column("Process"),
        *(Column(what, "number") for what in ("Own work", "Its peers'", "Step", "Steps")),
        Column("Judged as"),
    ]
    return table_of("Own work of each rank in a step", columns, rows)
