"""Status objects of collectors and recorders in ``<job>/collector/``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from trainguard.cli.doctor.job_case import JobCase
from trainguard.cli.doctor.site import CheckResult, fail, ok, span, unless, warn
from trainguard.core.errors import ObjectMissingError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.core.text import one_line
from trainguard.core.units import counted

# A node writes its status every minute.
COLLECTOR_SILENT_S = 600.0

MOST_READ = 256
MAX_BYTES = 256 * 1024
_NAMED = 3
_LONGEST = 160

# The field that counts a loss, its noun, what happened, and what to do.
_Loss = tuple[str, str, str, str]
_MORE_ROOM = "Raise TRAINGUARD_SPOOL_MB, or see why S3 was away."

_OF_COLLECTOR: tuple[_Loss, ...] = (
    ("dropped_minutes", "minute", "dropped, as the spool was full", _MORE_ROOM),
    ("dropped_objects", "recording", "dropped, as the spool was full", _MORE_ROOM),
    ("lost_snapshots", "snapshot", "lost, as the disk took none", "Set TRAINGUARD_SPOOL to a disk with space."),
    ("missed_samples", "sample", "missed, as the one before took too long", "Raise TRAINGUARD_INTERVAL_MS."),
    ("failed_uploads", "upload", "failed and tried again", "Its role needs s3:PutObject on the output."),
)


class _Status(msgspec.Struct, kw_only=True):
    """A status object, as docs/formats.md has it; later fields are ignored."""

    node: str
    process: str = ""
    dropped_objects: int = 0
    errors: dict[str, str] = {}


class CollectorStatus(_Status, kw_only=True):
    """Status of a node's collector: ``<node>.status.json``."""

    updated_at: float
    interval_ms: float = 0.0
    gpus: int = 0
    lost_gpus: list[str] = []
    absent: dict[str, str] = {}
    dropped_minutes: int = 0
    lost_snapshots: int = 0
    missed_samples: int = 0
    failed_uploads: int = 0
    outcome: str | None = None


class RecorderStatus(_Status, kw_only=True):
    """Status of a training process's recorder at its end: ``<node>.<process>.recorder.json``."""

    process: str
    dropped_events: int = 0
    skipped_tensor_steps: int = 0
    tensors_left_out: list[str] = []


Status = TypeVar("Status", CollectorStatus, RecorderStatus)
_SUFFIXES = {CollectorStatus: ".status.json", RecorderStatus: ".recorder.json"}

_OF_RECORDER: tuple[_Loss, ...] = (
    (
        "dropped_events",
        "event",
        "dropped, as no sampler took them or the disk was full",
        "Is the collector's sampler running? Raise TRAINGUARD_SPOOL_MB, or set TRAINGUARD_SPOOL to a disk with space.",
    ),
    ("dropped_objects", "file", "dropped, as the spool was full", _MORE_ROOM),
    (
        "skipped_tensor_steps",
        "saved step",
        "skipped, as the device had not copied the last ones",
        "Save tensors less often: watch(model, every=…).",
    ),
)

# The status objects of a job that were read, how many there are, and why some could not be read.
Seen = tuple[Sequence[Status], int, Mapping[str, str]]


