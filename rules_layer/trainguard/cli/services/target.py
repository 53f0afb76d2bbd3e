"""What a command's SOURCE is: a folder, a place in S3, or a training job of the deployed stack."""

from dataclasses import dataclass
from pathlib import Path

from trainguard.cli.services.deployment import Connection, Where, connect
from trainguard.cli.services.names import unknown_job
from trainguard.engine.jobs.replay_names import JOB_NAME, replayed_job
from trainguard.errors import DeploymentError, ProfileSourceError, RequestError
from trainguard.layout import ProfileRoot
from trainguard.local.bucket import SCHEME
from trainguard.local.recordings import is_recording
from trainguard.local.sources import PROFILER_OUTPUT
from trainguard.records import JobRecord
from trainguard.stores import Jobs


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or ``s3://`` URI; ``note`` says what else its text could have meant."""

    text: str
    note: str | None = None

    @property
    def in_s3(self) -> bool:
        """Whether it is a URI of S3."""
        return self.text.startswith(SCHEME)


@dataclass(frozen=True, slots=True)
class StackJob:
    """A job by its name, of the deployed stack; a replay's name is one too."""

    name: str


def target_of(source: str) -> Place | StackJob:
    """Tell what was meant; where a folder has the name of a job, the folder is.

    Raises
    ------
    ProfileSourceError
        When it is nothing of the kind.
    """
    is_name = JOB_NAME.fullmatch(source) is not None or replayed_job(source) is not None
    if source.startswith(SCHEME):
        return Place(source)
    if is_recording(source):
        return Place(source)
    if Path(source).exists():
        meant = f"{source} is a folder here, and is read as one. For the training job of this name, call it elsewhere."
        return Place(source, meant if is_name else None)
    if is_name:
        return StackJob(source)
    raise ProfileSourceError(
        source, "does not exist; expected a folder, s3://bucket/prefix, or the name of a training job"
    )


def connect_for(target: Place | StackJob, where: Where) -> Connection:
    """Find the deployment that a target needs; of a job's name, say that it may be a mistyped folder.

    Raises
    ------
    DeploymentError, PortUnavailableError
        As `connect` does.
    """
    try:
        return connect(where)
    except DeploymentError as fault:
        if isinstance(target, Place):
            raise
        what = f"there is no folder {target.name} here, so it is taken as the name of a training job; {fault.what}"
        raise type(fault)(what, fault.remedy) from fault


def job_place(job: JobRecord) -> Place:
    """Return where a job's profile lies; a replay's is that of the job that it is of."""
    root = ProfileRoot.of_job(job.prefix, replayed_job(job.job) or job.job)
    return Place(f"{SCHEME}{job.bucket}/{root.folder}{PROFILER_OUTPUT}")


def job_not_known(name: str, jobs: Jobs) -> RequestError:
    """Return the error of a job that the stack does not know, with names that are like it."""
    what = str(unknown_job(name, jobs)).rstrip(".")
    return RequestError(what, "Or give the place of its profile: s3://<bucket>/<prefix>/<job>, or a folder.")
