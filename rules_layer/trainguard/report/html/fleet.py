"""``fleet.html`` of all jobs of a deployment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trainguard.finding import Severity
from trainguard.records import Status
from trainguard.report.fleet import OVER
from trainguard.report.fleet_document import FleetJob, FleetReport, FleetTotals, Heat
from trainguard.report.html.blocks import Block, Cell, Column, Folded, Note, Table, heat, plot_column
from trainguard.report.html.fleet_kernels import kernel_profiles_table
from trainguard.report.html.fleet_owners import owner_blocks
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, duration, moment, money, share
from trainguard.report.html.overview import KeyFigure
from trainguard.report.html.page import render_page
from trainguard.report.html.plots.scale import PERCENT, up_from_zero
from trainguard.report.html.plots.strips import bar
from trainguard.report.html.scripts import read_asset

IN_FULL = 25
_HOUR_S = 3_600.0
_SHADES: Mapping[str, int] = {Severity.CRITICAL: 4, Severity.HIGH: 3, Severity.MEDIUM: 2, Severity.LOW: 1, OVER: 1}
_QUIET: Mapping[str, str] = {
    Status.OK: "ok",
    Status.ERROR: "error",
    Status.WARMING_UP: "no verdict",
    Status.WAITING_FOR_DATA: "no data",
    Status.NOT_APPLICABLE: "n/a",
    Status.DISABLED: "off",
}
_JOB_LONGEST = 64
_PLACE_LONGEST = 96
_DATE = len("2026-11-23")
_STYLES = "section tbody th { min-width: 8.5em; }"
_TO_READ = Note(
    "A job's name leads to its report in the console of S3; trainguard open and the name open one without the console."
)
_TO_READ_OF_A_FOLDER = Note(
    "trainguard report and a job's place make its report. A name leads to the tool that shows it."
)


@dataclass(frozen=True, slots=True)
class FleetSection:
    """A section of the page with what it shows."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def render_fleet(report: FleetReport) -> str:
    """Return the page of a fleet: one file that needs nothing else; the filter of kernel profiles is its only script.

    Parameters
    ----------
    report : FleetReport
        Its texts may hold anything; they are shown, not run.
    """
    owners = FleetSection("owners", "Users, teams and projects", owner_blocks(report))
    made = (_wasters(report), _heat(report.heat), _rules(report), _weeks(report), owners, _instances(report))
    sections = [section for section in (*made, _kernels(report), _stops(report), _unjudged(report)) if section.blocks]
    return render_page(
        "fleet.html.j2",
        styles=_STYLES,
        script=read_asset("fleet/filter.js") if report.kernel_profiles else "",
        report=report,
        sections=sections,
        figures=_figures(report.totals),
        verdict=_verdict(report),
    )


def _verdict(report: FleetReport) -> str:
    """Say in a sentence how the fleet does."""
    totals = report.totals
    if not totals.judged:
        return f"No verdict yet: none of {count(totals.jobs)} jobs was evaluated."
    said = f"{count(totals.with_findings)} of {count(totals.judged)} evaluated jobs have findings."
    if totals.wasted_share is not None:
        said += f" They wasted at least {share(totals.wasted_share)} of the instance hours"
        if totals.lost is not None:
            said += f", {money(totals.lost, totals.currency)} of {money(totals.spent, totals.currency)}"
        said += "."
    return said


def _figures(totals: FleetTotals) -> list[KeyFigure]:
    judged = f"{count(totals.active)} active, {count(totals.jobs - totals.judged)} without a verdict"
    paid = f"of {money(totals.spent, totals.currency)} spent" if totals.lost is not None else "no price is known"
    hours = f"of {duration(totals.instance_hours * _HOUR_S)} of instances"
    fires = f"{count(totals.fires)} fires"
    return [
        KeyFigure("Jobs", count(totals.jobs), judged),
        KeyFigure("With findings", count(totals.with_findings), fires),
        KeyFigure("Lost", money(totals.lost, totals.currency), paid),
        KeyFigure("Wasted", share(totals.wasted_share), hours),
        KeyFigure("Stops made", count(totals.stops), "training jobs stopped by a rule"),
    ]


