"""A job's objects as the engine sees them: bodies, and listings in order that only hold what the grammar knows."""

from collections.abc import Iterable, Iterator, Mapping

from trainguard.errors import ForeignKeyError
from trainguard.ports import ProfileObjects
from trainguard.telemetry.keys import (
    FrameworkKey,
    ProfileKey,
    ProfileRoot,
    SystemKey,
    hour_folder,
    parse_key,
)
from trainguard.telemetry.unpack import MAX_OBJECT_BYTES

FUTURE_S = 3_600.0
"""A name this far ahead of its object's LastModified is no time: it must not make every real minute late."""

_MICROSECONDS = 1_000_000


def is_future(parsed: ProfileKey, last_modified: float) -> bool:
    """Whether an object's name lies more than an hour ahead of the time at which S3 got it (epoch seconds)."""
    if isinstance(parsed, SystemKey):
        return parsed.minute > last_modified + FUTURE_S
    return isinstance(parsed, FrameworkKey) and parsed.end_us / _MICROSECONDS > last_modified + FUTURE_S


class ProfileListing:
    """The objects of one node."""

    def __init__(self, *, objects: ProfileObjects, bucket: str, root: ProfileRoot, node: str) -> None:
        self._objects = objects
        self._bucket = bucket
        self._root = root
        self._node = node

    def get(self, key: str) -> bytes:
        """Return an object's bytes, one more than the limit at most."""
        return self._objects.get(self._bucket, key, MAX_OBJECT_BYTES)

    def minutes(self, cursor: int | None) -> Iterator[tuple[str, int, float]]:
        """Yield (key, minute, last_modified) of the node's minutes after ``cursor``, in order."""
        after = "" if cursor is None else f"{self._root.system}{hour_folder(cursor)}/{cursor:010d}."
        for key, parsed, last_modified in self._listed(self._root.system, after):
            if isinstance(parsed, SystemKey) and parsed.node == self._node:
                yield key, parsed.minute, last_modified

    def framework(self, after_us: int | None) -> Iterator[tuple[str, FrameworkKey, float]]:
        """Yield (key, parsed, last_modified) of the node's framework objects from ``after_us`` on, in order."""
        after = ""
        if after_us is not None:
            after = f"{self._root.framework}{hour_folder(after_us // _MICROSECONDS)}/{after_us:016d}"
        for key, parsed, last_modified in self._listed(self._root.framework, after):
            if isinstance(parsed, FrameworkKey) and parsed.node == self._node:
                yield key, parsed, last_modified

    def parse_framework(self, keys: Iterable[str] | Mapping[str, int]) -> Iterator[tuple[str, FrameworkKey]]:
        """Yield stored keys with what they say."""
        for key in keys:
            parsed = parse_key(key)
            if isinstance(parsed, FrameworkKey):
                yield key, parsed

    def _listed(self, prefix: str, after: str) -> Iterator[tuple[str, ProfileKey, float]]:
        for listed in self._objects.list(self._bucket, prefix, after):
            try:
                parsed = parse_key(listed.key)
            except ForeignKeyError:
                continue  # its own doorbell counts and names it
            if not is_future(parsed, listed.last_modified):
                yield listed.key, parsed, listed.last_modified
