"""A job's report made on this machine: of the rules' stored state, or of its profile judged again."""

import json
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainguard.aws.aws_errors import translated
from trainguard.cli.options import Where
from trainguard.cli.output.files import output_path
from trainguard.cli.output.progress import Progress
from trainguard.cli.output.rendering import Heading, Line, stderr_console
from trainguard.cli.output.result import CommandResult
from trainguard.cli.output.rows import is_evaluated
from trainguard.cli.services.deployment import (
    Connection,
    Target,
    clients_for,
    connect,
    connect_for,
    job_in_stack,
    job_place,
)
from trainguard.cli.services.names import unpriced
from trainguard.core.errors import ProfileSourceError, ReportRunFailedError, RequestError
from trainguard.core.layout import open_command, report_links
from trainguard.core.records import JOB_NODE, JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.engine.streams.session import items_of
from trainguard.local.analysis import digest, evaluated_profile, report_of
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.local.runs import FoundRuns, find_runs, open_job
from trainguard.local.settings import GivenSettings, described_job
from trainguard.pricing.table import PriceTable
from trainguard.report.document import Report
from trainguard.report.html.comparison import change_words
from trainguard.report.job.build import BuiltReport, build_report

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from trainguard.report.timeline.digest import NodeDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A report, from the rules' stored state or the profile judged again; ``folder`` names the report's folder."""

    job: str
    built: BuiltReport
    source: str
    made_from: Literal["state", "profile"]
    notes: Sequence[str] = field(default=())
    folder: str | None = None


def drawn_report(
    target: Target,
    found: FoundRuns | None,
    where: Where,
    settings: GivenSettings,
    out: Path | None,
    progress: Progress,
    *,
    compare: Target | None = None,
    open_page: bool,
) -> CommandResult:
    """Make a job's report here, beside that of ``compare``; ``found`` is what was found at a place.

    Raises ProfileSourceError, NoProfileError, RequestError.
    """
    place = None if out is None else output_path(out, "")
    if place is not None:
        place.prepare()
    drawn = _drawn(target, found, where, settings, progress)
    if compare is not None:
        other = _drawn(compare, None, where, settings, progress)
        drawn = replace(drawn, built=drawn.built.compared_with(other.built.report), notes=[*drawn.notes, *other.notes])
    if place is None:
        place = output_path(None, drawn.folder or drawn.job)
        place.prepare()
    files = place.write(drawn.built)
    notes = [*drawn.notes, *unpriced(settings.instance_type, settings.prices)]
    if open_page and not webbrowser.open(place.shown.resolve().as_uri()):
        notes.append("No browser could be opened.")
    report = drawn.built.report
    verdict = report.verdict
    document = {
        "job": drawn.job,
        "source": drawn.source,
        "made_from": drawn.made_from,
        "scope": report.scope,
        "final": report.final,
        "healthy": report.healthy,
        "evaluated": is_evaluated(report),
        "verdict": verdict,
        "fired": report.fired,
        "comparison": report.comparison,
        "page": str(place.shown),
        "files": place.names(files),
        "notes": notes,
    }
    lines = (verdict.health, verdict.change, verdict.cost, *_compared(report), f"Report: {place.shown}")
    return CommandResult(
        document=document,
        blocks=[Heading(drawn.job), *(Line(text) for text in lines if text)],
        notes=notes,
        fired=bool(report.fired),
        evaluated=is_evaluated(report),
    )


def _compared(report: Report) -> list[str]:
    """Say in a sentence for each part what is most unlike in the other run."""
    held = report.comparison
    if held is None:
        return []
    shown = [*held.totals[:2], *held.ledger[:2], *held.steps[1:2], *held.loss[:1]]
    words = ((each.what, change_words(each, report.cost.currency)) for each in shown)
    differences = "; ".join(f"{what} {here}, there {there} ({by})" for what, (here, there, by) in words)
    return [f"Compared with {held.job}: {differences}."]


def _drawn(target: Target, found: FoundRuns | None, where: Where, settings: GivenSettings, progress: Progress) -> Drawn:
    if target.is_job:
        return _of_job(target.text, connect_for(target, where), settings, progress)
    found = find_runs(target.text, clients_for(target, where)) if found is None else found
    return _of_place(target, found.open_one(target.text), settings, progress)


def _of_place(place: Target, profile: Profile, settings: GivenSettings, progress: Progress) -> Drawn:
    name = profile.root.job
    job, job_notes = described_job(profile.source, settings.job(name))
    done = evaluated_profile(profile, job, FAMILIES.plan(job, prices=settings.prices), progress)
    # The folder is called by its own name where that can be shown as it is.
    own = profile.source.job
    return Drawn(
        job=name,
        built=report_of(done),
        source=profile.source.place,
        made_from="profile",
        notes=[*([place.note] if place.note else []), *profile.notes, *job_notes, *done.notes],
        folder=own if own.isprintable() and not own.startswith("-") else None,
    )


def _of_job(name: str, connection: Connection, settings: GivenSettings, progress: Progress) -> Drawn:
    stores = connection.stores
    stored = job_in_stack(name, stores.jobs)
    job = replace(
        stored,
        instance_type=settings.instance_type or stored.instance_type,
        framework_expected=settings.framework_expected or stored.framework_expected,
    )
    records = items_of(stored, stores.nodes)
    if all(record.key.node == JOB_NODE for record in records):
        return _of_expired(job, connection, settings.prices, progress)
    place = job_place(job)
    digests: Sequence[NodeDigest] = ()
    missing = []
    try:
        profile = read_profile(open_place(place, connection.clients))
    except ProfileSourceError as fault:
        missing.append(f"The report is without time lines: {fault}.")
    else:
        digests = digest(profile, job, progress)
    plan = FAMILIES.plan(job, prices=settings.prices)
    built = build_report(job, records, now=time.time(), plan=plan, digests=digests, missing=missing)
    return Drawn(job=name, built=built, source=place, made_from="state", notes=missing)


def _of_expired(job: JobRecord, connection: Connection, prices: PriceTable | None, progress: Progress) -> Drawn:
    """Judge the profile of a job again whose state has expired."""
    if not job.bucket:
        raise RequestError(
            f"job {job.job} has no state, and its profile lies in no bucket",
            "Call `trainguard report` with the folder that its profile lies in.",
        )
    profile = open_job(job_place(job), connection.clients)
    why = "has expired, or was not written yet" if replayed_job(job.job) is None else "is not kept of a replay"
    note = f"The state of its rules {why}: its profile was evaluated again, with the job's own settings."
    again = replace(job, episodes={}, closing=False)
    built = report_of(evaluated_profile(profile, again, FAMILIES.plan(again, prices=prices), progress))
    return Drawn(job=job.job, built=built, source=profile.source.place, made_from="profile", notes=[note])


MACHINE_OUTPUT = "ReportStateMachineArn"
_EVERY_S = 2.0
_RUNNING, _DONE = "RUNNING", "SUCCEEDED"


def remote_report(name: str, where: Where) -> CommandResult:
    if not JOB_NAME.fullmatch(name):
        raise RequestError(f"--in-stack needs the name of a training job, not {name!r}", "Leave out --in-stack.")
    connection = connect(where)
    job = job_in_stack(name, connection.stores.jobs)
    machine, client = connection.deployment.output(MACHINE_OUTPUT), connection.clients.stepfunctions
    with translated("StepFunctions", "StartExecution"):
        started = client.start_execution(stateMachineArn=machine, input=json.dumps({"job": name}))
    execution = started["executionArn"]
    _wait(execution, client)
    links = report_links(job=job.job, arn=job.arn, bucket=job.bucket, prefix=job.prefix)
    places = [f"Report: {links.page}", *([f"Console: {links.console}"] if links.console else [])]
    return CommandResult(
        document={
            "job": name,
            "execution": execution,
            "report_uri": links.page,
            "console": links.console,
        },
        blocks=[Heading(name), *(Line(place) for place in places), Line(f"To read it: {open_command(name)}")],
    )


def _wait(execution: str, client: "SFNClient") -> None:
    """Wait for an execution to end; an interrupt leaves it running. Raises ReportRunFailedError."""

    def described() -> Any:
        with translated("StepFunctions", "DescribeExecution"):
            return client.describe_execution(executionArn=execution)

    begun = time.monotonic()
    with stderr_console().status("The stack makes the report …") as line:
        while (found := described())["status"] == _RUNNING:
            line.update(f"The stack makes the report … {time.monotonic() - begun:,.0f} s")
            time.sleep(_EVERY_S)
    if found["status"] != _DONE:
        raise ReportRunFailedError(execution, found["status"], found.get("cause") or found.get("error") or "")
