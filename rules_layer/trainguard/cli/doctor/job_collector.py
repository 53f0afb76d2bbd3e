"""What the collector says of itself: the status object of each node, ``<job>/collector/<node>.status.json``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from trainguard.cli.doctor.check import Check, CheckResult, span
from trainguard.cli.doctor.job_case import JobCase
from trainguard.errors import ObjectMissingError
from trainguard.layout import ProfileRoot
from trainguard.plain_text import one_line
from trainguard.ports import ProfileObjects
from trainguard.rules.units import counted

COLLECTOR = Check("collector")
SILENT_S = 600.0
"""A node writes its status every minute."""

MOST_NODES = 256
MAX_BYTES = 256 * 1024
_SUFFIX = ".status.json"
_NAMED = 3
_LONGEST = 160


class CollectorStatus(msgspec.Struct, kw_only=True):
    """A status object, as docs/formats.md has it; what a later version adds is passed over."""

    node: str
    updated_at: float
    interval_ms: float = 0.0
    gpus: int = 0
    lost_gpus: list[str] = []
    absent: dict[str, str] = {}
    dropped_minutes: int = 0
    dropped_objects: int = 0
    lost_snapshots: int = 0
    missed_samples: int = 0
    failed_uploads: int = 0
    errors: dict[str, str] = {}
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class SeenCollectors:
    """The status objects of a job: those that were read, how many there are, and why some could not be read."""

    statuses: Sequence[CollectorStatus]
    count: int
    unread: Mapping[str, str]


def read_statuses(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> SeenCollectors:
    """Read the status objects of a job's first 256 nodes; raises PortUnavailableError."""
    prefix = root.collector
    found = [each for each in objects.list(bucket, prefix, "") if each.key.endswith(_SUFFIX)]
    statuses, unread = [], {}
    for each in islice(found, MOST_NODES):
        name = each.key.removeprefix(prefix).removesuffix(_SUFFIX)
        try:
            body = objects.get(bucket, each.key, MAX_BYTES)
            statuses.append(msgspec.json.decode(body, type=CollectorStatus))
        except (msgspec.DecodeError, UnicodeDecodeError, ObjectMissingError) as fault:
            unread[name] = str(fault)
    return SeenCollectors(statuses, len(found), unread)


def check_collector(case: JobCase) -> Iterator[CheckResult]:
    """Judge what the collector says of itself."""
    seen = read_statuses(case.objects, case.record.bucket, case.root)
    yield from grade_collector(seen, now=case.site.now, final=case.record.status.is_final)


def grade_collector(seen: SeenCollectors, *, now: float, final: bool) -> Iterator[CheckResult]:
    """Judge status objects; ``final`` says that the job has ended."""
    if not seen.count:
        yield COLLECTOR.ok("no collector writes the profile")
        return
    faults = [*_faults(seen, now, final=final)]
    intervals = sorted({status.interval_ms for status in seen.statuses})
    every = ", ".join(f"{interval:g} ms" for interval in intervals)
    gpus = sum(status.gpus for status in seen.statuses)
    yield from COLLECTOR.unless(faults, f"{counted(seen.count, 'node')}, {counted(gpus, 'GPU')}, every {every}")
    absent = {f"{what}: {why}": None for status in seen.statuses for what, why in status.absent.items()}
    if absent:
        yield COLLECTOR.ok(f"not measured: {listed(list(absent))}")


def _faults(seen: SeenCollectors, now: float, *, final: bool) -> Iterator[CheckResult]:
    if seen.unread:
        what = listed([f"{node}: {why}" for node, why in seen.unread.items()])
        yield COLLECTOR.warn(f"not read: {what}", "Does the collector's version agree with this one's?")
    silent = [each for each in seen.statuses if each.outcome is None and now - each.updated_at > SILENT_S]
    if silent and not final:
        last = max(each.updated_at for each in silent)
        nodes = listed([each.node for each in silent])
        yield COLLECTOR.fail(
            f"{counted(len(silent), 'node')} silent for {span(now - last)} or more: {nodes}",
            "Is the node's container running, and may its role write into the bucket?",
        )
    gone = [f"{each.node} {', '.join(each.lost_gpus)}" for each in seen.statuses if each.lost_gpus]
    if gone:
        yield COLLECTOR.warn(
            f"GPUs that the driver has lost, or does not answer for: {listed(gone)}",
            "Look for XIDs in the node's kernel log (dmesg), and replace the node.",
        )
    for field, noun, what, advice in _LOSSES:
        lost = {each.node: getattr(each, field) for each in seen.statuses if getattr(each, field)}
        if lost:
            nodes = listed([f"{node} {amount:,}" for node, amount in lost.items()])
            yield COLLECTOR.warn(f"{counted(sum(lost.values()), noun)} {what}: {nodes}", advice)
    errors = {f"{name}: {why}": None for each in seen.statuses for name, why in each.errors.items()}
    if errors:
        yield COLLECTOR.warn(f"its newest errors: {listed(list(errors))}", "See the job's log, and its role.")


_MORE_ROOM = "Raise TRAINGUARD_SPOOL_MB, or see why S3 was away."
_LOSSES = (
    ("dropped_minutes", "minute", "dropped, as the spool was full", _MORE_ROOM),
    ("dropped_objects", "recording", "dropped, as the spool was full", _MORE_ROOM),
    ("lost_snapshots", "snapshot", "lost, as the disk took none", "Set TRAINGUARD_SPOOL to a disk with space."),
    ("missed_samples", "sample", "missed, as the one before took too long", "Raise TRAINGUARD_INTERVAL_MS."),
    ("failed_uploads", "upload", "failed and tried again", "Its role needs s3:PutObject on the output."),
)


def listed(parts: Sequence[str]) -> str:
    """Return the first three parts, each cut to one short line, and how many more there are."""
    shown = "; ".join(one_line(part)[:_LONGEST] for part in parts[:_NAMED])
    return shown if len(parts) <= _NAMED else f"{shown}; and {len(parts) - _NAMED:,} more"
