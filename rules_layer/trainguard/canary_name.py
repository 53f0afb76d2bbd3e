"""How a canary is called: by its prefix, the second at which it was planted, and by what nobody can foretell.

Who knew its name before could write a ``job.json`` of that name first, and have it muted or not evaluated.

Light to import: the fleet and the alert ask whether a job is one.
"""

import re
from datetime import UTC, datetime
from hashlib import sha256

CANARY_PREFIX = "trainguard-canary-"
CANARY_KIND = "canary"
"""Value of the attribute ``Kind`` of a canary's alert, by which subscriptions leave it out."""

_UNKNOWN_ARN = "unknown:"
_FORM = "%Y%m%d-%H%M%S"
_NAME = re.compile(rf"{CANARY_PREFIX}(\d{{8}}-\d{{6}})(?:-[0-9a-f]{{12}})?", re.ASCII)
"""Canaries of older versions lack the last part."""


def canary_name(at: float, run: str) -> str:
    """Return the name of the canary that is planted at ``at``, epoch seconds, by ``run``: an id that nobody can guess.

    The same run gives the same name, so that a repeat of it plants the same canary.
    """
    planted = datetime.fromtimestamp(int(at), UTC).strftime(_FORM)
    return f"{CANARY_PREFIX}{planted}-{sha256(run.encode()).hexdigest()[:12]}"


def planted_at(job: str) -> float | None:
    """Return when a job of this name was planted, in epoch seconds; None for a name that is no canary's."""
    match = _NAME.fullmatch(job)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def is_canary(job: str, arn: str) -> bool:
    """Whether a job is a canary: by its name, and because SageMaker knows no such training job."""
    return planted_at(job) is not None and arn.startswith(_UNKNOWN_ARN)
