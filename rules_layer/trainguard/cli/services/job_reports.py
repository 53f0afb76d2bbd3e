"""A job's report: of its place, judged again, or of the rules' stored state in a stack."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from trainguard.cli.options import Where
from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.services.deployment import Deployment, Target, clients_for, connect_for, job_in_stack, job_place
from trainguard.core.errors import ProfileSourceError, RequestError
from trainguard.core.records import JOB_NODE, JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.streams.session import items_of
from trainguard.local.analysis import digest, evaluated_profile, report_of
from trainguard.local.places import open_place
from trainguard.local.profile import Profile, read_profile
from trainguard.local.runs import FoundRuns, find_runs, open_job
from trainguard.local.settings import GivenSettings, described_job
from trainguard.report.job.build import BuiltReport, build_report

if TYPE_CHECKING:
    from trainguard.report.timeline.digest import NodeDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A report, from the rules' stored state or the profile judged again; ``folder`` names the report's folder.

    ``profile`` and ``record`` are what it was made from: the former None of a job in a stack.
    """

    job: str
    built: BuiltReport
    source: str
    made_from: Literal["state", "profile"]
    notes: Sequence[str] = field(default=())
    folder: str | None = None
    profile: Profile | None = None
    record: JobRecord | None = None


def drawn_job(
    target: Target, found: FoundRuns | None, where: Where, settings: GivenSettings, progress: ProgressBar
) -> Drawn:
    """Return a job's report; ``found`` is what was found at a place, else it is looked for.

    Raises ProfileSourceError, NoProfileError, RequestError.
    """
    if target.is_job:
        return _of_job(target.text, connect_for(target, where), settings, progress)
    found = find_runs(target.text, clients_for(target, where)) if found is None else found
    return _of_place(target, found.open_one(target.text), settings, progress)


def _of_place(place: Target, profile: Profile, settings: GivenSettings, progress: ProgressBar) -> Drawn:
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
        profile=profile,
        record=done.job,
    )


def stored_report(
    name: str, deployment: Deployment, settings: GivenSettings, progress: ProgressBar | None
) -> tuple[JobRecord, BuiltReport | None, list[str]]:
    """Return a job of the stack, the report of its stored state, None without such, and what it is without.

    Without ``progress`` the profile is not read for time lines.
    """
    stored = job_in_stack(name, deployment.stores.jobs)
    job = replace(
        stored,
        instance_type=settings.instance_type or stored.instance_type,
        framework_expected=settings.framework_expected or stored.framework_expected,
    )
    records = items_of(stored, deployment.stores.nodes)
    if all(record.key.node == JOB_NODE for record in records):
        return job, None, []
    digests: Sequence[NodeDigest] = ()
    missing = []
    if progress is not None:
        try:
            digests = digest(read_profile(open_place(job_place(job), deployment.clients)), job, progress)
        except ProfileSourceError as fault:
            missing.append(f"The report is without time lines: {fault}.")
    plan = FAMILIES.plan(job, prices=settings.prices)
    return job, build_report(job, records, now=time.time(), plan=plan, digests=digests, missing=missing), missing


def _of_job(name: str, deployment: Deployment, settings: GivenSettings, progress: ProgressBar) -> Drawn:
    """Return the report of a job of the stack; its profile is judged again where its state has expired."""
    job, built, missing = stored_report(name, deployment, settings, progress)
    if built is not None:
        return Drawn(job=name, built=built, source=job_place(job), made_from="state", notes=missing, record=job)
    if not job.bucket:
        raise RequestError(
            f"job {job.job} has no state, and its profile lies in no bucket",
            "Call `trainguard report` with the folder that its profile lies in.",
        )
    profile = open_job(job_place(job), deployment.clients)
    why = "has expired, or was not written yet" if replayed_job(job.job) is None else "is not kept of a replay"
    note = f"The state of its rules {why}: its profile was evaluated again, with the job's own settings."
    again = replace(job, episodes={}, closing=False)
    built = report_of(evaluated_profile(profile, again, FAMILIES.plan(again, prices=settings.prices), progress))
    return Drawn(job=job.job, built=built, source=profile.source.place, made_from="profile", notes=[note], record=job)
