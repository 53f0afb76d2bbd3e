"""The section of a fleet's page on users, teams and projects."""

from collections.abc import Sequence

from trainguard.report.fleet_document import FleetOwner, FleetReport
from trainguard.report.html.blocks import Block, Column, Folded, Table, plot_column
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, duration, money, share
from trainguard.report.html.plots.scale import PERCENT
from trainguard.report.html.plots.strips import bar

IN_FULL = 15
WEEKS = 4
_HOUR_S = 3_600.0
_LONGEST = 64


def owner_blocks(report: FleetReport) -> list[Block]:
    """Return a table for each kind of owner that the jobs name, with what the newest weeks' jobs lost."""
    kinds = dict.fromkeys(each.kind for each in report.owners)
    mondays = [week.monday for week in report.weeks[-WEEKS:]]
    blocks: list[Block] = []
    for kind in kinds:
        owners = [each for each in report.owners if each.kind == kind]
        blocks.append(_table(f"By {kind}, those that lost most first", kind, owners[:IN_FULL], mondays, report))
        if more := owners[IN_FULL:]:
            table = _table(f"By {kind}, the others", kind, more, mondays, report)
            blocks.append(Folded(f"{count(len(more))} more", (table,)))
    return blocks


def _table(caption: str, kind: str, owners: Sequence[FleetOwner], mondays: Sequence[str], report: FleetReport) -> Table:
    columns = (
        Column(kind.capitalize()),
        Column("Lost", "number"),
        Column("Spent", "number"),
        plot_column("Wasted of the instance hours", PERCENT, " %"),
        Column("Jobs", "number"),
        Column("With findings", "number"),
        Column("Instance time", "number"),
        *(Column(f"Lost, week of {monday}", "number") for monday in reversed(mondays)),
    )
    return Table(caption, columns, [_row(each, mondays, report.totals.currency) for each in owners])


def _row(owner: FleetOwner, mondays: Sequence[str], currency: str) -> list[str]:
    by_week = {week.monday: week.lost for week in owner.weeks}
    percent = None if owner.wasted_share is None else 100.0 * owner.wasted_share
    name = f"no {owner.kind} named" if owner.name is None else shown_name(owner.name, _LONGEST)
    return [
        name,
        money(owner.lost, currency),
        money(owner.spent, currency),
        bar(percent, PERCENT, said=f"{share(owner.wasted_share)} of the instance hours", tone="plain"),
        count(owner.jobs),
        count(owner.with_findings),
        duration(owner.instance_hours * _HOUR_S),
        *(money(by_week[each], currency) if each in by_week else NOTHING for each in reversed(mondays)),
    ]
