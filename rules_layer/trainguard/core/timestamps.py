"""Times in what leaves the engine: ISO 8601, in UTC. Light to import."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_YEAR = 9998


def iso_time(epoch_s: float) -> str:
    """Return a time as ``YYYY-MM-DDThh:mm:ss.mmmZ``, rounded to the millisecond: text order is time order."""
    moment = EPOCH + timedelta(milliseconds=round(epoch_s * 1000))
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class TimedEvent(msgspec.Struct, frozen=True):
    """An event with its time: that of a schedule says which week is over."""

    time: Annotated[datetime, msgspec.Meta(tz=True)]

    def __post_init__(self) -> None:
        """Raise ValueError for a year in which the week before an event, or an object's key, has no name."""
        if not EPOCH.year <= self.time.year <= LAST_YEAR:
            raise ValueError(f"the year is {self.time.year}, expected {EPOCH.year} to {LAST_YEAR}")


def epoch_of(iso: str) -> float:
    """Return the epoch seconds of what `iso_time` wrote; raises ValueError for anything but ISO 8601."""
    moment = datetime.fromisoformat(iso)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


_FIRST_S = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()
_LAST_S = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - EPOCH).total_seconds()


def iso_from_epoch(epoch_s: float) -> str:
    """Write as `iso_time` does; a time outside the calendar becomes its first or last millisecond."""
    return iso_time(min(max(epoch_s, _FIRST_S), _LAST_S))


def epoch_from_iso(text: str) -> float:
    """Read an ISO-8601 time with an offset as epoch seconds; raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset, expected for example 2026-01-31T12:00:00.000Z")
    return (moment - EPOCH).total_seconds()


def to_millisecond(epoch_s: float | None) -> float | None:
    """Return the time that comes back when ``epoch_s`` is stored and read again."""
    return None if epoch_s is None else epoch_from_iso(iso_from_epoch(epoch_s))
