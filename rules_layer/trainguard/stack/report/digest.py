"""Digests an item of a full report, one node's UTC day or a job's steps, in as many invocations as it takes."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from trainguard.core.errors import ObjectMissingError, ReportPartError, RunMissingError, TelemetryFormatError
from trainguard.core.ports import ProfileObjects
from trainguard.engine.family import ObjectSource
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.keys import SystemKey
from trainguard.formats.profile.system import MAX_OBJECT_BYTES, Samples, read_system_object
from trainguard.formats.tensors.debug.keys import run_files
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.report.timeline.digest import NodeDigest, read_framework
from trainguard.report.training import read as training
from trainguard.report.training.read import RunPart
from trainguard.stack.report.keys import MAX_LIST_BYTES, Parsed, decode_keys, keys_of_day, parsed_of_day
from trainguard.stack.report.parts import MAX_PARTS, PARTS_TYPE, DigestItem, ReportPart, encode_part

MAX_RUN_PART_BYTES = 32 * 1024 * 1024
_RUN_PART_TYPE = "application/json"


def digest_item(objects: ProfileObjects, item: DigestItem, *, now: float, has_time: Callable[[], bool]) -> DigestItem:
    """Read on from where ``item`` stands, write what was read, and return the item as it stands then.

    A repeat writes the same file. ``has_time`` is asked before each key of a day but the first, so that every
    invocation advances, and after each step and piece of a file of a run. Nothing is read when ``now``, epoch seconds,
    is after the item's ``until``. Raises PortUnavailableError.
    """
    if item.until is not None and now > item.until:
        return msgspec.structs.replace(item, more=False)
    after, done = (_digest_run if item.tensors else _digest_day)(objects, item, has_time)
    more = not done and item.part + 1 < MAX_PARTS
    return msgspec.structs.replace(item, after=after, part=item.part + 1, more=more)


def _digest_day(objects: ProfileObjects, item: DigestItem, has_time: Callable[[], bool]) -> tuple[str, bool]:
    """Read the objects of a node's day one by one into a part; return the last key, and whether it was the day's."""
    source = ObjectSource(objects, item.bucket, item.root, MAX_OBJECT_BYTES)
    digest = NodeDigest(item.node, item.axis)
    unread, after, done = 0, item.after, True
    for key, parsed in keys_of_item(objects, item, _listed_keys(objects, item)):
        if after != item.after and not has_time():
            done = False
            break
        after = key
        if parsed is None:
            continue
        try:
            digest.add(_read(source, key, parsed))
        except (TelemetryFormatError, ObjectMissingError):
            unread += 1
    part = ReportPart(after=item.after, through=after, done=done, unread=unread, digest=digest.encode())
    objects.put(item.bucket, item.place.part(item), encode_part(part), PARTS_TYPE)
    return after, done


def keys_of_item(
    objects: ProfileObjects, item: DigestItem, listed: Sequence[str] | None = None
) -> Iterator[tuple[str, Parsed | None]]:
    """Yield the keys of an item's day behind its own, in order and parsed; ``listed`` are those of the plan.

    Other nodes' keys come with None: to pass them takes longer than a function has.
    """
    if listed is None:
        found = keys_of_day(objects, item.bucket, item.root, item.day, after=item.after)
    else:
        found = ((key, parsed_of_day(key, item.day)) for key in listed if key > item.after)
    for key, parsed in found:
        yield key, parsed if parsed is not None and parsed.node == item.node else None


def _read(source: ObjectSource, key: str, parsed: Parsed) -> Samples | FrameworkEvents:
    """Read one object; raises TelemetryFormatError, ObjectMissingError."""
    if isinstance(parsed, SystemKey):
        return read_system_object(key, source.get(key), node=parsed.node, minute=parsed.minute)
    return read_framework(source, key, parsed)


def _listed_keys(objects: ProfileObjects, item: DigestItem) -> Sequence[str] | None:
    """Return the item's keys as the plan has listed them; None where it has not, or a list cannot be used."""
    if not item.listed:
        return None
    keys: list[str] = []
    for number in range(item.lists):
        name = item.place.keys(item.node, item.day, number)
        try:
            keys.extend(decode_keys(name, objects.get(item.bucket, name, MAX_LIST_BYTES)))
        except (ObjectMissingError, ReportPartError):
            return None
    return keys


def _digest_run(objects: ProfileObjects, item: DigestItem, has_time: Callable[[], bool]) -> tuple[str, bool]:
    """Read on in the complete steps of a run, all of which have one file; return whether that was the last."""
    name = item.place.training
    try:
        part = training.decode_part(objects.get(item.bucket, name, MAX_RUN_PART_BYTES), name)
    except (ObjectMissingError, TelemetryFormatError):
        part = RunPart(done=not item.debug_output)
    if part.done:
        _read_scalars(objects, item, part, has_time)
    else:
        part = _read_tensors(objects, item, part, has_time)
        if part.done and item.scalars and has_time():
            _read_scalars(objects, item, part, has_time)
    objects.put(item.bucket, name, training.encode_part(part), _RUN_PART_TYPE)
    return item.after, part.done and (not item.scalars or training.decode_scalars(part.scalars, name).done)


def _read_tensors(objects: ProfileObjects, item: DigestItem, part: RunPart, has_time: Callable[[], bool]) -> RunPart:
    files = run_files(objects, item.bucket, item.root)
    try:
        return training.read_on(files, item.job, part, confusion=item.confusion, has_time=has_time)
    except RunMissingError as fault:
        part.digest.note_unread(fault)
        part.done = True
        return part


def _read_scalars(objects: ProfileObjects, item: DigestItem, part: RunPart, has_time: Callable[[], bool]) -> None:
    source = ObjectSource(objects, item.bucket, item.root, TRAINING_HEALTH.object_cap_bytes)
    before, names = training.decode_scalars(part.scalars, item.place.training), ScalarNames(item.scalar_names)
    read = training.read_scalars_on(
        source, before, names, until=item.other_runs, segments=item.segments, has_time=has_time
    )
    part.scalars = training.encode_scalars(read)
