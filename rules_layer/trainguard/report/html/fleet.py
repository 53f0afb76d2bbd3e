"""``fleet.html`` of a deployment or of a folder."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from markupsafe import Markup

from trainguard.core.finding import Severity
from trainguard.core.records import Status
from trainguard.render.blocks import Block, Cell, Folded, Note, Panel, Table, heat, numeric, plot_column, table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, count, duration, moment, money, share
from trainguard.render.plots.scale import PERCENT, up_from_zero
from trainguard.render.plots.strips import bar
from trainguard.report.fleet.document import FleetJob, FleetKernels, FleetOwner, FleetReport, FleetTotals, HeatRow
from trainguard.report.fleet.fleet import OVER
from trainguard.report.html.page import KeyFigure, read_asset, render_page

IN_FULL = 25
OWNERS_IN_FULL = 15
OWNER_WEEKS = 4
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
_TO_READ = {
    "jobs": "A job's name leads to its report in the console of S3; trainguard open and the name open one without the "
    "console.",
    "kernels": "A job's name leads to the page of its newest kernel profile in the console of S3. trainguard kernels "
    "--list searches a bucket, a prefix or a folder.",
}
_TO_READ_OF_A_FOLDER = {
    "jobs": "trainguard report and a job's place make its report. A name leads to the tool that shows it.",
    "kernels": "trainguard kernels --list chooses by name, time, status, framework and finding.",
}
T = TypeVar("T")


def render_fleet(report: FleetReport) -> str:
    """Return the page of a fleet as one file; the report's texts may hold anything, they are shown, not run."""
    sections = [
        Panel("jobs", "What wastes most", _wasters(report)),
        Panel("heat", "Which rules fire where", _heat(report)),
        Panel("rules", "How often rules fire", _rules(report)),
        Panel("trend", "Trend by week", _weeks(report)),
        Panel("owners", "Users, teams and projects", _owners(report)),
        Panel("instances", "Instance types", _instances(report)),
        Panel("kernels", "Kernel profiles", _kernels(report)),
        Panel("stops", "Stops made", _stops(report)),
        Panel("unjudged", "Jobs without a verdict", _unjudged(report)),
    ]
    return render_page(
        "fleet.html.j2",
        styles=_STYLES,
        script=read_asset("fleet/filter.js") if report.kernel_profiles else "",
        report=report,
        sections=[section for section in sections if section.blocks],
        figures=_figures(report.totals),
        verdict=_verdict(report.totals),
    )


def _verdict(totals: FleetTotals) -> str:
    if not totals.judged:
        return f"No verdict yet: none of {count(totals.jobs)} jobs was evaluated."
    alt = f"{count(totals.with_findings)} of {count(totals.judged)} evaluated jobs have findings."
    if totals.wasted_share is None:
        return alt
    lost = "" if totals.lost is None else f", {_money(totals)(totals.lost)} of {_money(totals)(totals.spent)}"
    return f"{alt} They wasted at least {share(totals.wasted_share)} of the instance hours{lost}."


def _figures(totals: FleetTotals) -> list[KeyFigure]:
    judged = f"{count(totals.active)} active, {count(totals.jobs - totals.judged)} without a verdict"
    paid = f"of {_money(totals)(totals.spent)} spent" if totals.lost is not None else "no price is known"
    return [
        KeyFigure("Jobs", count(totals.jobs), judged),
        KeyFigure("With findings", count(totals.with_findings), f"{count(totals.fires)} fires"),
        KeyFigure("Lost", _money(totals)(totals.lost), paid),
        KeyFigure("Wasted", share(totals.wasted_share), f"of {duration(totals.instance_hours * _HOUR_S)} of instances"),
        KeyFigure("Stops made", count(totals.stops), "training jobs stopped by a rule"),
    ]


def _wasters(report: FleetReport) -> list[Block]:
    def shown(caption: str, jobs: Sequence[FleetJob]) -> Table:
        return table(
            caption,
            jobs,
            ("Job", _linked),
            (numeric("Lost"), lambda job: _money(report.totals)(job.lost)),
            (plot_column("Wasted of the paid time", PERCENT, " %"), _wasted),
            ("Rules that fired", lambda job: ", ".join(job.fired)),
            ("Instances", _instances_of),
            ("Began", lambda job: moment(job.started_at)[:_DATE]),
        )

    jobs = [job for job in report.jobs if job.fired]
    captions = ("Jobs, the most wasteful first", "More jobs with findings", "more jobs")
    blocks = _first_and_folded(jobs, IN_FULL, captions, shown, _how_to_read(report, "jobs"))
    if report.rest.with_findings:
        lost = f" They lost {_money(report.totals)(report.rest.lost)}." if report.rest.lost else ""
        blocks.append(Note(f"{count(report.rest.with_findings)} more jobs with findings are not listed.{lost}"))
    return blocks


