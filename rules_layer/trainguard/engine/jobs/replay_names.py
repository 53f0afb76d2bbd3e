"""The name of a replay, ``<job>@replay-<label>``, which no training job or place can have."""

import re
from datetime import UTC, datetime

from trainguard.core.errors import RequestError

# SageMaker's name, or that of a place.
JOB_NAME = re.compile(r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}(?:@[A-Za-z0-9/=+_%~-]{1,200}/)?")

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
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def replayed_job(name: str) -> str | None:
    job, mark, label = name.rpartition(_MARK)
    return job if mark and JOB_NAME.fullmatch(job) and _LABEL.fullmatch(label) else None
