"""Digests one node's UTC day, in as many invocations as it takes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from trainguard.core.errors import ObjectMissingError, ReportPartError, TelemetryFormatError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.keys import SystemKey
from trainguard.formats.profile.system import Samples, read_system_object
from trainguard.report.timeline.digest import NodeDigest, read_framework
from trainguard.stack.report.keys import MAX_LIST_BYTES, Parsed, decode_keys, keys_of_day, parsed_of_day
from trainguard.stack.report.parts import MAX_PARTS, PARTS_TYPE, DigestItem, Part, encode_part


class DayObjects:
    """What a node wrote on a day, after the item's key; ``keys`` are those that were listed before."""

    def __init__(self, objects: ProfileObjects, item: DigestItem, keys: Sequence[str] | None = None) -> None:
        self._root = ProfileRoot.of_job(item.prefix, item.job)
        self._objects = objects
        self._item = item
        self._keys = keys
        self._listing = ProfileListing(objects=objects, bucket=item.bucket, root=self._root, node=item.node)

    def listed(self) -> Iterator[tuple[str, Parsed | None]]:
        """Yield keys in order, parsed; None for other items, to pass which takes longer than a function has."""
        item = self._item
        if self._keys is None:
            found = keys_of_day(self._objects, item.bucket, self._root, item.day, after=item.after)
        else:
            found = ((key, parsed_of_day(key, item.day)) for key in self._keys if key > item.after)
        for key, parsed in found:
            yield key, parsed if parsed is not None and parsed.node == item.node else None

    def read(self, key: str, parsed: Parsed) -> Samples | FrameworkEvents:
        """Read one object; raises TelemetryFormatError, ObjectMissingError."""
        if isinstance(parsed, SystemKey):
            return read_system_object(key, self._listing.get(key), node=parsed.node, minute=parsed.minute)
        return read_framework(self._listing, key, parsed)


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