def _first_and_folded(
    things: Sequence[T],
    most: int,
    captions: tuple[str, str, str],
    shown: Callable[[str, Sequence[T]], Table],
    notes: Sequence[Note] = (),
) -> list[Block]:
    """Return a table of the first things, notes, and the others folded; ``captions`` are of both, and of the fold."""
    first, rest = things[:most], things[most:]
    blocks: list[Block] = [shown(captions[0], first), *notes] if first else []
    return [*blocks, Folded(f"{count(len(rest))} {captions[2]}", (shown(captions[1], rest),))] if rest else blocks


def _wasted(job: FleetJob) -> Cell:
    of = "of the paid time" if job.wasted_share is not None else "not known"
    return _share_bar(job.wasted_share, of, tone="hot")


def _instances_of(job: FleetJob) -> str:
    nodes = "" if job.instance_count is None else f"{count(job.instance_count)} x "
    return f"{nodes}{job.instance_type or NOTHING}"


def _linked(job: FleetJob) -> Cell:
    name = _link(Markup("<bdi>{}</bdi>").format(shown_name(job.job, _JOB_LONGEST)), job.console or job.link)
    if job.place is None:
        return name
    return name + Markup("<br><small><bdi>{}</bdi></small>").format(shown_name(job.place, _PLACE_LONGEST))


def _link(name: Cell, place: str | None) -> Cell:
    if place is None or not place.startswith("https://"):
        return name
    return Markup('<a href="{}" rel="noreferrer">{}</a>').format(place, name)


def _heat(report: FleetReport) -> list[Block]:
    held = report.heat

    def cell(place: int) -> Callable[[HeatRow], Cell]:
        return lambda row: _heat_cell(row.cells[place])

    left_out = f" {count(held.left_out)} more jobs with findings are not listed." if held.left_out else ""
    shown = table(
        "Jobs with findings, the most wasteful first, and what each rule says about them",
        held.rows,
        ("Job", lambda row: shown_name(row.job, _JOB_LONGEST)),
        *((rule, cell(place)) for place, rule in enumerate(held.rules)),
        note=f"Findings that are over by now are so called.{left_out}",
    )
    return [shown] if held.rows else []


def _heat_cell(word: str) -> Cell:
    return heat(_SHADES[word], word) if word in _SHADES else _QUIET.get(word, word) or NOTHING


def _rules(report: FleetReport) -> list[Block]:
    fired = [rule for rule in report.rules if rule.jobs_fired or rule.jobs_in_error]
    scale = up_from_zero(max((rule.jobs_fired for rule in fired), default=0))
    quiet = len(report.rules) - len(fired)
    shown = table(
        "Rules",
        fired,
        ("Rule", lambda rule: rule.rule),
        (numeric("Jobs fired"), lambda rule: count(rule.jobs_fired)),
        (
            plot_column("Jobs fired", scale),
            lambda rule: bar(float(rule.jobs_fired), scale, alt=f"{count(rule.jobs_fired)} jobs"),
        ),
        (numeric("Jobs evaluated"), lambda rule: count(rule.jobs_judged)),
        (numeric("Fires"), lambda rule: count(rule.times_fired)),
        (numeric("Lost"), lambda rule: _money(report.totals)(rule.lost)),
        (numeric("In error"), lambda rule: count(rule.jobs_in_error)),
        ("Worst job", lambda rule: NOTHING if rule.worst is None else shown_name(rule.worst, _JOB_LONGEST)),
        note=f"{count(quiet)} more rules have fired on no job." if quiet else None,
    )
    return [shown] if fired else []


def _weeks(report: FleetReport) -> list[Block]:
    paid = _money(report.totals)
    scale = up_from_zero(max((week.lost or 0.0 for week in report.weeks), default=0.0))
    shown = table(
        "Jobs by the week in which they began, the latest first",
        report.weeks[::-1],
        ("Week of", lambda week: week.monday),
        (numeric("Jobs"), lambda week: count(week.jobs)),
        (numeric("With findings"), lambda week: count(week.with_findings)),
        (
            plot_column("Share of the jobs", PERCENT, " %"),
            lambda week: _share_bar(week.share if week.jobs else None, "of the jobs"),
        ),
        (plot_column("Wasted of the instance hours", PERCENT, " %"), lambda week: _share_bar(week.wasted_share)),
        (numeric("Lost"), lambda week: paid(week.lost)),
        (
            plot_column(f"Lost, {report.totals.currency}", scale),
            lambda week: bar(week.lost, scale, alt=paid(week.lost), tone="hot"),
        ),
    )
    return [shown] if report.weeks else []


def _money(totals: FleetTotals) -> Callable[[float | None], str]:
    return lambda amount: money(amount, totals.currency)


def _share_bar(value: float | None, of: str = "of the instance hours", tone: str = "plain") -> Markup:
    percent = None if value is None else 100.0 * value
    return bar(percent, PERCENT, alt=f"{share(value)} {of}", tone=tone)


