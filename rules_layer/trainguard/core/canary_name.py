"""Names of canaries, which nobody can guess: who could, would write a ``job.json`` first and mute the canary."""

import re
from datetime import UTC, datetime
from hashlib import sha256

CANARY_PREFIX = "trainguard-canary-"
# Value of the attribute ``Kind`` of a canary's alert, by which subscriptions leave it out.
CANARY_KIND = "canary"

_UNKNOWN_ARN = "unknown:"
_FORM = "%Y%m%d-%H%M%S"
# Canaries of older versions lack the last part.
_NAME = re.compile(rf"{CANARY_PREFIX}(\d{{8}}-\d{{6}})(?:-[0-9a-f]{{12}})?", re.ASCII)


def canary_name(at: float, run: str) -> str:
    """Return the name of the canary that ``run`` plants at ``at``, epoch seconds; the same for a repeat of the run."""
    planted = datetime.fromtimestamp(int(at), UTC).strftime(_FORM)
    return f"{CANARY_PREFIX}{planted}-{sha256(run.encode()).hexdigest()[:12]}"


def planted_at(job: str) -> float | None:
    """Return when a canary was planted, epoch seconds; None for a name that is no canary's."""
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
