"""How far a job's source is read: an object beside the profile, written after what was read."""

from typing import Annotated, Literal

import msgspec

from trainguard.core.errors import ObjectMissingError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ProfileObjects

FOLDER = "live-source"
MAX_BYTES = 256 * 1024
_Count = Annotated[int, msgspec.Meta(ge=0)]


class PollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``<job>/live-source/<name>.json``: all before ``through`` is read and written; times in epoch seconds.

    ``events_bytes`` is the length of the last file of scalars: what lies behind is rewritten. ``counted`` is the next
    step of scalars logged without one, by name, ``bad`` counts unreadable parts by reason. ``fault`` is empty without
    one, ``failed_since`` the first failure without a success since.
    """

    schema_version: Literal[1] = 1
    source: str
    through: float
    polled_at: float = 0.0
    events_file: _Count = 0
    events_bytes: _Count = 0
    minutes: _Count = 0
    scalars: _Count = 0
    counted: dict[str, int] = msgspec.field(default_factory=dict)
    bad: dict[str, int] = msgspec.field(default_factory=dict)
    fault: str = ""
    failed_since: float | None = None
    ended: bool = False


def status_key(root: ProfileRoot, name: str) -> str:
    """Return the key of a status object."""
    return f"{root.folder}{FOLDER}/{name}.json"


def read_status(objects: ProfileObjects, bucket: str, key: str) -> PollStatus | None:
    """Return the status at a key; None without a readable one. Raises PortUnavailableError."""
    try:
        return msgspec.json.decode(objects.get(bucket, key, MAX_BYTES), type=PollStatus)
    except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_status(objects: ProfileObjects, bucket: str, key: str, status: PollStatus) -> None:
    """Write a status; raises PortUnavailableError."""
    objects.put(bucket, key, msgspec.json.encode(status), "application/json")
