"""How far a job's source is read: an object beside the profile, written after what was read."""

from typing import Annotated, Literal

import msgspec

from trainguard.errors import ObjectMissingError
from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects

FOLDER = "live-source"
MAX_BYTES = 256 * 1024
_Count = Annotated[int, msgspec.Meta(ge=0)]


class PollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status object ``<job>/live-source/<name>.json``; times in epoch seconds.

    Attributes
    ----------
    source : str
        What is read, as the job's setting names it, or a run file.
    through : float
        All before this time is read and written; later data are not.
    polled_at : float
        When it was last asked.
    events_file, events_bytes : int
        The number of the last file of scalars, and how long it is: what lies behind was not noted, and is written anew.
    minutes, scalars : int
        Objects of system metrics that were written, and rows of scalars.
    counted : dict of str to int
        The next step of scalars that are logged without one, by name.
    bad : dict of str to int
        How many parts could not be read, by the reason.
    fault : str
        Why the last poll failed; empty when it did not.
    failed_since : float or None
        When the first of the polls failed that have failed since.
    ended : bool
        Whether the source is read to the job's end.
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
    """Return the status at a key; None where there is none, or none that can be read.

    Raises
    ------
    PortUnavailableError
        When S3 does not answer.
    """
    try:
        return msgspec.json.decode(objects.get(bucket, key, MAX_BYTES), type=PollStatus)
    except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_status(objects: ProfileObjects, bucket: str, key: str, status: PollStatus) -> None:
    """Write a status; raises PortUnavailableError."""
    objects.put(bucket, key, msgspec.json.encode(status), "application/json")
