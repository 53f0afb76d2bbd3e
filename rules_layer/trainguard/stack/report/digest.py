"""Digests one node's UTC day, in as many invocations as it takes."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from trainguard.core.errors import ObjectMissingError, ReportPartError, TelemetryFormatError
from trainguard.core.ports import ProfileObjects
from trainguard.formats.profile.system import Samples
from trainguard.report.timeline.digest import NodeDigest
from trainguard.stack.report.keys import MAX_LIST_BYTES, decode_keys
from trainguard.stack.report.parts import MAX_PARTS, PARTS_TYPE, DigestItem, Part, encode_part
from trainguard.stack.report.read import DayObjects


class DayDigester:
    """Reads the objects of an item one by one into a part; ``has_time`` is asked before each key."""

    def __init__(self, *, objects: ProfileObjects, has_time: Callable[[], bool]) -> None:
        self._objects = objects
        self._has_time = has_time

    def digest(self, item: DigestItem, *, now: float) -> DigestItem:
        """Read on from where ``item`` stands, write the part, and return the item as it stands then.

        A repeat replaces the part. At least one key is passed, so that every invocation advances. Nothing is read when
        ``now``, epoch seconds, is after the item's ``until``. Raises PortUnavailableError.
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
