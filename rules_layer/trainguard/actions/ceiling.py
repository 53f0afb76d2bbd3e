"""The ceiling on stops: how many within an hour, whatever jobs and rules ask for them.

A rule that errs, or a bucket whose profiles are all wrong, must not stop everything that trains in an account.
"""

from collections.abc import Mapping
from dataclasses import dataclass

HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop that was granted: of which job, and when (epoch seconds)."""

    job: str
    at: float


def admit(stops: Mapping[str, Stop], fire_id: str, job: str, *, now: float, limit: int) -> dict[str, Stop] | None:
    """Return the stops of the last hour with that of a fire among them; None when ``limit`` leaves no room for it.

    Parameters
    ----------
    stops : Mapping
        The stops granted so far, by fire.
    fire_id, job : str
    now : float
        Epoch seconds; what was granted an hour ago or longer no longer counts.
    limit : int
        How many stops an hour may have.
    """
    recent = {each: stop for each, stop in stops.items() if now - stop.at < HOUR_S}
    if fire_id in recent:
        return recent
    if len(recent) >= limit:
        return None
    return {**recent, fire_id: Stop(job, now)}
