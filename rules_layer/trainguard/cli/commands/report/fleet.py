"""``trainguard report --fleet``: from the stack's tables to one offline page over all jobs."""

import time
import webbrowser
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Heading, Line, Shown
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.services.deployment import Stores, Where, connect
from trainguard.cli.services.input_files import prices_from
from trainguard.cli.services.job_rows import read_whole_job
from trainguard.records import JobRecord, RuleRow
from trainguard.report.fleet import Fleet, build_fleet
from trainguard.report.fleet_document import FleetJob, FleetOwner, FleetReport, FleetTotals
from trainguard.report.fleet_files import encode_fleet
from trainguard.report.html.fleet import render_fleet
from trainguard.rules.units import counted

_PAGE, _DOCUMENT = ".html", ".json"
_DEFAULT = "fleet.html"
_READERS = 10
"""Jobs whose rows are read at once: as many connections as a client keeps."""

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """Whose jobs, since when (``since_s`` seconds ago), and where the page goes."""

    where: Where
    since_s: float | None = None
    out: Path | None = None
    prices: Path | None = None
    open_page: bool = False


def fleet_command(request: FleetRequest, *, as_json: bool, fail_on_fire: bool) -> int:
    """Make the fleet's page; return the exit code."""
    return print_result(lambda: _result(request), as_json=as_json, fail_on_fire=fail_on_fire)


def _result(request: FleetRequest) -> CommandResult:
    page = fleet_page(request.out)
    prepare(page.parent)
    prices = prices_from(request.prices)
    connection = connect(request.where)
    now = time.time()
    fleet = Fleet(
        stack=connection.deployment.stack,
        region=connection.deployment.region,
        since=None if request.since_s is None else now - request.since_s,
        prices=prices,
    )
    report = build_fleet(fleet, read_jobs(fleet, connection.stores), now=now)
    return fleet_result(report, page, open_page=request.open_page)


def fleet_result(report: FleetReport, page: Path, *, open_page: bool, notes: Sequence[str] = ()) -> CommandResult:
    """Write a fleet's page and document; return what the command says of them."""
    document = page.with_suffix(_DOCUMENT)
    write_files(page.parent, {document.name: encode_fleet(report), page.name: render_fleet(report).encode()})
    unopened = open_page and not webbrowser.open(page.resolve().as_uri())
    notes = [*notes, *(["No browser could be opened."] if unopened else [])]
    blocks = [*_blocks(report), Line(f"Page: {page}"), Line(f"Document: {document}")]
    return CommandResult(document=report, blocks=blocks, notes=notes, fired=report.totals.with_findings > 0)


def read_jobs(fleet: Fleet, stores: Stores) -> Iterator[tuple[JobRecord, Sequence[RuleRow]]]:
    """Yield the jobs that the fleet wants with their rows; raises PortUnavailableError, StateCodecError."""
    jobs = [job for job in stores.jobs.all() if fleet.wants(job)]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="rows") as readers:
        yield from zip(jobs, readers.map(lambda job: read_whole_job(stores, job), jobs), strict=True)


def fleet_page(out: Path | None) -> Path:
    """Return where a fleet's page goes: into a folder, or under a name that ends in .html."""
    if out is None:
        return Path(_DEFAULT)
    return out if out.suffix.lower() == _PAGE and not out.is_dir() else out / _DEFAULT


def _blocks(report: FleetReport) -> list[Block]:
    totals = report.totals
    facts: list[tuple[str, Shown]] = [
        ("jobs", f"{totals.jobs:,}, {totals.active:,} of them active"),
        ("with findings", f"{totals.with_findings:,} of {totals.judged:,} judged"),
        ("lost", _lost(totals)),
        ("stops made", f"{totals.stops:,}"),
    ]
    of = f"{report.stack} in {report.region}" if report.folder is None else report.folder
    blocks: list[Block] = [Heading(of), Facts(facts)]
    wasters = [job for job in report.jobs if job.fired][:_SHOWN]
    if wasters:
        blocks += [Heading("What wastes most"), _wasters(wasters, totals.currency)]
    fired = [rule for rule in report.rules if rule.jobs_fired]
    if fired:
        columns = (Column("rule"), Column("jobs", right=True), Column("fires", right=True), Column("lost", right=True))
        rows: list[list[Shown]] = [
            [rule.rule, f"{rule.jobs_fired:,}", f"{rule.times_fired:,}", _money(rule.lost, totals.currency)]
            for rule in fired
        ]
        blocks += [Heading("What fires"), Grid(columns, rows)]
    for kind in dict.fromkeys(each.kind for each in report.owners):
        owners = [each for each in report.owners if each.kind == kind][:_SHOWN]
        blocks += [Heading(f"By {kind}"), _owners(owners, kind, totals.currency)]
    return blocks


def _owners(owners: Sequence[FleetOwner], kind: str, currency: str) -> Grid:
    columns = (Column(kind), *(Column(name, right=True) for name in ("lost", "spent", "jobs", "with findings")))
    rows: list[list[Shown]] = [
        [
            "not named" if each.name is None else each.name,
            _money(each.lost, currency),
            _money(each.spent, currency),
            f"{each.jobs:,}",
            f"{each.with_findings:,}",
        ]
        for each in owners
    ]
    return Grid(columns, rows)


def _wasters(jobs: Sequence[FleetJob], currency: str) -> Grid:
    columns = (Column("job"), Column("severity"), Column("lost", right=True), Column("of it", right=True))
    rows: list[list[Shown]] = [
        [
            job.job,
            job.severity or "over",
            _money(job.lost, currency),
            _share(job.wasted_share),
            ", ".join(job.fired),
        ]
        for job in jobs
    ]
    return Grid((*columns, Column("rules", folds=True)), rows)


def _lost(totals: FleetTotals) -> Cell:
    share = "" if totals.wasted_share is None else f", {_share(totals.wasted_share)} of the instance hours"
    if totals.lost is None or totals.spent is None:
        return Cell(f"no price is known of any job{share}")
    unpriced = f"; no price is known of {counted(totals.unpriced, 'job')}" if totals.unpriced else ""
    return Cell(f"at least {totals.currency} {totals.lost:,.2f} of {totals.spent:,.2f}{share}{unpriced}")


def _money(amount: float | None, currency: str) -> str:
    return "" if amount is None else f"{currency} {amount:,.2f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{100.0 * share:.0f} %"
