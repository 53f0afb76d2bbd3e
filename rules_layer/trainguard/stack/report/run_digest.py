"""Digests a job's debug-output and files of scalars, in as many invocations as it takes: one file for the whole run."""

from collections.abc import Callable

import msgspec

from trainguard.core.errors import ObjectMissingError, RunMissingError, TelemetryFormatError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.engine.family import ObjectSource
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.formats.tensors.debug.keys import run_files
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.report.training.read import (
    RunPart,
    decode_part,
    decode_scalars,
    encode_part,
    encode_scalars,
    read_on,
    read_scalars_on,
)
from trainguard.stack.report.parts import MAX_PARTS, DigestItem

MAX_RUN_PART_BYTES = 32 * 1024 * 1024
PART_TYPE = "application/json"


class RunDigester:
    """Digests the complete steps of a run; ``has_time`` is asked after each step and piece of a file."""

    def __init__(self, *, objects: ProfileObjects, has_time: Callable[[], bool]) -> None:
        self._objects = objects
        self._has_time = has_time

    def digest(self, item: DigestItem, *, now: float) -> DigestItem:
        """Read on, write the run's file, and return the item; nothing is read after its ``until``."""
        if item.until is not None and now > item.until:
            return msgspec.structs.replace(item, more=False)
        part = self._before(item)
        if part.done:
            self._read_scalars(item, part)
        else:
            part = self._read_tensors(item, part)
            if part.done and item.scalars and self._has_time():
                self._read_scalars(item, part)
        self._objects.put(item.bucket, item.place.training, encode_part(part), PART_TYPE)
        done = part.done and (not item.scalars or decode_scalars(part.scalars, item.place.training).done)
        more = not done and item.part + 1 < MAX_PARTS
        return msgspec.structs.replace(item, part=item.part + 1, more=more)

    def _read_tensors(self, item: DigestItem, part: RunPart) -> RunPart:
        files = run_files(self._objects, item.bucket, ProfileRoot.of_job(item.prefix, item.job))
        try:
            return read_on(files, item.job, part, confusion=item.confusion, has_time=self._has_time)
        except RunMissingError as fault:
            part.digest.note_unread(fault)
            part.done = True
            return part

    def _read_scalars(self, item: DigestItem, part: RunPart) -> None:
        root = ProfileRoot.of_job(item.prefix, item.job)
        source = ObjectSource(self._objects, item.bucket, root, TRAINING_HEALTH.object_cap_bytes)
        before, names = decode_scalars(part.scalars, item.place.training), ScalarNames(item.scalar_names)
        part.scalars = encode_scalars(
            read_scalars_on(source, before, names, until=item.other_runs, has_time=self._has_time)
        )

    def _before(self, item: DigestItem) -> RunPart:
        """Return the result of earlier invocations; an empty part at the beginning, or where it cannot be read."""
        name = item.place.training
        try:
            return decode_part(self._objects.get(item.bucket, name, MAX_RUN_PART_BYTES), name)
        except (ObjectMissingError, TelemetryFormatError):
            return RunPart(done=not item.debug_output)
