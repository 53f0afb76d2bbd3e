"""What the page shows of nodes without work."""

from trainguard.core.units import show_duration
from trainguard.render.blocks import Block, Column
from trainguard.render.names import shown_name
from trainguard.render.nodes import nodes_of, table_of
from trainguard.render.numbers import NOTHING, number
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.hung_job.rule import HungDetails


def blocks(entry: RuleEntry) -> list[Block]:
    details = nodes_of(entry, HungDetails).values()
    nodes = {node: held for each in details for node, held in each.nodes.items()}
    steps = {process: step for each in details for process, step in each.steps.items()}
    rows = [
        (
            shown_name(node),
            ", ".join(map(shown_name, held.waiting)) or "none",
            ", ".join(map(shown_name, held.idle)) or "none",
            _watts(held.power),
            _watts(held.power_at_work),
            show_duration(held.quiet_s),
        )
        for node, held in nodes.items()
    ]
    columns = [
        Column("Node"),
        Column("Waiting at last"),
        Column("Idle at last"),
        Column("Power then, W", "number"),
        Column("Power at work, W", "number"),
        Column("Without work", "number"),
    ]
    newest = [(shown_name(process), shown_name(step)) for process, step in steps.items()]
    shown = table_of("GPUs of each node", columns, rows)
    return shown + table_of("Newest step of each process", [Column("Process"), Column("Step", "number")], newest)


def _watts(power: dict[str, float]) -> str:
    return number(sum(power.values()) / len(power)) if power else NOTHING
