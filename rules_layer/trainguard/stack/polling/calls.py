"""Events that ask for a poll: a run of the scheduler, or an object that was written."""

from typing import Annotated, Any

import msgspec


class _Call(msgspec.Struct):
    job: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    at: float | None = None


def poll_of(event: object, *, now: float) -> tuple[str, float]:
    """Return job and time of an event, by default ``now``; raises msgspec.ValidationError."""
    call = msgspec.convert(event, _Call)
    return call.job, now if call.at is None else call.at


def written_object(event: Any) -> tuple[str, str] | None:
    """Return bucket and key of the object that an event of S3 names; None for any other event."""
    detail = event.get("detail") if isinstance(event, dict) else None
    if not isinstance(detail, dict):
        return None
    parts = ((detail.get(part), name) for part, name in (("bucket", "name"), ("object", "key")))
    bucket, key = (part.get(name) if isinstance(part, dict) else None for part, name in parts)
    return (bucket, key) if isinstance(bucket, str) and isinstance(key, str) else None
