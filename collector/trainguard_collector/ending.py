"""The end of a job of one or several nodes: the last node to end writes the end marker and the final job file."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.attempts import of_this_attempt
from trainguard_collector.layout import end_key, job_file_key, status_folder, status_key, stream_end_key
from trainguard_collector.lines import FORMAT_VERSION
from trainguard_collector.places import Place
from trainguard_collector.settings import Settings

SILENT_S = 600.0
"""A node whose status object is this old has ended without saying so."""

_STREAMS = ("framework", "training")
_RANK = {"Completed": 0, "Stopped": 1, "Failed": 2}


def job_file(
    settings: Settings,
    started_at: float,
    status: str,
    ended_at: Optional[float] = None,
    *,
    existing: Optional[bytes] = None,
) -> bytes:
    """Return ``job.json``: what TrainGuard reads of a job outside SageMaker.

    Fields of the ``existing`` file that the collector does not know a value for stay: a user may have written them.
    """
    fields: dict[str, Any] = {
        "schema_version": 1,
        "name": settings.identity.job,
        "status": status,
        "instance_type": settings.instance_type,
        "instance_count": settings.identity.nodes,
        "started_at": round(started_at, 3),
        "ended_at": None if ended_at is None else round(ended_at, 3),
        "profiling_interval_ms": settings.interval_ms,
        "settings": settings.job_settings or None,
        "tags": settings.tags or None,
        "resources": settings.resources or None,
    }
    own = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({**_kept(settings.identity.job, existing), **own}).encode()


def current_job_file(place: Place, settings: Settings) -> Optional[bytes]:
    """Return the job's file as it lies there; None where there is none, or it may not be read."""
    try:
        return place.get(job_file_key(settings.identity.job))
    except Exception:
        return None


def _has_ended(existing: Optional[bytes]) -> bool:
    try:
        found = json.loads(existing or b"{}")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("status") in _RANK


def _kept(job: str, existing: Optional[bytes]) -> dict[str, Any]:
    """Return the fields of a job's file that the collector says nothing of: somebody else has written them."""
    try:
        found = json.loads(existing or b"{}")
    except ValueError:
        return {}
    if not isinstance(found, dict) or found.get("name") not in (None, job):
        return {}
    return {name: value for name, value in found.items() if name != "ended_at"}


def status_object(settings: Settings, started_at: float, at: float, **more: Any) -> bytes:
    """Return a node's status object: what it did, what it lacks, and, at its end, how it ended."""
    fields = {
        "format_version": FORMAT_VERSION,
        "job": settings.identity.job,
        "node": settings.identity.node,
        "attempt": settings.identity.attempt,
        "interval_ms": settings.interval_ms,
        "started_at": round(started_at, 3),
        "updated_at": round(at, 3),
    }
    return json.dumps({**fields, **more}).encode()


def end_job(
    place: Place, settings: Settings, started_at: float, outcome: str, streams: "frozenset[str]" = frozenset()
) -> bool:
    """Write the end of the job unless another node still writes, or a later attempt runs; whether it was written.

    ``streams`` names what this node wrote beside system metrics: each stream that some node wrote gets its end marker.

    The node's own status object has been written before, with its outcome: of two nodes that end at the same time at
    least one sees the other's. Where status objects cannot be read, the job's first node ends it.
    """
    identity = settings.identity
    now = time.time()
    try:
        others = _others(place, settings)
    except Exception:
        if identity.index not in (0, None):
            return False
        others = []
    own = {"started_at": started_at, "attempt": identity.attempt, "nodes": identity.nodes}
    counted = of_this_attempt(own, others, now)
    if counted is None:
        return False
    others = counted
    if any("outcome" not in other and now - float(other.get("updated_at", 0.0)) < SILENT_S for other in others):
        return False
    outcomes = [outcome, *(other.get("outcome", "Failed") for other in others)]
    worst = max((each for each in outcomes if each in _RANK), key=_RANK.__getitem__)
    first = min([started_at, *(float(other.get("started_at", started_at)) for other in others)])
    if not identity.in_sagemaker:
        place.put(
            job_file_key(identity.job),
            job_file(settings, first, worst, now, existing=current_job_file(place, settings)),
        )
    for stream in sorted(streams.union(*(_texts(other.get("streams")) for other in others))):
        place.put(stream_end_key(identity.job, stream), b"")
    place.put(end_key(identity.job), b"")
    return True


def _texts(found: Any) -> "set[str]":
    return {each for each in found if each in _STREAMS} if isinstance(found, list) else set()


def begin_job(place: Place, settings: Settings, started_at: float) -> bytes:
    """Return the job's file for its start; end markers that an earlier attempt has left are deleted.

    Without permission to delete they stay: TrainGuard goes by the status that the file gives.
    """
    existing = current_job_file(place, settings)
    job = settings.identity.job
    if _has_ended(existing):
        for key in (end_key(job), *(stream_end_key(job, stream) for stream in _STREAMS)):
            with suppress(Exception):
                place.delete(key)
    return job_file(settings, started_at, "InProgress", existing=existing)


def _others(place: Place, settings: Settings) -> "list[Mapping[str, Any]]":
    identity = settings.identity
    own = status_key(identity.job, identity.node)
    found: list[Mapping[str, Any]] = []
    for key in place.keys(status_folder(identity.job)):
        body = place.get(key) if key.endswith(".status.json") and key != own else None
        if body is not None:
            found.append(json.loads(body))
    return found
