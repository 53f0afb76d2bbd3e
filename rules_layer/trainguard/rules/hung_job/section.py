"""What the page shows of nodes without work."""

from trainguard.core.finding import clock
from trainguard.core.units import show_duration
from trainguard.render.blocks import Block, Column
from trainguard.render.nodes import nodes_of, table_of
from trainguard.render.numbers import NOTHING, number, shown_name
from trainguard.render.rule_entry import RuleEntry
from trainguard.rules.hung_job.rule import HungDetails
from trainguard.rules.rule_inputs import KnownHang, KnownRank


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
    hang = next((each.hang for each in details if each.hang is not None), None)
    shown += [] if hang is None else _ranks(hang)
    return shown + table_of("Newest step of each process", [Column("Process"), Column("Step", "number")], newest)


def _ranks(hang: KnownHang) -> list[Block]:
    rows = [
        (
            f"{each.rank}",
            shown_name(each.node) if each.node else NOTHING,
            each.kind.replace("_", " "),
            _operation(each),
            shown_name(each.line) if each.line else NOTHING,
            number(each.waiting),
        )
        for each in hang.named
    ]
    columns = [
        Column("Rank", "number"),
        Column("Node"),
        Column("Is"),
        Column("In"),
        Column("Line"),
        Column("Ranks that wait", "number"),
    ]
    about = [
        ("Newest file", clock(hang.at)),
        ("Files read", number(hang.files)),
        ("Files that could not be read", number(hang.unread)),
        ("Files left out", number(hang.left_out)),
        ("Ranks without a dump", number(hang.without_dump)),
        ("Ranks that wait", number(hang.waiting)),
        ("They wait in", _operation(hang)),
        ("At", shown_name(hang.waiting_line) if hang.waiting_line else NOTHING),
    ]
    shown = table_of("Ranks that hold up others, by dumps and stacks", columns, rows)
    return shown + table_of("Dumps of the newest standstill", [Column("What"), Column("Value")], about)


def _operation(held: KnownHang | KnownRank) -> str:
    if not held.operation:
        return NOTHING
    group = f" of {shown_name(held.group)}" if held.group else ""
    return f"{shown_name(held.operation)} {NOTHING if held.sequence is None else number(held.sequence)}{group}"


def _watts(power: dict[str, float]) -> str:
    return number(sum(power.values()) / len(power)) if power else NOTHING
