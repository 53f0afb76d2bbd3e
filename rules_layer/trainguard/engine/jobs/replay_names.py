"""What a replay is called: ``<job>@replay-<label>``, a name that no training job can have.

SageMaker's names are letters, digits and hyphens (``[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}``), and what stands behind the at
sign of a job outside SageMaker ends in a slash: no event is ever of a replay.
"""

import re
from datetime import UTC, datetime

from trainguard.errors import RequestError

JOB_NAME = re.compile(r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}(?:@[A-Za-z0-9/=+_%~-]{1,200}/)?")
"""A job's name in the tables, be it SageMaker's or that of a place."""

_MARK = "@replay-"
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")


def replay_name(job: str, label: str) -> str:
    """Return the name of a job's replay; raises RequestError for a label that cannot stand in one."""
    if not _LABEL.fullmatch(label):
        raise RequestError(
            f"a replay cannot be called {label!r}",
            "Its name is 1 to 40 letters, digits, hyphens, dots and underscores, the first and the last no sign.",
        )
    return f"{job}{_MARK}{label}"


def replay_label(now: float) -> str:
    """Return the label of a replay that was given none: the time, epoch seconds, in UTC."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def replayed_job(name: str) -> str | None:
    """Return the job that a replay is of; None when ``name`` is no replay's."""
    job, mark, label = name.rpartition(_MARK)
    return job if mark and JOB_NAME.fullmatch(job) and _LABEL.fullmatch(label) else None
