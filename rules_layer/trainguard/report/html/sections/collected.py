"""Rules over the collector's series: tables of GPUs, of nodes without work, and of ranks."""

from collections.abc import Sequence

from trainguard.report.document import RuleEntry
from trainguard.report.html.blocks import Block, Column, Table
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, number
from trainguard.report.html.sections.nodes import ROWS_AT_MOST, nodes_of
from trainguard.rules.gpu_problems import HealthDetails
from trainguard.rules.hung_details import HungDetails
from trainguard.rules.straggler import StragglerDetails
from trainguard.rules.units import show_duration, show_step


def health(entry: RuleEntry) -> list[Block]:
    """Return what is known of each GPU, those with problems first."""
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
        Column("GPU"),
        Column("Problems"),
        Column("XIDs"),
        Column("Uncorrectable errors", "number"),
        Column("Clock, MHz", "number"),
        Column("Throttled minutes", "number"),
        Column("PCIe lanes", "number"),
    ]
    return _table("Health of each GPU", columns, rows)


def hung(entry: RuleEntry) -> list[Block]:
    """Return what the GPUs of each node do, and the newest step of each process."""
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
    shown = _table("GPUs of each node", columns, rows)
    return shown + _table("Newest step of each process", [Column("Process"), Column("Step", "number")], newest)


def stragglers(entry: RuleEntry) -> list[Block]:
    """Return each rank's own work in a step beside its peers'."""
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
        Column("Own work", "number"),
        Column("Its peers'", "number"),
        Column("Step", "number"),
        Column("Steps", "number"),
        Column("Judged as"),
    ]
    return _table("Own work of each rank in a step", columns, rows)


def _watts(power: dict[str, float]) -> str:
    return number(sum(power.values()) / len(power)) if power else NOTHING


def _table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[Block]:
    return [Table(caption, columns, rows[:ROWS_AT_MOST])] if rows else []
