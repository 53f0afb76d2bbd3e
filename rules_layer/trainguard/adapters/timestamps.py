"""Times as a person reads them in the console and as DynamoDB can compare them: ISO-8601 UTC, fixed width."""

from datetime import UTC, datetime

from trainguard.timestamps import EPOCH, iso_time

_FIRST_S = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()
_LAST_S = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - EPOCH).total_seconds()


def iso_from_epoch(epoch_s: float) -> str:
    """Write epoch seconds as ``YYYY-MM-DDThh:mm:ss.mmmZ``, rounded to the millisecond.

    All results have the same width, so text order is time order. Times outside the calendar become its first or last
    millisecond.
    """
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
