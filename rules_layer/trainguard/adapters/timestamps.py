"""Times as a person reads them in the console and as DynamoDB can compare them: ISO-8601 UTC, fixed width."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
_LAST_S = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH).total_seconds()


def iso_from_epoch(epoch_s: float) -> str:
    """Write epoch seconds as ``YYYY-MM-DDThh:mm:ss.mmmZ``, rounded to the millisecond.

    All results have the same width, so text order is time order. Times outside the calendar become its first or last
    millisecond.
    """
    milliseconds = round(min(max(epoch_s, _FIRST_S), _LAST_S) * 1000)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def epoch_from_iso(text: str) -> float:
    """Read an ISO-8601 time with an offset as epoch seconds; raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset, expected for example 2026-01-31T12:00:00.000Z")
    return (moment - _EPOCH).total_seconds()


def to_millisecond(epoch_s: float | None) -> float | None:
    """Return the time that comes back when ``epoch_s`` is stored and read again."""
    return None if epoch_s is None else epoch_from_iso(iso_from_epoch(epoch_s))
