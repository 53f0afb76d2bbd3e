"""The section that shows two runs beside each other: a table of what differs, and their losses in one chart."""

from trainguard.core.units import listed, show_percentage_points
from trainguard.render import numbers
from trainguard.render.blocks import Block, Column, Figure, Figures, Key, Note, Panel, Table
from trainguard.render.names import shown_name
from trainguard.report.comparison import losses
from trainguard.report.document import Change, Comparison, Report
from trainguard.report.html.training.charts import Curve, colour_of, curves


def comparison_panels(report: Report) -> list[Panel]:
    """Return the section; none of a report that was compared with no other."""
    held = report.comparison
    if held is None:
        return []
    columns = [Column("What"), Column("This run", "number"), Column("The other", "number"), Column("Change", "number")]
    parts = (("The runs as a whole", held.totals), ("Paid GPU time", held.ledger), ("Steps", held.steps))
    blocks: list[Block] = [
        Table(caption, columns, [_row(each, report.cost.currency) for each in changes])
        for caption, changes in (*parts, ("Loss", held.loss))
        if changes
    ]
    charts = _charts(report, held)
    own, other = _word(report.verdict.level), _word(held.level)
    lead = f"Both runs are {own}." if own == other else f"This run is {own}, the other {other}."
    return [
        Panel(
            anchor="comparison",
            title=f"Compared with {shown_name(held.job)}",
            blocks=[*_findings(held), *([Figures(charts)] if charts else []), *blocks],
            lead=lead,
        )
    ]


def change_words(change: Change, currency: str | None) -> tuple[str, str, str]:
    """Write both values of a change, and how much more or less the first one is."""
    here, there = (_shown(value, change, currency) for value in (change.here, change.there))
    return here, there, _difference(change)


def _row(change: Change, currency: str | None) -> tuple[str, str, str, str]:
    return (shown_name(change.what), *change_words(change, currency))


def _shown(value: float | None, change: Change, currency: str | None) -> str:
    if change.unit == "money":
        return numbers.money(value, currency)
    write = {"share": numbers.share, "seconds": numbers.seconds, "number": numbers.number}[change.unit]
    return write(value)


def _difference(change: Change) -> str:
    if change.here is None or change.there is None:
        return numbers.NOTHING
    by = change.here - change.there
    sign = "+" if by > 0.0 else "\N{MINUS SIGN}" if by < 0.0 else ""
    if change.unit == "share":
        return f"{sign}{show_percentage_points(100.0 * abs(by))}"
    return f"{sign}{numbers.share(abs(by / change.there))}" if change.there else numbers.NOTHING


def _word(level: str) -> str:
    return {"attention": "in need of attention", "unknown": "not known yet"}.get(level, level)


def _findings(held: Comparison) -> list[Block]:
    shown_here = (("Found in this run alone", held.found_here), ("Found in the other alone", held.found_there))
    return [Note(f"{what}: {listed([shown_name(rule) for rule in rules])}.") for what, rules in shown_here if rules]


def _charts(report: Report, held: Comparison) -> list[Figure]:
    there = {f"{each.name} {each.mode}": each for each in held.losses}
    charts = []
    for name, own in losses(report).items():
        other = there.get(f"{own.name} {own.mode}")
        if other is None:
            continue
        drawn = [
            Curve("this run", own.steps, own.mean, at=own.at),
            Curve("the other run", other.steps, other.mean),
        ]
        keys = [Key(f"line {colour_of(index)}", curve.name) for index, curve in enumerate(drawn)]
        alt = f"{name} of both runs over steps"
        charts.append(Figure(shown_name(name), curves(drawn, alt=alt, across="step", up=""), keys))
    return charts
