"""A `SourceRun` in the managed layout. Importing this module imports protobuf."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trainguard.core.layout import hour_folder
from trainguard.core.links import RUN_URL_TAG, is_plain_link
from trainguard.formats.runs.run import ScalarsOfStep, Snapshot, SourceRun
from trainguard.formats.tensors.frames import Event, crc32c, masked

EVENT_FILE = "events.out.tfevents.trainguard"
END_MARK = "system/training_job_end.ts"

_MINUTE_S = 60
_DECIMALS = 2
_DOUBLE = 2
"""The type of a tensor of float64, as TensorFlow numbers types."""

_OTHER = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST_NODE = 60
_LONGEST_TAG = 256
_ANY_NODE = "node"
_EARLIEST_S, _LATEST_S = 1_420_070_400.0, 32_503_680_000.0
"""A time before 2015 or after 2999 is none."""

NO_TIME = "a system metric with a time before 2015 or after 2999"


def system_files(run: SourceRun) -> dict[str, bytes]:
    """Return objects of system metrics by name, with the mark of the end; bad times are counted in ``run.bad``."""
    files: dict[str, bytes] = {}
    names = _node_names(run.snapshots)
    for node, snapshots in run.snapshots.items():
        minutes: dict[int, list[Snapshot]] = {}
        for snapshot in snapshots:
            if not _EARLIEST_S <= snapshot.at <= _LATEST_S:
                run.refuse(NO_TIME)
                continue
            minutes.setdefault(int(snapshot.at) // _MINUTE_S * _MINUTE_S, []).append(snapshot)
        for minute, found in sorted(minutes.items()):
            name = f"system/incremental/{hour_folder(minute)}/{minute:010d}.{names[node]}.json"
            files[name] = b"".join(_lines(names[node], found))
    if files:
        files[END_MARK] = b""
    return files


def event_file(rows: Sequence[ScalarsOfStep]) -> bytes:
    """Return scalars as an event file of TensorBoard, values as float64."""
    return b"".join(_frame(_event(row)) for row in rows)


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
    tags = {**owners, **_page(run.link or "")}
    if tags:
        known["tags"] = tags
    return msgspec.json.encode(known)


def _page(link: str) -> dict[str, str]:
    """Return the tag that names the run's page; none where no tag can hold the link."""
    return {RUN_URL_TAG: link} if is_plain_link(link) and "=" not in link and len(link) <= _LONGEST_TAG else {}


def _node_names(nodes: Iterable[str]) -> Mapping[str, str]:
    names: dict[str, str] = {}
    for node in nodes:
        plain = _OTHER.sub("-", node)[:_LONGEST_NODE].strip(".-") or _ANY_NODE
        name, number = plain, 2
        while name in names.values():
            name, number = f"{plain}-{number}", number + 1
        names[node] = name
    return names


def _lines(node: str, snapshots: Iterable[Snapshot]) -> Iterable[bytes]:
    for snapshot in snapshots:
        for series, value in snapshot.values.items():
            yield msgspec.json.encode(
                {
                    "Type": series.type,
                    "Name": series.name,
                    "Dimension": series.dimension,
                    "Value": round(value, _DECIMALS),
                    "NodeId": node,
                    "Timestamp": snapshot.at,
                }
            )
            yield b"\n"


def _event(row: ScalarsOfStep) -> bytes:
    event = Event(wall_time=row.at, step=row.step)
    for name, number in row.values.items():
        value = event.summary.value.add(tag=name.encode())
        value.tensor.dtype = _DOUBLE
        value.tensor.double_val.append(number)
    written: bytes = event.SerializeToString()
    return written


def _frame(payload: bytes) -> bytes:
    length = len(payload).to_bytes(8, "little")
    checks = (masked(crc32c(each)).to_bytes(4, "little") for each in (length, payload))
    return length + next(checks) + payload + next(checks)
