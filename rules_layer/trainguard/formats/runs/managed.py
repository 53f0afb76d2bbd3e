"""A `SourceRun` in the managed layout. Importing this module imports protobuf."""

import math
import re
from collections.abc import Iterable, Sequence, Set
from typing import Any

import msgspec

from trainguard.core.layout import RUN_URL_TAG, hour_folder, is_plain_link
from trainguard.formats.runs.run import Snapshot, SourceRun
from trainguard.formats.tensors.frames import Event, frame
from trainguard.formats.tensors.scalars.rows import Recording

EVENT_FILE = "events.out.tfevents.trainguard"
# As the setting of a job's owner is called.
TOTAL_STEPS = "total-steps"
END_MARK = "system/training_job_end.ts"

_MINUTE_S = 60
_DECIMALS = 2
# The type of a tensor of float64, as TensorFlow numbers types.
_DOUBLE = 2

_OTHER = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST_NODE = 60
_LONGEST_TAG = 256
_ANY_NODE = "node"
# A time before 2015 or after 2999 is none.
_EARLIEST_S, _LATEST_S = 1_420_070_400.0, 32_503_680_000.0

NO_TIME = "a system metric with a time before 2015 or after 2999"


def system_files(run: SourceRun) -> dict[str, bytes]:
    """Return objects of system metrics by name, with the mark of the end; bad times are counted in ``run.bad``."""
    files: dict[str, bytes] = {}
    taken: set[str] = set()
    for node, snapshots in run.snapshots.items():
        name = _free_name(node, taken)
        taken.add(name)
        minutes: dict[int, list[Snapshot]] = {}
        for at, values in snapshots:
            if not _EARLIEST_S <= at <= _LATEST_S:
                run.refuse(NO_TIME)
                continue
            minutes.setdefault(int(at) // _MINUTE_S * _MINUTE_S, []).append(Snapshot(at, values))
        for minute, found in sorted(minutes.items()):
            key = f"system/incremental/{hour_folder(minute)}/{minute:010d}.{name}.json"
            files[key] = b"".join(_lines(name, found))
    if files:
        files[END_MARK] = b""
    return files


def event_file(rows: Sequence[Recording]) -> bytes:
    return b"".join(frame(_event(row)) for row in rows)


def job_file(run: SourceRun, name: str) -> bytes:
    known: dict[str, Any] = {"name": name}
    if run.outcome is not None:
        known["status"] = run.outcome.value
    started = run.started_at if run.started_at is not None and _EARLIEST_S <= run.started_at <= _LATEST_S else None
    if started is not None:
        known["started_at"] = started
    ended = run.ended_at
    if run.outcome is not None and ended is not None and math.isfinite(ended) and ended >= (started or 0.0):
        known["ended_at"] = ended
    owners = {f"trainguard:{kind}": owner[:_LONGEST_TAG] for kind, owner in run.owners.items() if owner.strip()}
    link = run.link or ""
    if is_plain_link(link) and "=" not in link and len(link) <= _LONGEST_TAG:  # else no tag can hold it
        owners[RUN_URL_TAG] = link
    if owners:
        known["tags"] = owners
    if run.total_steps is not None:
        known["settings"] = {TOTAL_STEPS: run.total_steps}
    return msgspec.json.encode(known)


def _free_name(node: str, taken: Set[str]) -> str:
    """Return a node's name as keys hold it, another one than those that are taken."""
    plain = _OTHER.sub("-", node)[:_LONGEST_NODE].strip(".-") or _ANY_NODE
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name


def _lines(node: str, snapshots: Iterable[Snapshot]) -> Iterable[bytes]:
    for at, values in snapshots:
        for series, value in values.items():
            yield msgspec.json.encode(
                {
                    "Type": series.type,
                    "Name": series.name,
                    "Dimension": series.dimension,
                    "Value": round(value, _DECIMALS),
                    "NodeId": node,
                    "Timestamp": at,
                }
            )
            yield b"\n"


def _event(row: Recording) -> bytes:
    event = Event(wall_time=row.at, step=row.step)
    for name, number in row.values.items():
        value = event.summary.value.add(tag=name.encode())
        value.tensor.dtype = _DOUBLE
        value.tensor.double_val.append(number)
    written: bytes = event.SerializeToString()
    return written
