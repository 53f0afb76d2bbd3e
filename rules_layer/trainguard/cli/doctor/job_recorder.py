"""What recorders say of themselves: ``<job>/collector/<node>.<process>.recorder.json`` of each training process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.job_case import JobCase
from trainguard.cli.doctor.job_collector import MAX_BYTES, listed
from trainguard.errors import ObjectMissingError
from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects
from trainguard.rules.units import counted

RECORDER = Check("recorder")
MOST_PROCESSES = 256
_SUFFIX = ".recorder.json"


class RecorderStatus(msgspec.Struct, kw_only=True):
    """A recorder's status, as docs/formats.md has it; what a later version adds is passed over."""

    node: str
    process: str
    dropped_events: int = 0
    dropped_objects: int = 0
    skipped_tensor_steps: int = 0
    tensors_left_out: list[str] = []
    errors: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class SeenRecorders:
    """The recorders' statuses of a job: those that were read, how many there are, and why some could not be read."""

    statuses: Sequence[RecorderStatus]
    count: int
    unread: Mapping[str, str]


def read_recorders(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> SeenRecorders:
    """Read the statuses of a job's first 256 processes; raises PortUnavailableError."""
    found = [each for each in objects.list(bucket, root.collector, "") if each.key.endswith(_SUFFIX)]
    statuses, unread = [], {}
    for each in islice(found, MOST_PROCESSES):
        name = each.key.removeprefix(root.collector).removesuffix(_SUFFIX)
        try:
            body = objects.get(bucket, each.key, MAX_BYTES)
            statuses.append(msgspec.json.decode(body, type=RecorderStatus))
        except (msgspec.DecodeError, UnicodeDecodeError, ObjectMissingError) as fault:
            unread[name] = str(fault)
    return SeenRecorders(statuses, len(found), unread)


def check_recorder(case: JobCase) -> Iterator[CheckResult]:
    """Judge what the recorders say of themselves."""
    yield from grade_recorders(read_recorders(case.objects, case.record.bucket, case.root))


def grade_recorders(seen: SeenRecorders) -> Iterator[CheckResult]:
    """Judge statuses; a recorder writes its own at its end."""
    if not seen.count:
        yield RECORDER.ok("no recorder has said how it ended")
        return
    yield from RECORDER.unless([*_faults(seen)], f"{counted(seen.count, 'recorder')}, nothing lost")


def _faults(seen: SeenRecorders) -> Iterator[CheckResult]:
    if seen.unread:
        what = listed([f"{name}: {why}" for name, why in seen.unread.items()])
        yield RECORDER.warn(f"not read: {what}", "Does the collector's version agree with this one's?")
    for field, noun, what, advice in _LOSSES:
        lost = {f"{each.node} {each.process}": getattr(each, field) for each in seen.statuses if getattr(each, field)}
        if lost:
            processes = listed([f"{process}: {amount:,}" for process, amount in lost.items()])
            yield RECORDER.warn(f"{counted(sum(lost.values()), noun)} {what}: {processes}", advice)
    left_out = {name: None for each in seen.statuses for name in each.tensors_left_out}
    if left_out:
        yield RECORDER.warn(
            f"full tensors of a step were too many, left out: {listed(list(left_out))}",
            "Save fewer collections in full, or their reductions alone.",
        )
    errors = {f"{name}: {why}": None for each in seen.statuses for name, why in each.errors.items()}
    if errors:
        yield RECORDER.warn(f"their newest errors: {listed(list(errors))}", "See the job's log.")


_LOSSES = (
    (
        "dropped_events",
        "event",
        "dropped, as no sampler took them or the disk was full",
        "Is the collector's sampler running? Raise TRAINGUARD_SPOOL_MB, or set TRAINGUARD_SPOOL to a disk with space.",
    ),
    (
        "dropped_objects",
        "file",
        "dropped, as the spool was full",
        "Raise TRAINGUARD_SPOOL_MB, or see why S3 was away.",
    ),
    (
        "skipped_tensor_steps",
        "saved step",
        "skipped, as the device had not copied the last ones",
        "Save tensors less often: watch(model, every=…).",
    ),
)
