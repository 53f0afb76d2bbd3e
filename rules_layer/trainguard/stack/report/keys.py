"""Keys of each node on a day, listed once for all nodes, in place of a listing by each digest.

A folder of a profile holds the objects of all nodes, so that each digest's listing would pass those of the others.
Lists have at most `MOST_KEYS` keys of the day, so that a large day takes no more memory. A plan that runs out of time
goes on in its next call; after `MOST_CALLS` calls the other days are left to the digests.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from trainguard.core.errors import ReportPartError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ReportObjects
from trainguard.formats.profile.system import DECODE_ERRORS
from trainguard.stack.report.digest import keys_of_day
from trainguard.stack.report.parts import PARTS_TYPE, RunPlace

FEWEST_NODES = 4
"""With fewer nodes the lists cost as much as listings that they save."""

MOST_KEYS = 1_000_000
"""Keys of a day that are held at once: some 300 MB."""

MOST_CALLS = 24
"""Calls of the plan; each lists some 3 million keys."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""Of one list, unpacked: what 32 processes write in a day, each an object a minute, takes a tenth."""

_LOOKS_EVERY = 1_000
_WRITES_AT_ONCE = 10


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a plan has listed a job's days: first second and number of lists of each, and the last key ``after``."""

    began: float
    calls: int = 0
    lists: tuple[tuple[int, int], ...] = ()
    after: str = ""


@dataclass(frozen=True, slots=True)
class DayLists:
    """Writes the lists of a job's days; ``has_time`` is asked before each page but the first of a call."""

    objects: ReportObjects
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
    """Return keys, in order, as bytes."""
    return zlib.compress(msgspec.msgpack.encode(keys))


def decode_keys(name: str, body: bytes) -> list[str]:
    """Read keys back; raises ReportPartError."""
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(body, MAX_LIST_BYTES)
        if not unpacker.eof:
            raise ReportPartError(name, f"more than {MAX_LIST_BYTES:,} bytes, or cut off")
        return msgspec.msgpack.decode(plain, type=list[str])
    except (zlib.error, *DECODE_ERRORS) as fault:
        raise ReportPartError(name, str(fault)) from fault
