"""What an agent asks about, read with the caller's rights: a run, a job of the stack, or files of one."""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainguard.cli.options import Where
from trainguard.cli.output.progress import stderr_progress
from trainguard.cli.services.deployment import Target, clients_for, connect_for, job_in_stack, job_place, target_of
from trainguard.core.errors import KernelTraceError, NoProfileError, ProfileSourceError, RemedyError, RequestError
from trainguard.core.records import JOB_NODE
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.session import items_of
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.document import KernelProfiles
from trainguard.local.analysis import digest, report_of
from trainguard.local.fleet import evaluated
from trainguard.local.hangs import judge_hang
from trainguard.local.judged_traces import profiles_of
from trainguard.local.places import open_place
from trainguard.local.profile import read_profile
from trainguard.local.runs import find_runs
from trainguard.local.settings import GivenSettings
from trainguard.local.stragglers import judge_stragglers
from trainguard.local.traces import open_traces
from trainguard.report.agents.stragglers import of_stragglers
from trainguard.report.agents.verdict import AgentVerdict, of_hang, of_kernels, of_report
from trainguard.report.document import Report
from trainguard.report.job.build import build_report
from trainguard.report.job_verdict import job_verdict, verdict_of
from trainguard.report.verdict_document import JobVerdict
from trainguard.stragglers.verdict import StragglerVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainguard.aws.clients import Clients
    from trainguard.report.timeline.digest import NodeDigest


@dataclass(frozen=True, slots=True)
class Judged:
    """A run or a job: its report, and what goes on now."""

    report: Report
    word: JobVerdict


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read at a source."""

    source: str
    what: Judged | KernelProfiles | HangVerdict | StragglerVerdict

    @property
    def verdict(self) -> AgentVerdict:
        match self.what:
            case Judged(report, word):
                return of_report(report, word)
            case KernelProfiles():
                return of_kernels(self.what)
            case HangVerdict():
                return of_hang(self.source, self.what)
            case _:
                return of_stragglers(self.source, self.what)


def read(source: str, where: Where, settings: GivenSettings, *, timelines: bool) -> Reading:
    """Read and judge a source; without a run in it, its kernel traces, hang dumps or tables of operations.

    Raises as `target_of`, `find_runs` and `connect` do; NoProfileError where none of it is there.
    """
    target = target_of(source)
    if target.is_job:
        return Reading(source, _of_job(target, where, settings, timelines=timelines))
    clients = clients_for(target, where)
    try:
        profile = find_runs(target.text, clients).open_one(target.text)
    except NoProfileError as none:
        return Reading(source, _of_files(target.text, clients, none))
    judged, done = evaluated(settings, profile, timelines=timelines)
    word = verdict_of(judged.job, judged.rows, now=time.time(), prices=settings.prices)
    return Reading(source, Judged(report_of(done).report, word))


def _of_files(
    place: str, clients: "Clients | None", none: NoProfileError
) -> KernelProfiles | HangVerdict | StragglerVerdict:
    try:
        return profiles_of(open_traces(place, clients))
    except KernelTraceError:
        pass
    try:
        return judge_hang(place, clients)
    except RemedyError:
        pass
    try:
        return judge_stragglers(place, None, clients)
    except RemedyError:
        raise none from None


def _of_job(target: Target, where: Where, settings: GivenSettings, *, timelines: bool) -> Judged:
    """Judge a job of the stack from its stored state; the profile is read for time lines alone."""
    connection, now = connect_for(target, where), time.time()
    stores = connection.stores
    stored = job_in_stack(target.text, stores.jobs)
    records = items_of(stored, stores.nodes)
    if all(record.key.node == JOB_NODE for record in records):
        remedy = f"Ask about its profile: {job_place(stored)}." if stored.bucket else "Ask about a copy of its profile."
        raise RequestError(f"the state of job {target.text} has expired, or was not written yet", remedy)
    job = replace(stored, instance_type=settings.instance_type or stored.instance_type)
    digests: Sequence[NodeDigest] = ()
    missing = []
    if timelines:
        try:
            profile = read_profile(open_place(job_place(job), connection.clients))
            digests = digest(profile, job, stderr_progress(shown=False))
        except ProfileSourceError as fault:
            missing.append(f"The report is without time lines: {fault}.")
    plan = FAMILIES.plan(job, prices=settings.prices)
    built = build_report(job, records, now=now, plan=plan, digests=digests, missing=missing)
    return Judged(built.report, job_verdict(stores.jobs, stores.rows, target.text, now=now, prices=settings.prices))
