"""The verdict on a job as a document, with a published schema, and as tags.

``python -m trainguard.report.verdict_document > docs/schemas/verdict-1.json`` renews the published copy.
"""

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from trainguard.core.text import one_line
from trainguard.report.document import encode_schema, report_schema

SCHEMA_VERSION: Literal["1"] = "1"
IDENTITY = f"urn:trainguard:verdict:{SCHEMA_VERSION}"


class VerdictWord(StrEnum):
    """What a job does with what it is paid for; a program that meets another word treats the job as active."""

    IDLE = "idle"
    WASTED = "wasted"
    AT_RISK = "at_risk"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    """How sure a verdict is."""

    HIGH = "high"
    MEDIUM = "medium"


class WouldDo(StrEnum):
    """What TrainGuard does about it, by the job's own settings."""

    STOP = "stop"
    ALERT = "alert"
    NOTHING = "nothing"


class Missing(StrEnum):
    """What is missing to know how a job is."""

    JOB = "job"
    EVALUATION = "evaluation"
    NEWER_DATA = "newer_data"
    GPU_SAMPLES = "gpu_samples"
    LOSSES = "losses"
    MORE_TIME = "more_time"
    OBJECTS = "readable_objects"
    DEVICES = "readable_devices"
    ONE_WRITER = "one_writer"
    ENABLED_RULES = "enabled_rules"
    WORKING_RULES = "working_rules"


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What TrainGuard says about a job now.

    verdict: ``idle``: no GPU of any node works. ``wasted``: something wastes paid time. ``at_risk``: something is wrong
        whose cost is not known. ``healthy``: rules have judged the job and found nothing that goes on. ``unknown``:
        none of it can be said. Unknown and unreachable mean active: never stop a job for them.
    why: The reason, in a sentence with the job's own numbers.
    since: Since when it has been so, ISO 8601 in UTC; None of a job that is healthy or unknown.
    certainty: ``high`` where it has lasted for half an hour and nothing is missing; None of ``unknown``.
        ``certainty_why`` says what is missing.
    status: Status of the training job; ``active`` says whether it is still evaluated.
    evaluated_through: The newest data that was judged.
    rules: The rules whose condition holds, what wastes most first. Where ``unknown`` is of old data: those that held
        then.
    wasted_share: Share of the paid GPU time until now that was no compute, 0 to 1.
    lost, spent: Money, in ``currency``; None where no price is known.
    advice: What to do about the first rule.
    would_do: ``stop`` only where the job's owner allowed it for one of the rules; ``would_do_why`` says why not.
    idle_nodes: The nodes on which no GPU works, be the others busy: for clusters that TrainGuard does not stop.
    missing: What is missing to know how the job is; empty but of ``unknown``.
    memory_held_on: Those of them whose GPUs hold memory: a job that hangs, a script that does not exit, a waiting
        server.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    generated_at: str
    job: str
    verdict: VerdictWord
    why: str
    since: str | None = None
    certainty: Certainty | None = None
    certainty_why: str | None = None
    status: str | None = None
    active: bool = False
    evaluated_through: str | None = None
    rules: list[str] = []
    wasted_share: float | None = None
    lost: float | None = None
    spent: float | None = None
    currency: str | None = None
    advice: str | None = None
    would_do: WouldDo = WouldDo.NOTHING
    would_do_why: str = ""
    idle_nodes: list[str] = []
    memory_held_on: list[str] = []
    missing: list[Missing] = []


def verdict_schema() -> dict[str, Any]:
    return {**report_schema(JobVerdict, identity=IDENTITY), "title": "Verdict on a training job"}


PREFIX = "trainguard."
LONGEST_VALUE = 5_000


def verdict_tags(verdict: JobVerdict) -> Mapping[str, str]:
    """Return the tags by name; what is not known is an empty text, so that none of an earlier verdict stays."""
    lost = "" if verdict.lost is None else f"{verdict.lost:.2f}"
    share = "" if verdict.wasted_share is None else f"{verdict.wasted_share:.4f}"
    fields = {
        "verdict": verdict.verdict.value,
        "why": verdict.why,
        "since": verdict.since,
        "certainty": verdict.certainty,
        "rules": " ".join(verdict.rules),
        "wasted_share": share,
        "lost": lost,
        "currency": verdict.currency if lost else "",
        "advice": verdict.advice,
        "job": verdict.job,
        "evaluated_through": verdict.evaluated_through,
        "generated_at": verdict.generated_at,
    }
    return {f"{PREFIX}{name}": one_line(str(value or ""), LONGEST_VALUE) for name, value in fields.items()}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(verdict_schema()))
