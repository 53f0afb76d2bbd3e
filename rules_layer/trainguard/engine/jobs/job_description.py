"""What a job's description says that its item keeps: its owner's permissions, its profile's place, its status.

Light to import: a function that only decides about a stop reads no settings.
"""

from dataclasses import replace

from trainguard.layout import ProfileRoot
from trainguard.ports import TrainingJobDescription
from trainguard.records import JobRecord, JobStatus
from trainguard.settings.tag_names import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, NAMESPACE, STOP_ALLOWED, STOP_TAG

__all__ = [
    "FRAMEWORK_EXPECTED",
    "FRAMEWORK_TAG",
    "NAMESPACE",
    "SAME_MOMENT_S",
    "STOP_ALLOWED",
    "STOP_TAG",
    "is_another",
    "is_anothers",
    "lies_elsewhere",
    "profile_place",
    "stop_allowed",
    "with_description",
]

SAME_MOMENT_S = 1.0
"""Times of creation this close are one: they are stored to the millisecond."""


def is_another(record: JobRecord, description: TrainingJobDescription) -> bool:
    """Whether another job is described than the item's, which was deleted: its name was given away again."""
    if record.created_at is None or description.created_at is None:
        return False
    return abs(description.created_at - record.created_at) > SAME_MOMENT_S


def profile_place(description: TrainingJobDescription) -> tuple[str, ProfileRoot] | None:
    """Return the bucket and root of a job's profile as its configuration names them; None when it names none."""
    scheme, _, place = (description.profile_uri or "").partition("://")
    bucket, _, path = place.partition("/")
    if scheme != "s3" or not bucket:
        return None
    prefix = path.strip("/")
    return bucket, ProfileRoot(f"{prefix}/" if prefix else "", description.job)


def lies_elsewhere(description: TrainingJobDescription, bucket: str) -> bool:
    """Whether a job's profile belongs into another bucket than ``bucket``, in which objects bear the job's name."""
    place = profile_place(description)
    return place is not None and place[0] != bucket


def is_anothers(record: JobRecord, description: TrainingJobDescription | None) -> bool:
    """Whether what was met outside SageMaker is none of the job that SageMaker has come to know by its folder's name.

    That job's profile belongs into another bucket, or it has an item under its own name.
    """
    if not record.is_outside or description is None or description.is_outside:
        return False
    return lies_elsewhere(description, record.bucket) or record.job != description.job


def stop_allowed(description: TrainingJobDescription) -> bool:
    """Whether the job's owner has opted in to being stopped."""
    return description.tags.get(STOP_TAG) == STOP_ALLOWED


def reopened(record: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
    """Return the item of a job outside SageMaker as one that runs, if it was started again after its end.

    A retried job says so in its own file: it began after the end that the item has.
    """
    if description is None or not (record.is_outside and description.is_outside and record.status.is_final):
        return record
    if record.ended_at is None or description.started_at is None or description.started_at <= record.ended_at:
        return record
    return replace(
        record,
        status=JobStatus.UNKNOWN,
        ended_at=None,
        active=True,
        closing=False,
        close_asks=0,
        close_asked_at=None,
        left_at=None,
        expires_at=None,
    )


def with_description(record: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
    """Return the item with the status, times and size that are said of the job now.

    A final status stays, unless a job outside SageMaker was started again.

    A cluster that has shrunk is as large as it ever was: the nodes that left have profiles too. Of a job of which
    nothing is said, and of one whose own file cannot be used, only that changes. One whose name SageMaker gave to a
    later job has ended, and nothing that is said of that one holds for it.
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
