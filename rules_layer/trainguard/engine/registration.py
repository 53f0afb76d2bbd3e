"""How a job becomes known: described once, its tags read, its configuration kept in its item."""

from dataclasses import replace

from trainguard.ports import Jobs, TrainingJobDescription, TrainingJobs
from trainguard.records import JobRecord
from trainguard.telemetry.keys import ProfileRoot

NAMESPACE = "trainguard:"
STOP_TAG = "trainguard:stop-on-fire"
STOP_ALLOWED = "allowed"
FRAMEWORK_TAG = "trainguard:framework-metrics"
FRAMEWORK_EXPECTED = "expected"
_RESERVED_TAGS = frozenset({STOP_TAG, FRAMEWORK_TAG})


def ensure_job(*, jobs: Jobs, training_jobs: TrainingJobs, bucket: str, root: ProfileRoot) -> JobRecord:
    """Return the job's item; create it from what SageMaker says when there is none.

    A job that SageMaker does not know (a profile copied into the bucket, a cluster of one's own) is evaluated with
    the default parameters and can never be stopped.
    """
    known = jobs.load(root.job)
    if known is not None:
        return known
    description = training_jobs.describe(root.job)
    return jobs.register(describe_record(description, bucket=bucket, root=root))


def describe_record(description: TrainingJobDescription | None, *, bucket: str, root: ProfileRoot) -> JobRecord:
    """Resolve a job's item from its description and tags.

    Where the job's configuration names a place for its profile, that place is the job's own, whatever ``bucket`` and
    ``root`` say: objects elsewhere that carry its name are not its profile.

    Tags named ``trainguard:<Rule>_<parameter>`` are rule settings; ``trainguard:stop-on-fire`` with the value
    ``allowed``, to the letter, is the owner's permission to stop the job.
    """
    if description is None:
        return JobRecord(job=root.job, arn=f"unknown:{root.job}", bucket=bucket, prefix=root.prefix)
    tags = description.tags
    own = profile_place(description)
    if own is not None:
        bucket, root = own
    settings = {
        name.removeprefix(NAMESPACE): value
        for name, value in tags.items()
        if name.startswith(NAMESPACE) and name not in _RESERVED_TAGS
    }
    return JobRecord(
        job=description.job,
        arn=description.arn,
        bucket=bucket,
        prefix=root.prefix,
        status=description.status,
        secondary_status=description.secondary_status,
        instance_type=description.instance_type,
        instance_count=description.instance_count,
        created_at=description.created_at,
        started_at=description.started_at,
        ended_at=description.ended_at,
        profiling_interval_ms=description.profiling_interval_ms,
        framework_expected=description.framework_profiling or tags.get(FRAMEWORK_TAG) == FRAMEWORK_EXPECTED,
        rule_settings=settings,
        stop_allowed=stop_allowed(description),
    )


def profile_place(description: TrainingJobDescription) -> tuple[str, ProfileRoot] | None:
    """Return the bucket and root of a job's profile as its configuration names them; None when it names none."""
    scheme, _, place = (description.profile_uri or "").partition("://")
    bucket, _, path = place.partition("/")
    if scheme != "s3" or not bucket:
        return None
    prefix = path.strip("/")
    return bucket, ProfileRoot(f"{prefix}/" if prefix else "", description.job)


def stop_allowed(description: TrainingJobDescription) -> bool:
    """Whether the job's owner has opted in to being stopped."""
    return description.tags.get(STOP_TAG) == STOP_ALLOWED


def with_description(record: JobRecord, description: TrainingJobDescription) -> JobRecord:
    """Return the item with the status and times that SageMaker gives now; a final status stays."""
    status = record.status if record.status.is_final else description.status
    return replace(
        record,
        status=status,
        secondary_status=description.secondary_status,
        started_at=description.started_at or record.started_at,
        ended_at=description.ended_at or record.ended_at,
        closing=record.closing or status.is_final,
    )
