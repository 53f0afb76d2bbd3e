"""Times in what leaves the engine: ISO 8601, in UTC. Light to import: who decides or tells reads no rules."""

from datetime import UTC, datetime


def iso_time(epoch_s: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
