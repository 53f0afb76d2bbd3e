"""What a job's item keeps of its description. Light to import."""

from dataclasses import replace

from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG

# Creation times are stored to the millisecond.
SAME_MOMENT_S = 1.0


def is_another(record: JobRecord, description: TrainingJobDescription) -> bool:
    """Whether another job than the item's is described: its name was given away again."""
    if record.created_at is None or description.created_at is None:
        return False
    return abs(description.created_at - record.created_at) > SAME_MOMENT_S


def profile_place(description: TrainingJobDescription) -> tuple[str, ProfileRoot] | None:
    scheme, _, place = (description.profile_uri or "").partition("://")
    bucket, _, path = place.partition("/")
    if scheme != "s3" or not bucket:
        return None
    prefix = path.strip("/")
    return bucket, ProfileRoot(f"{prefix}/" if prefix else "", description.job)


def lies_elsewhere(description: TrainingJobDescription, bucket: str) -> bool:
    place = profile_place(description)
    return place is not None and place[0] != bucket


def is_anothers(record: JobRecord, description: TrainingJobDescription | None) -> bool:
    """Whether what was met outside SageMaker is not of the job that SageMaker now lists by its folder's name."""
    if not record.is_outside or description is None or description.is_outside:
        return False
    return lies_elsewhere(description, record.bucket) or record.job != description.job


def stop_allowed(description: TrainingJobDescription) -> bool:
    return description.tags.get(STOP_TAG) == STOP_ALLOWED


def reopened(record: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
    """Return the item of a job outside SageMaker as running, if its file says that it began after its stored end."""
    if description is None or not (record.is_outside and description.is_outside and record.status.is_final):
        return record
    if record.ended_at is None or description.started_at is None or description.started_at <= record.ended_at:
        return record
    return replace(as_open(record), status=JobStatus.UNKNOWN, ended_at=None)


def as_open(record: JobRecord) -> JobRecord:
    """Return the item of a job that goes on, although its streams may have been asked to close."""
    return replace(record, active=True, closing=False, close_asks=0, close_asked_at=None, left_at=None, expires_at=None)


def with_description(record: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
    """Return the item with the status, times and size that are described now.

    A final status stays, unless a job outside SageMaker was started again. The size never shrinks: nodes that left have
    profiles too. A job whose name SageMaker gave to a later job has ended.
    """
    fault = None if description is None else description.file_fault
    if description is None or fault is not None:
        return replace(record, file_fault=fault) if record.file_fault != fault else record
    if is_another(record, description):
        return replace(record, closing=True)
    record = reopened(record, description)
    status = record.status if record.status.is_final else description.status
    counts = [count for count in (record.instance_count, description.instance_count) if count is not None]
    return replace(
        record,
        status=status,
        secondary_status=description.secondary_status,
        instance_count=max(counts, default=None),
        started_at=description.started_at or record.started_at,
        ended_at=description.ended_at or record.ended_at,
        file_fault=None,
        closing=record.closing or status.is_final,
    )