def _kernels(report: FleetReport) -> FleetSection:
    return FleetSection("kernels", "Kernel profiles", kernel_profiles_table(report))


def _wasters(report: FleetReport) -> FleetSection:
    jobs = [job for job in report.jobs if job.fired]
    columns = (
        Column("Job"),
        Column("Lost", "number"),
        plot_column("Wasted of the paid time", PERCENT, " %"),
        Column("Rules that fired"),
        Column("Instances"),
        Column("Began"),
    )
    rows = [_job(job, report.totals.currency) for job in jobs]
    blocks: list[Block] = []
    if rows:
        to_read = _TO_READ if report.folder is None else _TO_READ_OF_A_FOLDER
        blocks += [Table("Jobs, the most wasteful first", columns, rows[:IN_FULL]), to_read]
    if len(rows) > IN_FULL:
        table = Table("More jobs with findings", columns, rows[IN_FULL:])
        blocks.append(Folded(f"{count(len(rows) - IN_FULL)} more jobs", (table,)))
    if report.rest.with_findings:
        lost = f" They lost {money(report.rest.lost, report.totals.currency)}." if report.rest.lost else ""
        blocks.append(Note(f"{count(report.rest.with_findings)} more jobs with findings are not listed.{lost}"))
    return FleetSection("jobs", "What wastes most", blocks)


def _job(job: FleetJob, currency: str) -> list[Cell]:
    nodes = "" if job.instance_count is None else f"{count(job.instance_count)} x "
    wasted = "of the paid time" if job.wasted_share is not None else "not known"
    percent = None if job.wasted_share is None else 100.0 * job.wasted_share
    return [
        _linked(job),
        money(job.lost, currency),
        bar(percent, PERCENT, said=f"{share(job.wasted_share)} {wasted}", tone="hot"),
        ", ".join(job.fired),
        f"{nodes}{job.instance_type or NOTHING}",
        moment(job.started_at)[:_DATE],
    ]


def _linked(job: FleetJob) -> Markup:
    """Return the job's name, leading to its report in the console, or to its tool, and the place where it lies."""
    name = Markup("<bdi>{}</bdi>").format(shown_name(job.job, _JOB_LONGEST))
    link = job.console or job.link
    if link is not None and link.startswith("https://"):
        name = Markup('<a href="{}" rel="noreferrer">{}</a>').format(link, name)
    if job.place is None:
        return name
    return name + Markup("<br><small><bdi>{}</bdi></small>").format(shown_name(job.place, _PLACE_LONGEST))


def _heat(held: Heat) -> FleetSection:
    if not held.rows:
        return FleetSection("heat", "Which rules fire where", ())
    rows = [[shown_name(row.job, _JOB_LONGEST), *(_heat_cell(cell) for cell in row.cells)] for row in held.rows]
    left_out = f" {count(held.left_out)} more jobs with findings are not listed." if held.left_out else ""
    table = Table(
        "Jobs with findings, the most wasteful first, and what each rule says of them",
        (Column("Job"), *(Column(rule) for rule in held.rules)),
        rows,
        note=f"Findings that are over by now are so called.{left_out}",
    )
    return FleetSection("heat", "Which rules fire where", (table,))


def _heat_cell(word: str) -> Cell:
    if word in _SHADES:
        return heat(_SHADES[word], word)
    return _QUIET.get(word, word) or NOTHING


