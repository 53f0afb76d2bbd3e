"""Which status objects are of this attempt at a job, and not of an earlier one or of a node that was replaced."""

from collections.abc import Iterable, Mapping
from typing import Any, Optional

GONE_S = 180.0
"""A node that has written no status object for so long, while another was started, was replaced."""

Status = Mapping[str, Any]


def of_this_attempt(own: Status, others: Iterable[Status], now: float) -> "Optional[list[Status]]":
    """Return the other nodes' status objects that count for the end of this attempt; None when a later one runs.

    Attempts have numbers on AWS Batch and Slurm. Elsewhere a node belongs to an earlier attempt, or was replaced, when
    a node of this one was started after its last update; one that has not said how it ended must have been silent for
    GONE_S as well. A job of one node has no other node in the same attempt.

    Parameters
    ----------
    own : mapping
        ``started_at`` (epoch seconds), ``attempt`` and ``nodes`` of the node that ends, as in its status object.
    others : iterable of mapping
        Status objects.
    now : float
        Epoch seconds.
    """
    started, attempt, is_alone = _time(own, "started_at"), own.get("attempt"), own.get("nodes") == 1
    same: list[Status] = []
    unnumbered: list[Status] = []
    for each in others:
        if attempt is not None and each.get("attempt") is not None:
            if each["attempt"] > attempt:
                return None
            if each["attempt"] == attempt:
                same.append(each)
        elif is_alone:
            if _time(each, "started_at") > started:
                return None
        else:
            unnumbered.append(each)
    newest = max([started, *(_time(each, "started_at") for each in (*same, *unnumbered))])
    return same + [each for each in unnumbered if not _is_past(each, newest, now)]


def _is_past(status: Status, newest_start: float, now: float) -> bool:
    updated = _time(status, "updated_at")
    return updated < newest_start and ("outcome" in status or now - updated >= GONE_S)


def _time(status: Status, name: str) -> float:
    found = status.get(name)
    return float(found) if isinstance(found, (int, float)) else 0.0
