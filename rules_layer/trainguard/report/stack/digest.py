"""Digests one node's UTC day, in as many invocations as it takes."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from trainguard.errors import ObjectMissingError, ReportPartError, TelemetryFormatError
from trainguard.ports import ProfileObjects
from trainguard.report.stack.keys import MAX_LIST_BYTES, decode_keys
from trainguard.report.stack.parts import MAX_PARTS, PARTS_TYPE, DigestItem, Part, encode_part
from trainguard.report.stack.read import DayObjects
from trainguard.telemetry.system import Samples
from trainguard.timeline.digest import NodeDigest


class DayDigester:
    """Reads the objects of an item one by one, and leaves what they were like as a part.

    Parameters
    ----------
    objects : ProfileObjects
    has_time : callable
        Asked before each key that is listed; False leaves the rest to the next invocation.
    """

    def __init__(self, *, objects: ProfileObjects, has_time: Callable[[], bool]) -> None:
        self._objects = objects
        self._has_time = has_time

    def digest(self, item: DigestItem, *, now: float) -> DigestItem:
        """Read on from where ``item`` stands, write the part, and return the item as it stands then.

        A repeat of the same item replaces the part. At least one key is passed, so that every invocation gets on. When
        ``now``, epoch seconds, is after the item's ``until``, nothing is read. Raises PortUnavailableError when S3 did
        not answer.
        """
        if item.until is not None and now > item.until:
            return msgspec.structs.replace(item, more=False)
        day = DayObjects(self._objects, item, self._keys(item))
        digest = NodeDigest(item.node, item.axis)
        seen: Counter[str] = Counter()
        after, done = item.after, True
        for key, parsed in day.listed():
            if after != item.after and not self._has_time():
                done = False
                break
            after = key
            if parsed is None:
                continue
            try:
                read = day.read(key, parsed)
            except (TelemetryFormatError, ObjectMissingError):
                seen["unread"] += 1
            else:
                seen["read"] += 1
                if isinstance(read, Samples):
                    digest.add_samples(read)
                else:
                    digest.add_events(read)
        part = Part(after=item.after, through=after, done=done, unread=seen["unread"], digest=digest.encode())
        self._objects.put(item.bucket, item.place.part(item), encode_part(part), PARTS_TYPE)
        more = not done and item.part + 1 < MAX_PARTS
        return msgspec.structs.replace(item, after=after, part=item.part + 1, more=more)

    def _keys(self, item: DigestItem) -> Sequence[str] | None:
        """Return the item's keys as the plan has listed them; None where it has not, or a list cannot be used."""
        if not item.listed:
            return None
        keys: list[str] = []
        for number in range(item.lists):
            name = item.place.keys(item.node, item.day, number)
            try:
                keys.extend(decode_keys(name, self._objects.get(item.bucket, name, MAX_LIST_BYTES)))
            except (ObjectMissingError, ReportPartError):
                return None
        return keys
