"""The objects of one node's UTC day, in the order of their keys.

An object belongs to the day of the time in its name: the end of a minute or of a timeline. So the days of a node share
no object, whatever its events say.
"""

from collections.abc import Iterator

from trainguard.engine.listing import ProfileListing, is_future
from trainguard.errors import ForeignKeyError
from trainguard.ports import ListedObject, ProfileObjects
from trainguard.report.stack.parts import DAY_S, DigestItem
from trainguard.telemetry.framework import FrameworkEvents
from trainguard.telemetry.keys import EndKey, FrameworkKey, ProfileRoot, SystemKey, hour_folder, parse_key
from trainguard.telemetry.system import Samples, read_system_object
from trainguard.timeline.objects import read_framework

_HOUR_S = 3_600
_MICROSECONDS = 1_000_000


class DayObjects:
    """What a node wrote on a day.

    Parameters
    ----------
    objects : ProfileObjects
    item : DigestItem
        The node and day, and after which key to begin.
    """

    def __init__(self, objects: ProfileObjects, item: DigestItem) -> None:
        root = ProfileRoot(item.prefix, item.job)
        self._objects = objects
        self._item = item
        self._listing = ProfileListing(objects=objects, bucket=item.bucket, root=root, node=item.node)
        # Timelines may lie in the folder of the hour before; the folders of TensorFlow's traces are in local time.
        self._places = ((root.framework, _HOUR_S), (root.tensorflow, DAY_S), (root.system, _HOUR_S))

    def listed(self) -> Iterator[tuple[str, SystemKey | FrameworkKey | None]]:
        """Yield keys in order: timelines, traces, minutes; with what they say, or None where that is not of this day.

        The others are yielded too, because to pass those of a thousand nodes takes longer than a function has.
        """
        for prefix, slack_s in self._places:
            yield from self._keys_under(prefix, slack_s)

    def read(self, key: str, parsed: SystemKey | FrameworkKey) -> Samples | FrameworkEvents:
        """Read one object.

        Raises
        ------
        TelemetryFormatError
            When nothing can be read of it.
        ObjectMissingError
            When it is gone.
        """
        if isinstance(parsed, SystemKey):
            return read_system_object(key, self._listing.get(key), node=parsed.node, minute=parsed.minute)
        return read_framework(self._listing, key, parsed)

    def _keys_under(self, prefix: str, slack_s: int) -> Iterator[tuple[str, SystemKey | FrameworkKey | None]]:
        first = hour_folder(max(self._item.day - slack_s, 0))
        last = hour_folder(self._item.day + DAY_S - 1 + slack_s)
        begin = max(self._item.after, f"{prefix}{first}")
        for listed in self._objects.list(self._item.bucket, prefix, begin):
            if listed.key.removeprefix(prefix).partition("/")[0] > last:
                return
            yield listed.key, self._ours(listed)

    def _ours(self, listed: ListedObject) -> SystemKey | FrameworkKey | None:
        try:
            parsed = parse_key(listed.key)
        except ForeignKeyError:
            return None  # its own doorbell counted and named it
        if isinstance(parsed, EndKey) or is_future(parsed, listed.last_modified) or not self._is_of_day(parsed):
            return None
        return parsed

    def _is_of_day(self, parsed: SystemKey | FrameworkKey) -> bool:
        at_s = parsed.minute if isinstance(parsed, SystemKey) else parsed.end_us // _MICROSECONDS
        return parsed.node == self._item.node and 0 <= at_s - self._item.day < DAY_S