def _owners(report: FleetReport) -> list[Block]:
    blocks: list[Block] = []
    for kind in dict.fromkeys(each.kind for each in report.owners):
        owners = [each for each in report.owners if each.kind == kind]
        captions = (f"By {kind}, those that lost most first", f"By {kind}, the others", "more")
        blocks += _first_and_folded(owners, OWNERS_IN_FULL, captions, _table_of_owners(kind, report))
    return blocks


def _table_of_owners(kind: str, report: FleetReport) -> Callable[[str, Sequence[FleetOwner]], Table]:
    paid = _money(report.totals)
    mondays = [week.monday for week in report.weeks[-OWNER_WEEKS:]]

    def lost(monday: str) -> Callable[[FleetOwner], Cell]:
        return lambda owner: next((paid(week.lost) for week in owner.weeks if week.monday == monday), NOTHING)

    def shown(caption: str, owners: Sequence[FleetOwner]) -> Table:
        return table(
            caption,
            owners,
            (kind.capitalize(), _owner),
            (numeric("Lost"), lambda owner: paid(owner.lost)),
            (numeric("Spent"), lambda owner: paid(owner.spent)),
            (plot_column("Wasted of the instance hours", PERCENT, " %"), lambda owner: _share_bar(owner.wasted_share)),
            (numeric("Jobs"), lambda owner: count(owner.jobs)),
            (numeric("With findings"), lambda owner: count(owner.with_findings)),
            (numeric("Instance time"), lambda owner: duration(owner.instance_hours * _HOUR_S)),
            *((numeric(f"Lost, week of {monday}"), lost(monday)) for monday in reversed(mondays)),
        )

    return shown


def _owner(owner: FleetOwner) -> str:
    return f"no {owner.kind} named" if owner.name is None else shown_name(owner.name, _JOB_LONGEST)


def _instances(report: FleetReport) -> list[Block]:
    paid = _money(report.totals)
    shown = table(
        "Instance types",
        report.instance_types,
        ("Instance type", lambda each: each.instance_type or "not known"),
        (numeric("Jobs"), lambda each: count(each.jobs)),
        (numeric("With findings"), lambda each: count(each.with_findings)),
        (numeric("Instance time"), lambda each: duration(each.instance_hours * _HOUR_S)),
        (plot_column("Wasted of it", PERCENT, " %"), lambda each: _share_bar(each.wasted_share)),
        (numeric("Lost"), lambda each: paid(each.lost)),
        (numeric("Spent"), lambda each: paid(each.spent)),
    )
    return [shown] if report.instance_types else []


def _kernels(report: FleetReport) -> list[Block]:
    of_folder = report.folder is not None

    def name(profile: FleetKernels) -> Cell:
        written = profile.job if profile.place in (None, ".", profile.job) else f"{profile.place}: {profile.job}"
        return _link(shown_name(written, _PLACE_LONGEST), None if of_folder else profile.page)

    def shown(caption: str, profiles: Sequence[FleetKernels]) -> Table:
        page = ("Page", lambda each: shown_name(each.page or NOTHING, _PLACE_LONGEST))
        return table(
            caption,
            profiles,
            ("Profile" if of_folder else "Job", name),
            (
                "Recorded" if of_folder else "Judged until",
                lambda each: NOTHING if each.recorded_at is None else moment(each.recorded_at),
            ),
            (
                "Status",
                lambda each: shown_name(f"{each.status}: {each.why}" if each.why else each.status, 2 * _PLACE_LONGEST),
            ),
            ("Framework", lambda each: shown_name(each.framework or NOTHING, _PLACE_LONGEST)),
            (numeric("Traces"), lambda each: NOTHING if each.traces is None else count(each.traces)),
            ("Severity", lambda each: each.severity or NOTHING),
            ("Findings", lambda each: ", ".join(shown_name(finding) for finding in each.findings) or NOTHING),
            (numeric("Most to win"), lambda each: share(each.gain_share)),
            *([page] if of_folder else []),
        )

    captions = ("Kernel profiles, the newest first", "More kernel profiles", "more kernel profiles")
    blocks = _first_and_folded(report.kernel_profiles, IN_FULL, captions, shown)
    return [*blocks, *_how_to_read(report, "kernels")] if blocks else []


def _how_to_read(report: FleetReport, what: str) -> list[Note]:
    return [Note((_TO_READ if report.folder is None else _TO_READ_OF_A_FOLDER)[what])]


def _stops(report: FleetReport) -> list[Block]:
    shown = table(
        "Training jobs that were stopped, the latest first",
        report.stops,
        ("Job", lambda stop: shown_name(stop.job, _JOB_LONGEST)),
        ("Rule", lambda stop: stop.rule),
        ("When", lambda stop: moment(stop.at)),
        ("What was done", lambda stop: stop.action),
    )
    return [shown] if report.stops else []


def _unjudged(report: FleetReport) -> list[Block]:
    shown = table(
        "Jobs of which no rule could say anything",
        report.unjudged,
        ("Job", lambda each: shown_name(each.job, _JOB_LONGEST)),
        ("Status", lambda each: each.status),
        ("Why", lambda each: each.why),
    )
    return [shown] if report.unjudged else []
