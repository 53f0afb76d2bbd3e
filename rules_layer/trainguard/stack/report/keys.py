"""Keys of each node on a day, listed once for all nodes, in place of a listing by each digest.

A folder of a profile holds the objects of all nodes, so that each digest's listing would pass those of the others.
Lists have at most `MOST_KEYS` keys of the day, so that a large day takes no more memory. A plan that runs out of time
goes on in its next call; after `MOST_CALLS` calls the other days are left to the digests.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from trainguard.core.errors import ReportPartError, UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot, hour_folder, is_future
from trainguard.core.ports import ProfileObjects
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, parse_key
from trainguard.formats.profile.system import DECODE_ERRORS
from trainguard.stack.report.parts import DAY_S, PARTS_TYPE, RunPlace

# With fewer nodes the lists cost as much as listings that they save.
FEWEST_NODES = 4

# Keys of a day that are held at once: some 300 MB.
MOST_KEYS = 1_000_000

# Calls of the plan; each lists some 3 million keys.
MOST_CALLS = 24

# Of one list, unpacked: what 32 processes write in a day, each an object a minute, takes a tenth.
MAX_LIST_BYTES = 64 * 1024 * 1024

_LOOKS_EVERY = 1_000
_WRITES_AT_ONCE = 10
_HOUR_S = 3_600
_MICROSECONDS = 1_000_000

Parsed = SystemKey | FrameworkKey


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a plan has listed a job's days: first second and number of lists of each, and the last key ``after``."""

    began: float
    calls: int = 0
    lists: tuple[tuple[int, int], ...] = ()
    after: str = ""


@dataclass(frozen=True, slots=True)
class DayLists:
    """Writes the lists of a job's days; ``has_time`` is asked before each page but the first of a call."""

    objects: ProfileObjects
    bucket: str
    root: ProfileRoot
    place: RunPlace
    nodes: Sequence[str]
    has_time: Callable[[], bool]

    def write(self, days: Sequence[int], begun: Listing) -> tuple[Listing, bool]:
        """Write each day's keys for each node; return how far that came, and whether to call again."""
        lists, after = dict(begun.lists), begun.after
        calls = begun.calls + 1
        for day in days:
            if day in lists and not (after and day == begun.lists[-1][0]):
                continue
            lists[day], after = self._write_day(day, lists.get(day, 0), after)
            if after and calls >= MOST_CALLS:
                del lists[day]
                return Listing(began=begun.began, calls=calls, lists=tuple(lists.items())), False
            if after:
                return Listing(began=begun.began, calls=calls, lists=tuple(lists.items()), after=after), True
        return Listing(began=begun.began, calls=calls, lists=tuple(lists.items())), False

    def _write_day(self, day: int, number: int, after: str) -> tuple[int, str]:
        """Write lists from ``number`` on; return how many the day has then, and the last key, or none at its end."""
        keys: dict[str, list[str]] = {node: [] for node in self.nodes}
        held, last = 0, ""
        for passed, (key, parsed) in enumerate(keys_of_day(self.objects, self.bucket, self.root, day, after=after)):
            if passed and passed % _LOOKS_EVERY == 0 and not self.has_time():
                break
            if held >= MOST_KEYS:
                self._put(day, number, keys)
                keys, held, number = {node: [] for node in self.nodes}, 0, number + 1
            if parsed is not None and parsed.node in keys:
                keys[parsed.node].append(key)
                held += 1
            last = key
        else:
            last = ""
        self._put(day, number, keys)
        return number + 1, last

    def _put(self, day: int, number: int, keys: Mapping[str, Sequence[str]]) -> None:
        def put(node: str) -> None:
            self.objects.put(self.bucket, self.place.keys(node, day, number), encode_keys(keys[node]), PARTS_TYPE)

        with ThreadPoolExecutor(_WRITES_AT_ONCE, thread_name_prefix="lists") as writers:
            list(writers.map(put, keys))


def encode_keys(keys: Sequence[str]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(keys))


def decode_keys(name: str, body: bytes) -> list[str]:
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(body, MAX_LIST_BYTES)
        if not unpacker.eof:
            raise ReportPartError(name, f"more than {MAX_LIST_BYTES:,} bytes, or cut off")
        return msgspec.msgpack.decode(plain, type=list[str])
    except (zlib.error, *DECODE_ERRORS) as fault:
        raise ReportPartError(name, str(fault)) from fault


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
            parsed = parsed_of_day(listed.key, day)
            future = parsed is not None and is_future(parsed.named_at, listed.last_modified)
            yield listed.key, None if future else parsed


def parsed_of_day(key: str, day: int) -> Parsed | None:
    try:
        parsed = parse_key(key)
    except UnreadableKeyError:
        return None  # its own message counted and named it
    if isinstance(parsed, EndKey):
        return None
    at_s = parsed.minute if isinstance(parsed, SystemKey) else parsed.end_us // _MICROSECONDS
    return parsed if 0 <= at_s - day < DAY_S else None
