"""``trainguard report``: from a person's request to a report on this machine, and its verdict on the terminal."""

import time
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from botocore.session import Session

from trainguard.adapters.clients import Clients
from trainguard.cli.output.blocks import Block, Heading, Line
from trainguard.cli.output.output_path import OutputPath, output_path
from trainguard.cli.output.progress import Progress, stderr_progress
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.services.deployment import Connection, Where
from trainguard.cli.services.evaluated import has_verdict
from trainguard.cli.services.input_files import prices_from, settings_from
from trainguard.cli.services.target import Place, StackJob, connect_for, job_not_known, job_place, target_of
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.state_items import items_of
from trainguard.errors import ProfileSourceError, RequestError
from trainguard.families.installed import FAMILIES
from trainguard.local.analysis import EvaluatedProfile, digest, evaluated_profile
from trainguard.local.job_json import described_job
from trainguard.local.places import open_job, open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.pricing.table import PriceTable
from trainguard.records import JOB_NODE, JobRecord
from trainguard.report.build import BuiltReport, build_report

if TYPE_CHECKING:
    from trainguard.timeline.digest import NodeDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """Whose report is wanted, where to, and what is known beside the profile."""

    source: str
    where: Where
    out: Path | None = None
    params: Path | None = None
    prices: Path | None = None
    instance_type: str | None = None
    framework_expected: bool = False
    open_page: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A report, and what it was made from: the rules' stored state, or the profile judged again.

    ``folder`` is the name of the folder that the profile lies in; it names the report's folder. Two of them may differ
    in signs alone that no job's name has.
    """

    job: str
    built: BuiltReport
    source: str
    made_from: Literal["state", "profile"]
    notes: Sequence[str] = field(default=())
    folder: str | None = None


def report_command(request: ReportRequest, *, as_json: bool, fail_on_fire: bool) -> int:
    """Make a report; return the exit code."""
    return print_result(lambda: _result(request, shown=not as_json), as_json=as_json, fail_on_fire=fail_on_fire)


def _result(request: ReportRequest, *, shown: bool) -> CommandResult:
    place = None if request.out is None else output_path(request.out, "")
    if place is not None:
        place.prepare()
    drawn = draw(request, stderr_progress(shown=shown))
    if place is None:
        place = output_path(None, drawn.folder or drawn.job)
        place.prepare()
    files = place.write(drawn.built)
    notes = list(drawn.notes)
    if request.open_page and not webbrowser.open(place.shown.resolve().as_uri()):
        notes.append("No browser could be opened.")
    return CommandResult(
        document=_document(drawn, place, files, notes),
        blocks=verdict_blocks(drawn.job, drawn.built, [f"Report: {place.shown}"]),
        notes=notes,
        fired=bool(drawn.built.report.fired),
        evaluated=evaluated(drawn.built),
    )


def _document(drawn: Drawn, place: OutputPath, files: Mapping[str, bytes], notes: Sequence[str]) -> dict[str, Any]:
    report = drawn.built.report
    return {
        "schema_version": "1",
        "job": drawn.job,
        "source": drawn.source,
        "made_from": drawn.made_from,
        "scope": report.scope,
        "final": report.final,
        "healthy": report.healthy,
        "evaluated": evaluated(drawn.built),
        "verdict": report.verdict,
        "fired": report.fired,
        "page": str(place.shown),
        "files": place.names(files),
        "notes": notes,
    }


def evaluated(built: BuiltReport) -> bool:
    """Return whether any rule of a report has judged."""
    return has_verdict((rule.rule, rule.status, rule.times_fired) for rule in built.report.rules)


def verdict_blocks(job: str, built: BuiltReport, places: Sequence[str]) -> list[Block]:
    """Return a report's verdict for people, and where it lies."""
    verdict = built.report.verdict
    sentences = (verdict.health, verdict.change, verdict.cost)
    return [Heading(job), *(Line(text) for text in (*sentences, *places) if text)]


