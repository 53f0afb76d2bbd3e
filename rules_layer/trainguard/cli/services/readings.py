"""What an agent asks about, read with the caller's rights: a run, a job of the stack, or files of one."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainguard.cli.options import Where
from trainguard.cli.output.progress import stderr_progress
from trainguard.cli.services.deployment import Target, clients_for, connect_for, job_place, target_of
from trainguard.cli.services.job_reports import stored_report
from trainguard.core.errors import KernelTraceError, NoProfileError, RemedyError, RequestError
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.document import KernelProfiles
from trainguard.local.analysis import report_of
from trainguard.local.fleet import evaluated
from trainguard.local.hangs import judge_hang
from trainguard.local.judged_traces import profiles_of
from trainguard.local.runs import find_runs
from trainguard.local.settings import GivenSettings
from trainguard.local.stragglers import judge_stragglers
from trainguard.local.traces import open_traces
from trainguard.report.agents.stragglers import of_stragglers
from trainguard.report.agents.verdict import AgentVerdict, of_hang, of_kernels, of_report
from trainguard.report.document import Report
from trainguard.report.job_verdict import job_verdict, verdict_of
from trainguard.stragglers.verdict import StragglerVerdict

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What was read at a source, and its verdict."""

    source: str
    what: Report | KernelProfiles | HangVerdict | StragglerVerdict
    verdict: AgentVerdict


def read(source: str, where: Where, settings: GivenSettings, *, timelines: bool) -> SourceReading:
    """Read and judge a source; without a run in it, its kernel traces, hang dumps or tables of operations.

    Raises as `target_of`, `find_runs` and `connect` do; NoProfileError where none of it is there.
    """
    target = target_of(source)
    if target.is_job:
        return _of_job(target, where, settings, timelines=timelines)
    clients = clients_for(target, where)
    try:
        profile = find_runs(target.text, clients).open_one(target.text)
    except NoProfileError as none:
        return _of_files(source, target.text, clients, none)
    judged, done = evaluated(settings, profile, timelines=timelines)
    word = verdict_of(judged.job, judged.rows, now=time.time(), prices=settings.prices)
    report = report_of(done).report
    return SourceReading(source, report, of_report(report, word))


def _of_files(source: str, place: str, clients: "Clients | None", none: NoProfileError) -> SourceReading:
    with suppress(KernelTraceError):
        profiles = profiles_of(open_traces(place, clients))
        return SourceReading(source, profiles, of_kernels(profiles))
    with suppress(RemedyError):
        hang = judge_hang(place, clients)
        return SourceReading(source, hang, of_hang(source, hang))
    try:
        stragglers = judge_stragglers(place, None, clients)
    except RemedyError:
        raise none from None
    return SourceReading(source, stragglers, of_stragglers(source, stragglers))


def _of_job(target: Target, where: Where, settings: GivenSettings, *, timelines: bool) -> SourceReading:
    """Judge a job of the stack from its stored state; the profile is read for time lines alone."""
    deployment, now = connect_for(target, where), time.time()
    progress = stderr_progress(shown=False) if timelines else None
    job, built, _ = stored_report(target.text, deployment, settings, progress)
    if built is None:
        remedy = f"Ask about its profile: {job_place(job)}." if job.bucket else "Ask about a copy of its profile."
        raise RequestError(f"the state of job {target.text} has expired, or was not written yet", remedy)
    jobs, rows = deployment.stores.jobs, deployment.stores.rows
    word = job_verdict(jobs, rows, target.text, now=now, prices=settings.prices)
    return SourceReading(target.text, built.report, of_report(built.report, word))
