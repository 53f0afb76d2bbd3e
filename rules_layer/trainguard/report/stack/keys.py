"""Which objects each node wrote on a day, listed once for all nodes: what a digest reads in place of a listing.

A folder of a profile holds the objects of all nodes side by side, so that a listing of one's own passes those of the
others. Where that costs more than the lists do, the plan lists a day once and leaves a list for each node. A day that
is too large, or for which there is no time left, is left to the digests.
"""

import zlib
from collections.abc import Callable, Sequence

import msgspec

from trainguard.errors import ReportPartError
from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects
from trainguard.report.stack.parts import PARTS_TYPE, RunPlace
from trainguard.report.stack.read import keys_of_day
from trainguard.telemetry.unpack import UNREADABLE

FEWEST_NODES = 4
"""With fewer nodes the lists cost as much as listings that they save."""

MOST_KEYS = 1_000_000
"""Keys of a day that are held at once: some 300 MB."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""Of a node's keys of a day, unpacked: what 32 processes write in a day, each an object a minute, takes a tenth."""

_LOOKS_EVERY = 1_000


def write_keys(
    objects: ProfileObjects,
    bucket: str,
    root: ProfileRoot,
    place: RunPlace,
    *,
    nodes: Sequence[str],
    day: int,
    has_time: Callable[[], bool],
) -> bool:
    """Leave the keys of a day for each node; return whether that was done.

    Parameters
    ----------
    day : int
        Its first second, epoch seconds.
    has_time : callable
        Asked before each page of keys.
    """
    keys: dict[str, list[str]] = {node: [] for node in nodes}
    for passed, (key, parsed) in enumerate(keys_of_day(objects, bucket, root, day)):
        if passed >= MOST_KEYS or (passed % _LOOKS_EVERY == 0 and not has_time()):
            return False
        if parsed is not None and parsed.node in keys:
            keys[parsed.node].append(key)
    for node, of_node in keys.items():
        objects.put(bucket, place.keys(node, day), encode_keys(of_node), PARTS_TYPE)
    return True


def encode_keys(keys: Sequence[str]) -> bytes:
    """Return keys, in order, as bytes."""
    return zlib.compress(msgspec.msgpack.encode(keys))


def decode_keys(name: str, body: bytes) -> list[str]:
    """Read keys back; raises ReportPartError when they are none."""
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(body, MAX_LIST_BYTES)
        if not unpacker.eof:
            raise ReportPartError(name, f"more than {MAX_LIST_BYTES:,} bytes, or cut off")
        return msgspec.msgpack.decode(plain, type=list[str])
    except (zlib.error, *UNREADABLE) as fault:
        raise ReportPartError(name, str(fault)) from fault
