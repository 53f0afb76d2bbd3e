"""The end of a job of one or several nodes: the last node to end writes the end marker and the final job file."""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Optional

from trainguard_collector.layout import end_key, job_file_key, status_folder, status_key, stream_end_key
from trainguard_collector.metrics import FORMAT_VERSION
from trainguard_collector.places import Place
from trainguard_collector.settings import Settings

# A node whose status object is this old has ended without saying so.
COLLECTOR_SILENT_S = 600.0

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
    found = _read(existing)
    is_ours = found.get("name") in (None, settings.identity.job)
    kept = {name: value for name, value in found.items() if name != "ended_at"} if is_ours else {}
    tags = settings.tags or kept.get("tags") or {}
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
        "tags": {**settings.identity.submitted, **tags} if isinstance(tags, dict) else None,
        "resources": settings.resources or None,
        "platform": settings.platform,
        "queue": settings.queue,
    }
    own = {name: value for name, value in fields.items() if value not in (None, {})}
    return json.dumps({**kept, **own}).encode()


def current_job_file(place: Place, settings: Settings) -> Optional[bytes]:
    """Return the job's file as it lies there; None where there is none, or it may not be read."""
    try:
        return place.get(job_file_key(settings.identity.job))
    except Exception:
        return None


def _read(existing: Optional[bytes]) -> "dict[str, Any]":
    try:
        found = json.loads(existing or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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

    Each of the ``streams`` of some node gets its end marker. The node's own status object is there before: of two nodes
    that end at once, one sees the other's. Where status objects cannot be read, the job's first node ends it.
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
    if any(
        "outcome" not in other and now - float(other.get("updated_at", 0.0)) < COLLECTOR_SILENT_S for other in others
    ):
        return False
    outcomes = [outcome, *(other.get("outcome", "Failed") for other in others)]
    worst = max((each for each in outcomes if each in _RANK), key=_RANK.__getitem__)
    first = min([started_at, *(float(other.get("started_at", started_at)) for other in others)])
    if not identity.in_sagemaker:
        place.put(
            job_file_key(identity.job),
            job_file(settings, first, worst, now, existing=current_job_file(place, settings)),
        )
    listed = [other.get("streams") for other in others]
    named = [each for found in listed if isinstance(found, list) for each in found if each in _STREAMS]
    for stream in sorted(streams.union(named)):
        place.put(stream_end_key(identity.job, stream), b"")
    place.put(end_key(identity.job), b"")
    return True


def begin_job(place: Place, settings: Settings, started_at: float) -> bytes:
    """Return the job's file for its start; end markers of an earlier attempt are deleted, where that is allowed."""
    existing = current_job_file(place, settings)
    job = settings.identity.job
    if _read(existing).get("status") in _RANK:
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


# A node silent for so long, while another was started, was replaced.
GONE_S = 180.0

Status = Mapping[str, Any]


def of_this_attempt(own: Status, others: Iterable[Status], now: float) -> "Optional[list[Status]]":
    """Return the other nodes' status objects that count for the end of this attempt; None when a later one runs.

    Attempts have numbers on AWS Batch and Slurm. Elsewhere a node is of an earlier attempt, or replaced, when one of
    this attempt was started after its last update, and it said how it ended or was silent for GONE_S. ``own`` is the
    node that ends, ``now`` epoch seconds.
    """
    started, attempt, is_alone = _time(own, "started_at"), own.get("attempt"), own.get("nodes") == 1
    same: list[Status] = []
    unnumbered: list[Status] = []
    for each in others:
        if attempt is not None and each.get("attempt") is not None:
            if each["attempt"] > attempt:
                return None
            if each["attempt"] == attempt:
                same.append(each)
        elif is_alone:
            if _time(each, "started_at") > started:
                return None
        else:
            unnumbered.append(each)
    newest = max([started, *(_time(each, "started_at") for each in (*same, *unnumbered))])

    def is_past(status: Status) -> bool:
        updated = _time(status, "updated_at")
        return updated < newest and ("outcome" in status or now - updated >= GONE_S)

    return same + [each for each in unnumbered if not is_past(each)]


def _time(status: Status, name: str) -> float:
    found = status.get(name)
    return float(found) if isinstance(found, (int, float)) else 0.0
