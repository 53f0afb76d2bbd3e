"""Writes a source's data beside the profile, the status last: a poll that dies is repeated without harm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from trainguard.core.errors import ObjectMissingError, TrainGuardError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.core.text import one_line
from trainguard.formats.profile.system import NOT_JUDGED
from trainguard.formats.runs.managed import END_MARK, EVENT_FILE, event_file, system_files
from trainguard.formats.runs.run import SeriesName, Snapshot, SourceRun
from trainguard.formats.tensors.scalars.rows import Recording

FOLDER = "live-source"
MAX_BYTES = 256 * 1024
MOST_NOT_JUDGED = 1_024
_LONGEST_FAULT = 500
_Count = Annotated[int, msgspec.Meta(ge=0)]


class PollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``<job>/live-source/<name>.json``: all before ``through`` is read and written; times in epoch seconds.

    ``events_bytes`` is the length of the last file of scalars: what lies behind is rewritten. ``counted`` is the next
    step of scalars logged without one, by name, ``bad`` counts unreadable parts by reason. ``not_judged`` are the
    accelerators that are named as such in the metrics. ``fault`` is empty without one, ``failed_since`` the first
    failure without a success since.
    """

    schema_version: Literal[1] = 1
    source: str
    through: float
    polled_at: float = 0.0
    events_file: _Count = 0
    events_bytes: _Count = 0
    minutes: _Count = 0
    scalars: _Count = 0
    counted: dict[str, int] = msgspec.field(default_factory=dict)
    bad: dict[str, int] = msgspec.field(default_factory=dict)
    not_judged: list[str] = msgspec.field(default_factory=list)
    fault: str = ""
    failed_since: float | None = None
    ended: bool = False


def status_key(root: ProfileRoot, name: str) -> str:
    return f"{root.folder}{FOLDER}/{name}.json"


def read_status(objects: ProfileObjects, bucket: str, key: str) -> PollStatus | None:
    """Return the status at a key; None without a readable one. Raises PortUnavailableError."""
    try:
        return msgspec.json.decode(objects.get(bucket, key, MAX_BYTES), type=PollStatus)
    except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def failed(status: PollStatus, fault: TrainGuardError, at: float) -> PollStatus:
    """Return the status after a poll that failed at ``at``, epoch seconds."""
    since = at if status.failed_since is None else status.failed_since
    reason = one_line(str(fault), _LONGEST_FAULT)
    return msgspec.structs.replace(status, polled_at=at, fault=reason, failed_since=since)


def write_status(objects: ProfileObjects, bucket: str, key: str, status: PollStatus) -> None:
    objects.put(bucket, key, msgspec.json.encode(status), "application/json")


EVENTS_FOLDER = "tensorboard-output/live-source"
# Of one file of scalars; each poll rewrites the last one, and begins another one beyond this size.
MOST_EVENT_BYTES = 4 * 1024 * 1024

_JSON, _BYTES = "application/json", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where a job's objects lie."""

    objects: ProfileObjects
    bucket: str
    root: ProfileRoot

    def put(self, name: str, body: bytes, content_type: str) -> None:
        self.objects.put(self.bucket, f"{self.root.folder}{name}", body, content_type)


def between(run: SourceRun, start: float, end: float) -> SourceRun:
    """Return what a run recorded from ``start`` on and before ``end``, epoch seconds."""
    return SourceRun(
        name=run.name,
        tool=run.tool,
        snapshots={
            node: kept
            for node, snapshots in run.snapshots.items()
            if (kept := [each for each in snapshots if start <= each.at < end])
        },
        scalars=[row for row in run.scalars if start <= row.at < end],
        started_at=run.started_at,
        ended_at=run.ended_at,
        outcome=run.outcome,
        gpu_type=run.gpu_type,
        link=run.link,
        bad=run.bad,
        not_judged=run.not_judged,
    )


def deliver(place: JobFolder, run: SourceRun, status: PollStatus) -> PollStatus:
    """Write what was read since ``status``, return the new status to write; raises PortUnavailableError."""
    status = _name_not_judged(run, status)
    files = {name: body for name, body in system_files(run).items() if name != END_MARK}
    for name, body in sorted(files.items()):
        place.put(f"profiler-output/{name}", body, _JSON)
    status = _scalars(place, run.scalars, status)
    return msgspec.structs.replace(status, minutes=status.minutes + len(files))


def _name_not_judged(run: SourceRun, status: PollStatus) -> PollStatus:
    """Name accelerators whose metrics are not read in a run's first metrics, each once in a job."""
    names = {f"{kind} {device}" for kind, devices in run.not_judged.items() for device in devices}
    new = sorted(names.difference(status.not_judged))[: MOST_NOT_JUDGED - len(status.not_judged)]
    first = min((found[0] for found in run.snapshots.values() if found), key=lambda each: each.at, default=None)
    if first is None or not new:
        return status
    lines = {SeriesName("accelerator", name, NOT_JUDGED): 1.0 for name in new}
    for node, found in run.snapshots.items():
        if found and found[0] is first:
            run.snapshots[node] = [Snapshot(first.at, {**first.values, **lines}), *found[1:]]
    return msgspec.structs.replace(status, not_judged=[*status.not_judged, *new])


def added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {why: counts.get(why, 0) + more.get(why, 0) for why in (*counts, *more)}


def deliver_end(place: JobFolder) -> None:
    place.put(f"profiler-output/{END_MARK}", b"", _BYTES)


def _scalars(place: JobFolder, rows: Sequence[Recording], status: PollStatus) -> PollStatus:
    if not rows:
        return status
    number, length = status.events_file, status.events_bytes
    if length >= MOST_EVENT_BYTES:
        number, length = number + 1, 0
    name = f"{EVENTS_FOLDER}/{EVENT_FILE}.{number:06d}"
    known = b""
    if length:
        try:
            known = place.objects.get(place.bucket, f"{place.root.folder}{name}", length)[:length]
        except ObjectMissingError:
            number += 1
            name = f"{EVENTS_FOLDER}/{EVENT_FILE}.{number:06d}"
    body = known + event_file(rows)
    place.put(name, body, _BYTES)
    return msgspec.structs.replace(
        status, events_file=number, events_bytes=len(body), scalars=status.scalars + len(rows)
    )
