"""How a canary is called: by its prefix and the second at which it was planted.

Light to import: the fleet and the alert ask whether a job is one.
"""

import re
from datetime import UTC, datetime

CANARY_PREFIX = "trainguard-canary-"
CANARY_KIND = "canary"
"""Value of the attribute ``Kind`` of a canary's alert, by which subscriptions leave it out."""

_UNKNOWN_ARN = "unknown:"
_FORM = "%Y%m%d-%H%M%S"
_NAME = re.compile(rf"{CANARY_PREFIX}(\d{{8}}-\d{{6}})", re.ASCII)


def canary_name(at: float) -> str:
    """Return the name of the canary that is planted at ``at``, epoch seconds."""
    return f"{CANARY_PREFIX}{datetime.fromtimestamp(int(at), UTC).strftime(_FORM)}"


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
