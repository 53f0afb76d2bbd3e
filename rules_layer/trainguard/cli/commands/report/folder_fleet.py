"""``trainguard report FOLDER --fleet``: from the jobs below a folder to one offline page over all of them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.commands.report.fleet import fleet_page, fleet_result
from trainguard.cli.commands.report.run import ReportRequest
from trainguard.cli.output.files import prepare
from trainguard.cli.output.progress import Progress, stderr_progress
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.services.input_files import prices_from, settings_from
from trainguard.errors import ProfileSourceError
from trainguard.kernels.listing.choice import Wanted
from trainguard.local.fleet import FleetSettings, FoundJob, JudgedJob, find_jobs, judged_jobs
from trainguard.local.kernel_list import list_kernels
from trainguard.local.pool import SMALLEST_JOB, WorkerPool, workers_for
from trainguard.report.fleet import Fleet, JobPlace, build_fleet, with_places
from trainguard.report.fleet_kernels import with_kernels


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """A folder, and what was asked for as of a single job; jobs since when (``since_s`` seconds ago).

    ``own_rules`` says that rules of a package were loaded into this process.
    """

    folder: str
    of_each: ReportRequest
    since_s: float | None = None
    own_rules: bool = False


def folder_fleet_command(request: FolderRequest, *, as_json: bool, fail_on_fire: bool) -> int:
    """Make the page of a folder; return the exit code."""
    return print_result(lambda: _result(request, shown=not as_json), as_json=as_json, fail_on_fire=fail_on_fire)


def _result(request: FolderRequest, *, shown: bool) -> CommandResult:
    if not Path(request.folder).exists():
        raise ProfileSourceError(request.folder, "is not here, expected a folder with jobs, or a store of runs")
    asked = request.of_each
    page = fleet_page(asked.out)
    prepare(page.parent)
    prices = prices_from(asked.prices)
    settings = FleetSettings(
        rule_settings=settings_from(asked.params),
        instance_type=asked.instance_type,
        framework_expected=asked.framework_expected,
        prices=prices,
    )
    now = time.time()
    name = Path(request.folder).resolve().name
    since = None if request.since_s is None else now - request.since_s
    fleet = Fleet(stack=name, region="", since=since, prices=prices)
    places: dict[str, JobPlace] = {}
    judged = _judged(request, settings, stderr_progress(shown=shown), places)
    report = build_fleet(fleet, ((each.job, each.rows) for each in judged), now=now)
    report = with_places(report, request.folder, places)
    if Path(request.folder).is_dir():
        report = with_kernels(report, list_kernels(request.folder, Wanted(since=since)))
    return fleet_result(report, page, open_page=asked.open_page)


def _judged(
    request: FolderRequest, settings: FleetSettings, progress: Progress, places: dict[str, JobPlace]
) -> Iterator[JudgedJob]:
    found = find_jobs(request.folder)
    with (
        WorkerPool(_workers(found, request)) as pool,
        progress.of_objects(len(found), sum(each.size for each in found)),
    ):
        for each, judged in zip(found, judged_jobs(request.folder, found, settings, pool), strict=True):
            places[judged.job.job] = JobPlace(judged.place, judged.link, judged.unread)
            progress.applied(each.size, None)
            yield judged


def _workers(found: list[FoundJob], request: FolderRequest) -> int:
    """Return how many processes help: a job is worth as much as the smallest that is parsed by several.

    A process that is no fork knows no rules of a package, so none helps there.
    """
    return 0 if request.own_rules else workers_for((len(found) - 1) * SMALLEST_JOB)
