"""The objects of one node's UTC day by key; each belongs to one day by the time in its name."""

from collections.abc import Iterator, Sequence

from trainguard.core.errors import ForeignKeyError
from trainguard.core.layout import EndKey, ProfileRoot, hour_folder, is_future
from trainguard.core.ports import ListedObject, ProfileObjects
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, parse_key
from trainguard.formats.profile.system import Samples, read_system_object
from trainguard.report.timeline.digest import read_framework
from trainguard.stack.report.parts import DAY_S, DigestItem

_HOUR_S = 3_600
_MICROSECONDS = 1_000_000

Parsed = SystemKey | FrameworkKey


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
        for key, parsed in self._all():
            yield key, parsed if parsed is not None and parsed.node == self._item.node else None

    def read(self, key: str, parsed: Parsed) -> Samples | FrameworkEvents:
        """Read one object; raises TelemetryFormatError, ObjectMissingError."""
        if isinstance(parsed, SystemKey):
            return read_system_object(key, self._listing.get(key), node=parsed.node, minute=parsed.minute)
        return read_framework(self._listing, key, parsed)

    def _all(self) -> Iterator[tuple[str, Parsed | None]]:
        item = self._item
        if self._keys is None:
            yield from keys_of_day(self._objects, item.bucket, self._root, item.day, after=item.after)
            return
        for key in self._keys:
            if key > item.after:
                yield key, _parsed(key, item.day)


def keys_of_day(
    objects: ProfileObjects, bucket: str, root: ProfileRoot, day: int, *, after: str = ""
) -> Iterator[tuple[str, Parsed | None]]:
    """Yield the keys of a day's folders after ``after``, parsed, of all nodes; None for foreign or other days' ones."""
    # Timelines may lie in the folder of the hour before; the folders of TensorFlow's traces are in local time.
    for prefix, slack_s in ((root.framework, _HOUR_S), (root.tensorflow, DAY_S), (root.system, _HOUR_S)):
        first = hour_folder(max(day - slack_s, 0))
        last = hour_folder(day + DAY_S - 1 + slack_s)
        for listed in objects.list(bucket, prefix, max(after, f"{prefix}{first}")):
            if listed.key.removeprefix(prefix).partition("/")[0] > last:
                break
            yield listed.key, _of_day(listed, day)


def _of_day(listed: ListedObject, day: int) -> Parsed | None:
    parsed = _parsed(listed.key, day)
    return None if parsed is None or is_future(parsed.named_at, listed.last_modified) else parsed


def _parsed(key: str, day: int) -> Parsed | None:
    try:
        parsed = parse_key(key)
    except ForeignKeyError:
        return None  # its own message counted and named it
    if isinstance(parsed, EndKey):
        return None
    at_s = parsed.minute if isinstance(parsed, SystemKey) else parsed.end_us // _MICROSECONDS
    return parsed if 0 <= at_s - day < DAY_S else None
