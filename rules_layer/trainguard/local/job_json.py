"""What ``job.json`` beside a profile says of its job, for the commands that evaluate a profile on this machine."""

from dataclasses import dataclass, replace

from trainguard.engine.jobs.job_file import MAX_BYTES, read_job_file
from trainguard.errors import JobFileError, PortUnavailableError, ProfileSourceError
from trainguard.local.sources import ProfileSource
from trainguard.records import JobRecord
from trainguard.settings.owners import owners_of

JOB_FILE = "job.json"
BAD_JOB_FILES = "bad_job_files"
"""How a file that cannot be used is counted, as the deployed stack counts it."""


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """A job with what its file says; ``note`` says what people must know of the file, ``bad`` that it was not used."""

    job: JobRecord
    note: str | None = None
    bad: bool = False


def described_job(source: ProfileSource, job: JobRecord) -> DescribedJob:
    """Fill in what is not known of a job from the file beside its profile.

    What the job has already, by a person's options, holds. Parameters of rules are not taken from the file, and of its
    tags only whose the job is. A file that cannot be read or used changes nothing.
    """
    try:
        body = source.beside(JOB_FILE, MAX_BYTES)
        if body is None:
            return DescribedJob(job)
        said = read_job_file(JOB_FILE, body, None)
    except JobFileError as fault:
        return _not_used(job, str(fault))
    except (ProfileSourceError, PortUnavailableError) as fault:
        return _not_used(job, f"{JOB_FILE} beside the profile: {fault}")
    filled = replace(
        job,
        status=said.status if said.status.is_final else job.status,
        instance_type=job.instance_type or said.instance_type,
        instance_count=job.instance_count or said.instance_count,
        started_at=said.started_at if job.started_at is None else job.started_at,
        ended_at=said.ended_at if job.ended_at is None else job.ended_at,
        framework_expected=job.framework_expected or said.framework_profiling,
        owners=job.owners or owners_of(said.tags, {}),
        run_links=job.run_links or said.run_links,
    )
    other = f"{JOB_FILE} beside the profile is of job {said.job}, and the folder is called {source.job}."
    return DescribedJob(filled, None if said.job == source.job else other)


def _not_used(job: JobRecord, why: str) -> DescribedJob:
    return DescribedJob(replace(job, file_fault=why), f"Not used: {why}.", bad=True)
