"""Names of canaries, which nobody can guess: who could, would write a ``job.json`` first and mute the canary."""

import re
from datetime import UTC, datetime
from hashlib import sha256

CANARY_PREFIX = "trainguard-canary-"
# Value of the attribute ``Kind`` of a canary's alert, by which subscriptions leave it out.
CANARY_KIND = "canary"
# Below the path of the settings that jobs may name: holds the name of the newest canary that is a job of SageMaker's.
CANARY_MARK = "canary-job"
# Tag of such a job, with its stack's name.
CANARY_TAG = "trainguard-canary"

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


# A job is created when it is planted, or when Lambda repeats that within ten minutes.
_CREATED_WITHIN_S = 900.0
_AHEAD_S = 60.0


def is_marked(job: str, created_at: float, marked: str | None) -> bool:
    """Whether SageMaker's job is the canary that is marked, and was created when that was planted, epoch seconds.

    The canary's function writes the mark before it creates the job; owners of jobs cannot. The time leaves out a job
    that got the name later.
    """
    planted = planted_at(job)
    return planted is not None and marked == job and -_AHEAD_S <= created_at - planted <= _CREATED_WITHIN_S


def is_canary(job: str, arn: str, marked: object) -> bool:
    """Whether a job is a canary: by its name, and because SageMaker knows no such training job or it is ``marked``."""
    return planted_at(job) is not None and (marked is True or arn.startswith(_UNKNOWN_ARN))