def _rules(report: FleetReport) -> FleetSection:
    fired = [rule for rule in report.rules if rule.jobs_fired or rule.jobs_in_error]
    scale = up_from_zero(max((rule.jobs_fired for rule in fired), default=0))
    rows: list[list[Cell]] = [
        [
            rule.rule,
            count(rule.jobs_fired),
            bar(float(rule.jobs_fired), scale, said=f"{count(rule.jobs_fired)} jobs"),
            count(rule.jobs_judged),
            count(rule.times_fired),
            money(rule.lost, report.totals.currency),
            count(rule.jobs_in_error),
            NOTHING if rule.worst is None else shown_name(rule.worst, _JOB_LONGEST),
        ]
        for rule in fired
    ]
    columns = (
        Column("Rule"),
        Column("Jobs fired", "number"),
        plot_column("Jobs fired", scale),
        Column("Jobs evaluated", "number"),
        Column("Fires", "number"),
        Column("Lost", "number"),
        Column("In error", "number"),
        Column("Worst job"),
    )
    quiet = len(report.rules) - len(fired)
    note = f"{count(quiet)} more rules have fired on no job." if quiet else None
    return FleetSection("rules", "How often rules fire", [Table("Rules", columns, rows, note=note)] if rows else ())


def _weeks(report: FleetReport) -> FleetSection:
    currency = report.totals.currency
    scale = up_from_zero(max((week.lost or 0.0 for week in report.weeks), default=0.0))
    rows: list[list[Cell]] = [
        [
            week.monday,
            count(week.jobs),
            count(week.with_findings),
            _share_bar(week.share if week.jobs else None, "of the jobs"),
            _share_bar(week.wasted_share, "of the instance hours"),
            money(week.lost, currency),
            bar(week.lost, scale, said=money(week.lost, currency), tone="hot"),
        ]
        for week in reversed(report.weeks)
    ]
    columns = (
        Column("Week of"),
        Column("Jobs", "number"),
        Column("With findings", "number"),
        plot_column("Share of the jobs", PERCENT, " %"),
        plot_column("Wasted of the instance hours", PERCENT, " %"),
        Column("Lost", "number"),
        plot_column(f"Lost, {currency}", scale),
    )
    table = Table("Jobs by the week in which they began, the latest first", columns, rows)
    return FleetSection("trend", "Trend by week", [table] if rows else ())


def _share_bar(value: float | None, of: str) -> Markup:
    percent = None if value is None else 100.0 * value
    return bar(percent, PERCENT, said=f"{share(value)} {of}", tone="plain")


def _instances(report: FleetReport) -> FleetSection:
    currency = report.totals.currency
    rows: list[list[Cell]] = [
        [
            each.instance_type or "not known",
            count(each.jobs),
            count(each.with_findings),
            duration(each.instance_hours * _HOUR_S),
            _share_bar(each.wasted_share, "of the instance hours"),
            money(each.lost, currency),
            money(each.spent, currency),
        ]
        for each in report.instance_types
    ]
    columns = (
        Column("Instance type"),
        Column("Jobs", "number"),
        Column("With findings", "number"),
        Column("Instance time", "number"),
        plot_column("Wasted of it", PERCENT, " %"),
        Column("Lost", "number"),
        Column("Spent", "number"),
    )
    return FleetSection("instances", "Instance types", [Table("Instance types", columns, rows)] if rows else ())


def _stops(report: FleetReport) -> FleetSection:
    rows: list[list[Cell]] = [
        [shown_name(stop.job, _JOB_LONGEST), stop.rule, moment(stop.at), stop.action] for stop in report.stops
    ]
    columns = (Column("Job"), Column("Rule"), Column("When"), Column("What was done"))
    table = Table("Training jobs that were stopped, the latest first", columns, rows)
    return FleetSection("stops", "Stops made", [table] if rows else ())


def _unjudged(report: FleetReport) -> FleetSection:
    rows: list[list[Cell]] = [[shown_name(each.job, _JOB_LONGEST), each.status, each.why] for each in report.unjudged]
    columns = (Column("Job"), Column("Status"), Column("Why"))
    table = Table("Jobs of which no rule could say anything", columns, rows)
    return FleetSection("unjudged", "Jobs without a verdict", [table] if rows else ())
