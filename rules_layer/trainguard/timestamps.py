"""Times in what leaves the engine: ISO 8601, in UTC. Light to import: who decides or tells reads no rules."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_YEAR = 9998


def iso_time(epoch_s: float) -> str:
    """Return a time as ``YYYY-MM-DDThh:mm:ss.mmmZ``, rounded to the millisecond.

    All results have the same width, so text order is time order; the tables hold times in the same form, and a fire is
    compared with what a row says of the same moment.
    """
    moment = EPOCH + timedelta(milliseconds=round(epoch_s * 1000))
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def check_event_time(moment: datetime) -> None:
    """Raise ValueError for a time that no event can have: the week before it, or the key of an object, has no name."""
    if not EPOCH.year <= moment.year <= LAST_YEAR:
        raise ValueError(f"the year is {moment.year}, expected {EPOCH.year} to {LAST_YEAR}")


def epoch_of(iso: str) -> float:
    """Return the epoch seconds of what `iso_time` wrote; raises ValueError for what is no ISO 8601 time."""
    moment = datetime.fromisoformat(iso)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
