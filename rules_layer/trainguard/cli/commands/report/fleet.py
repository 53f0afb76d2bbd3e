"""``trainguard report`` of several jobs: of the stack, or of the runs at a place, to one offline page over all."""

import time
import webbrowser
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from trainguard.cli.options import Where
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.output.rendering import Block, Cell, Line, Shown, TerminalColumn, TerminalFacts, heading, table
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.brakes import known_brakes
from trainguard.cli.services.deployment import connect
from trainguard.cli.services.job_list import read_whole_job
from trainguard.cli.services.names import unpriced
from trainguard.core.layout import REPORT_PAGE, S3
from trainguard.core.units import counted
from trainguard.kernels.listing import ListingRequest
from trainguard.local.fleet import WriteReport, judged_jobs
from trainguard.local.pool import SMALLEST_JOB, WorkerPool, workers_for
from trainguard.local.runs import FoundRuns
from trainguard.local.settings import GivenSettings
from trainguard.local.sources import safe_name
from trainguard.local.traces import list_kernels
from trainguard.pricing.table import PriceTable
from trainguard.report.fleet.document import FleetReport, FleetTotals, encode_fleet
from trainguard.report.fleet.facts import with_kernels
from trainguard.report.fleet.fleet import Fleet, JudgedJob, build_fleet, read_fleet, with_brakes, with_places
from trainguard.report.html.fleet import render_fleet
from trainguard.report.job.build import BuiltReport, report_files

_PAGE, _DOCUMENT = ".html", ".json"
_DEFAULT = "fleet.html"
_SHOWN = 10


def stack_fleet(
    where: Where, out: Path | None, *, since_s: float | None, prices: PriceTable | None, open_page: bool
) -> CommandResult:
    """Make the page over the stack's jobs: all, or those since ``since_s`` seconds ago."""
    page = _fleet_page(out)
    prepare(page.parent)
    deployment = connect(where)
    stores, now = deployment.stores, time.time()
    since = None if since_s is None else now - since_s
    fleet = Fleet(stack=deployment.stack, region=deployment.region, since=since, prices=prices)
    report = build_fleet(fleet, read_fleet(fleet, stores.jobs, partial(read_whole_job, stores)), now=now)
    report = with_brakes(report, known_brakes(deployment), now=now)
    return _fleet_result(report, page, open_page=open_page)


def _fleet_result(
    report: FleetReport, page: Path, *, open_page: bool, notes: Sequence[str] = (), evaluated: bool = True
) -> CommandResult:
    document = page.with_suffix(_DOCUMENT)
    write_files(page.parent, {document.name: encode_fleet(report), page.name: render_fleet(report).encode()})
    unopened = open_page and not webbrowser.open(page.resolve().as_uri())
    notes = [*notes, *(["No browser could be opened."] if unopened else [])]
    blocks = [*_blocks(report), Line(f"Page: {page}"), Line(f"Document: {document}")]
    fired = report.totals.with_findings > 0
    return CommandResult(document=report, blocks=blocks, notes=notes, fired=fired, evaluated=evaluated)


def _fleet_page(out: Path | None) -> Path:
    """Return the path of a fleet's page: in a folder, or under a name that ends in .html."""
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
    if report.brakes:
        facts.append(("brakes", Cell(f"{len(report.brakes)} in force: `trainguard brake list`", "bold yellow")))
    of = f"{report.stack} in {report.region}" if report.folder is None else report.folder
    blocks: list[Block] = [heading(of), TerminalFacts(facts)]
    wasters = [job for job in report.jobs if job.fired][:_SHOWN]
    if wasters:
        of_jobs = {
            TerminalColumn("job"): lambda job: job.job,
            TerminalColumn("severity"): lambda job: job.severity or "over",
            TerminalColumn("lost", right=True): lambda job: _money(job.lost, totals.currency),
            TerminalColumn("of it", right=True): lambda job: _share(job.wasted_share),
            TerminalColumn("rules", folds=True): lambda job: ", ".join(job.fired),
        }
        blocks += [heading("What wastes most"), table(wasters, of_jobs)]
    fired = [rule for rule in report.rules if rule.jobs_fired]
    if fired:
        of_rules = {
            TerminalColumn("rule"): lambda rule: rule.rule,
            TerminalColumn("jobs", right=True): lambda rule: f"{rule.jobs_fired:,}",
            TerminalColumn("fires", right=True): lambda rule: f"{rule.times_fired:,}",
            TerminalColumn("lost", right=True): lambda rule: _money(rule.lost, totals.currency),
        }
        blocks += [heading("What fires"), table(fired, of_rules)]
    for kind in dict.fromkeys(each.kind for each in report.owners):
        of_owners = {
            TerminalColumn(kind): lambda each: "not named" if each.name is None else each.name,
            TerminalColumn("lost", right=True): lambda each: _money(each.lost, totals.currency),
            TerminalColumn("spent", right=True): lambda each: _money(each.spent, totals.currency),
            TerminalColumn("jobs", right=True): lambda each: f"{each.jobs:,}",
            TerminalColumn("with findings", right=True): lambda each: f"{each.with_findings:,}",
        }
        owners = [each for each in report.owners if each.kind == kind][:_SHOWN]
        blocks += [heading(f"By {kind}"), table(owners, of_owners)]
    return blocks


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


def fleet_of_runs(
    place: str,
    found: FoundRuns,
    settings: GivenSettings,
    out: Path | None,
    progress: ProgressBar,
    *,
    since_s: float | None,
    alone: bool,
    open_page: bool,
) -> CommandResult:
    """Make the page over several runs, since ``since_s`` seconds ago, and the report of each beside it.

    ``alone`` starts no process. No report is written beside a page whose own name was given.
    """
    name = safe_name(Path(place).resolve().name if Path(place).exists() else place.rstrip("/").rpartition("/")[2])
    page = Path(f"{name}-report", _DEFAULT) if out is None else _fleet_page(out)
    prepare(page.parent)
    now = time.time()
    since = None if since_s is None else now - since_s
    fleet = Fleet(stack=name, region="", since=since, prices=settings.prices)
    write = partial(_write_report, page.parent) if page.name == _DEFAULT else None
    judged = list(_judged(place, found, settings, progress, write, alone=alone))
    report = build_fleet(fleet, ((each.job, each.rows) for each in judged), now=now)
    report = with_places(report, place, {each.job.job: each for each in judged})
    if Path(place).is_dir():
        report = with_kernels(report, list_kernels(place, ListingRequest(since=since)))
    notes = [*found.notes, *unpriced(settings.instance_type, settings.prices)]
    evaluated = report.totals.judged == report.totals.jobs
    return _fleet_result(report, page, open_page=open_page, notes=notes, evaluated=evaluated)


def _write_report(out: Path, folder: str, built: BuiltReport) -> str:
    write_files(out / folder, report_files(built))
    return f"{folder}/{REPORT_PAGE}"


def _judged(
    place: str,
    found: FoundRuns,
    settings: GivenSettings,
    progress: ProgressBar,
    write: WriteReport | None,
    *,
    alone: bool,
) -> Iterator[JudgedJob]:
    runs = found.runs
    # Each job counts as the smallest that is worth several processes. Clients of AWS reach no other process.
    workers = 0 if alone or place.startswith(S3) else workers_for((len(runs) - 1) * SMALLEST_JOB)
    with WorkerPool(workers) as pool, progress.of_objects(len(runs), sum(each.size for each in runs)):
        for run, judged in zip(runs, judged_jobs(place, runs, settings, pool, write), strict=True):
            progress.applied(run.size, None)
            yield judged