def read_statuses(objects: ProfileObjects, bucket: str, root: ProfileRoot, kind: type[Status]) -> Seen[Status]:
    """Read a job's first 256 status objects of a kind; raises PortUnavailableError."""
    suffix = _SUFFIXES[kind]
    found = [each for each in objects.list(bucket, root.collector, "") if each.key.endswith(suffix)]
    statuses, unread = [], {}
    for each in islice(found, MOST_READ):
        name = each.key.removeprefix(root.collector).removesuffix(suffix)
        try:
            statuses.append(msgspec.json.decode(objects.get(bucket, each.key, MAX_BYTES), type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError, ObjectMissingError) as fault:
            unread[name] = str(fault)
    return statuses, len(found), unread


def check_collector(case: JobCase) -> Iterable[CheckResult]:
    seen = read_statuses(case.objects, case.record.bucket, case.root, CollectorStatus)
    return grade_collector(seen, now=case.site.now, final=case.record.status.is_final)


def check_recorders(case: JobCase) -> Iterable[CheckResult]:
    return grade_recorders(read_statuses(case.objects, case.record.bucket, case.root, RecorderStatus))


def grade_collector(seen: Seen[CollectorStatus], *, now: float, final: bool) -> Iterator[CheckResult]:
    """Judge the statuses of collectors; ``final`` says that the job has ended."""
    statuses, count, unread = seen
    if not count:
        yield ok("no collector writes the profile")
        return
    intervals = sorted({status.interval_ms for status in statuses})
    every = ", ".join(f"{interval:g} ms" for interval in intervals)
    gpus = sum(status.gpus for status in statuses)
    faults = [*_unread(unread), *_of_nodes(statuses, now, final=final)]
    faults += [*_losses(_OF_COLLECTOR, statuses, " "), *_errors(statuses, "its", "See the job's log, and its role.")]
    yield from unless(faults, f"{counted(count, 'node')}, {counted(gpus, 'GPU')}, every {every}")
    absent = _distinct(status.absent for status in statuses)
    if absent:
        yield ok(f"not measured: {_listed(absent)}")


def grade_recorders(seen: Seen[RecorderStatus]) -> Iterable[CheckResult]:
    statuses, count, unread = seen
    if not count:
        return (ok("no recorder has written its final status"),)
    faults = [*_unread(unread), *_losses(_OF_RECORDER, statuses, ": ")]
    if left_out := list(dict.fromkeys(name for each in statuses for name in each.tensors_left_out)):
        what = f"full tensors of a step were too many, left out: {_listed(left_out)}"
        faults.append(warn(what, "Save fewer collections in full, or their reductions alone."))
    faults += _errors(statuses, "their", "See the job's log.")
    return unless(faults, f"{counted(count, 'recorder')}, nothing lost")


def _unread(unread: Mapping[str, str]) -> Iterator[CheckResult]:
    if unread:
        what = _listed([f"{name}: {why}" for name, why in unread.items()])
        yield warn(f"not read: {what}", "Does the collector's version agree with this one's?")


def _of_nodes(statuses: Sequence[CollectorStatus], now: float, *, final: bool) -> Iterator[CheckResult]:
    silent = [each for each in statuses if each.outcome is None and now - each.updated_at > COLLECTOR_SILENT_S]
    if silent and not final:
        last = max(each.updated_at for each in silent)
        nodes = _listed([each.node for each in silent])
        yield fail(
            f"{counted(len(silent), 'node')} silent for {span(now - last)} or more: {nodes}",
            "Is the node's container running, and may its role write into the bucket?",
        )
    gone = [f"{each.node} {', '.join(each.lost_gpus)}" for each in statuses if each.lost_gpus]
    if gone:
        yield warn(
            f"GPUs that the driver has lost, or does not answer for: {_listed(gone)}",
            "Look for faults in the node's kernel log (dmesg; NVIDIA's are XIDs), and replace the node.",
        )


def _losses(losses: Sequence[_Loss], statuses: Sequence[Status], between: str) -> Iterator[CheckResult]:
    for field, noun, what, advice in losses:
        lost = {f"{each.node} {each.process}".rstrip(): getattr(each, field) for each in statuses}
        lost = {writer: amount for writer, amount in lost.items() if amount}
        if lost:
            writers = _listed([f"{writer}{between}{amount:,}" for writer, amount in lost.items()])
            yield warn(f"{counted(sum(lost.values()), noun)} {what}: {writers}", advice)


def _errors(statuses: Sequence[Status], whose: str, advice: str) -> Iterator[CheckResult]:
    errors = _distinct(each.errors for each in statuses)
    if errors:
        yield warn(f"{whose} newest errors: {_listed(errors)}", advice)


def _distinct(reasons: Iterable[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(f"{what}: {why}" for each in reasons for what, why in each.items()))


def _listed(parts: Sequence[str]) -> str:
    """Return the first three parts, each cut to one short line, and how many more there are."""
    shown = "; ".join(one_line(part)[:_LONGEST] for part in parts[:_NAMED])
    return shown if len(parts) <= _NAMED else f"{shown}; and {len(parts) - _NAMED:,} more"
