"""Digests a job's debug-output, in as many invocations as it takes: one file for the whole run, read on from there."""

from collections.abc import Callable

import msgspec

from trainguard.errors import ObjectMissingError, RunMissingError, TelemetryFormatError
from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects
from trainguard.report.stack.parts import MAX_PARTS, DigestItem
from trainguard.report.training.read import RunPart, decode_part, encode_part, read_on
from trainguard.tensors.debug.keys import run_files

MAX_RUN_PART_BYTES = 32 * 1024 * 1024
PART_TYPE = "application/json"


class RunDigester:
    """Reads the complete steps of a run, and leaves what they were like.

    Parameters
    ----------
    objects : ProfileObjects
    has_time : callable
        Asked after each step; False leaves the rest to the next invocation.
    """

    def __init__(self, *, objects: ProfileObjects, has_time: Callable[[], bool]) -> None:
        self._objects = objects
        self._has_time = has_time

    def digest(self, item: DigestItem, *, now: float) -> DigestItem:
        """Read on from where the run's file stands, write it, and return the item as it stands then.

        Nothing is read when ``now``, epoch seconds, is after the item's ``until``. Raises PortUnavailableError when S3
        did not answer.
        """
        if item.until is not None and now > item.until:
            return msgspec.structs.replace(item, more=False)
        files = run_files(self._objects, item.bucket, ProfileRoot.of_job(item.prefix, item.job))
        part = self._before(item)
        try:
            part = read_on(files, item.job, part, has_time=self._has_time)
        except RunMissingError as fault:
            part.digest.note_unread(fault)
            part.done = True
        self._objects.put(item.bucket, item.place.training, encode_part(part), PART_TYPE)
        more = not part.done and item.part + 1 < MAX_PARTS
        return msgspec.structs.replace(item, part=item.part + 1, more=more)

    def _before(self, item: DigestItem) -> RunPart:
        """Return what invocations before have left; an empty part at the beginning, or where it cannot be read."""
        name = item.place.training
        try:
            return decode_part(self._objects.get(item.bucket, name, MAX_RUN_PART_BYTES), name)
        except (ObjectMissingError, TelemetryFormatError):
            return RunPart()