def draw(request: ReportRequest, progress: Progress) -> Drawn:
    """Make the report that was asked for.

    Raises
    ------
    ProfileSourceError, NoProfileError
        When no single profile is there.
    RequestError
        When the stack does not know the job, or an option has no meaning for it.
    ParameterFileError, RuleConfigError, PriceTableError
        When a file cannot be used.
    DeploymentError, PortUnavailableError, StateCodecError, WorkerDiedError
        As the stack, its stores and `evaluate_profile` raise them.
    """
    target = target_of(request.source)
    prices = prices_from(request.prices)
    if isinstance(target, StackJob):
        if request.params is not None:
            raise RequestError(
                f"--params has no meaning for job {target.name}: its verdicts are those of its alerts",
                f"Call `trainguard replay {target.name} --params {request.params}`.",
            )
        return _of_job(target.name, connect_for(target, request.where), request, prices, progress)
    return _of_place(target, request, prices, progress)


def _of_place(place: Place, request: ReportRequest, prices: PriceTable | None, progress: Progress) -> Drawn:
    known = _known(
        JobRecord(job="", arn="", bucket="", prefix="", rule_settings=settings_from(request.params)), request
    )
    profile = open_job(place.text, _clients(request.where) if place.in_s3 else None)
    name = profile.root.job
    described = described_job(profile.source, replace(known, job=name, arn=f"unknown:{name}"))
    judged = _judged(profile, described.job, prices, progress)
    kernels = () if judged.kernels is None else judged.kernels.notes
    notes = [note for note in (place.note, *profile.notes, described.note, *kernels) if note is not None]
    return Drawn(
        job=name,
        built=judged.report(),
        source=profile.source.place,
        made_from="profile",
        notes=notes,
        folder=_own_name(profile),
    )


def _own_name(profile: Profile) -> str | None:
    """Return the name of the profile's folder; None where it cannot be shown as it is."""
    name = profile.source.job
    return name if name.isprintable() and not name.startswith("-") else None


def _of_job(
    name: str, connection: Connection, request: ReportRequest, prices: PriceTable | None, progress: Progress
) -> Drawn:
    """Take the verdicts from the job's stored state, and the time lines from its profile."""
    stores = connection.stores
    stored = stores.jobs.load(name)
    if stored is None:
        raise job_not_known(name, stores.jobs)
    job = _known(stored, request)
    records = items_of(stored, stores.nodes)
    if all(record.key.node == JOB_NODE for record in records):
        return _of_expired(job, connection, prices, progress)
    place = job_place(job)
    digests: Sequence[NodeDigest] = ()
    missing = []
    try:
        profile = read_profile(open_place(place.text, connection.clients))
    except ProfileSourceError as fault:
        missing.append(f"The report is without time lines: {fault}.")
    else:
        digests = digest(profile, job, progress)
    plan = FAMILIES.plan(job, prices=prices)
    built = build_report(job, records, now=time.time(), plan=plan, digests=digests, missing=missing)
    return Drawn(job=name, built=built, source=place.text, made_from="state", notes=missing)


def _of_expired(job: JobRecord, connection: Connection, prices: PriceTable | None, progress: Progress) -> Drawn:
    """Judge the profile of a job again, of whose rules no state is there."""
    if not job.bucket:
        raise RequestError(
            f"job {job.job} has no state, and its profile lies in no bucket",
            "Call `trainguard report` with the folder that its profile lies in.",
        )
    profile = open_job(job_place(job).text, connection.clients)
    why = "has expired, or was not written yet" if replayed_job(job.job) is None else "is not kept of a replay"
    note = f"The state of its rules {why}: its profile was evaluated again, with the job's own settings."
    judged = _judged(profile, replace(job, episodes={}, closing=False), prices, progress)
    return Drawn(job=job.job, built=judged.report(), source=profile.source.place, made_from="profile", notes=[note])


def _judged(profile: Profile, job: JobRecord, prices: PriceTable | None, progress: Progress) -> EvaluatedProfile:
    return evaluated_profile(profile, job, FAMILIES.plan(job, prices=prices), progress)


def _known(job: JobRecord, request: ReportRequest) -> JobRecord:
    return replace(
        job,
        instance_type=request.instance_type or job.instance_type,
        framework_expected=request.framework_expected or job.framework_expected,
    )


def _clients(where: Where) -> Clients | None:
    """Return clients as a person asked for; None for those of the environment."""
    if where.region is None and where.profile is None:
        return None
    return Clients(session=Session(profile=where.profile), region=where.region)
