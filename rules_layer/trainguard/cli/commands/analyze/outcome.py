"""What an analysis came to: the same shape for both readings, and its JSON document for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from trainguard.records import Status
from trainguard.report.document import Verdict

SCHEMA_VERSION = "2"
FOREIGN = "files_of_other_kinds"
"""How files that are no profile objects are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """One rule's verdict; a share is from 0 to 1, ``cost`` a sentence. None is what a reading does not say."""

    rule: str
    status: str
    reason: str
    severity: str | None = None
    advice: str | None = None
    worst: str | None = None
    affected_share: float | None = None
    wasted_share: float | None = None
    cost: str | None = None
    measured: float | None = None
    threshold: float | None = None
    times_fired: int
    violations: int
    data_points: int
    parameters: Mapping[str, Any] | str

    @property
    def fired(self) -> bool:
        """Whether the rule has fired, be it over by now."""
        return self.times_fired > 0 or self.status == Status.FIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An analysis that ran.

    Attributes
    ----------
    rules : sequence of RuleLine
        Findings first, the gravest on top.
    files : mapping of str to bytes
        Reports by their names below the output folder.
    unread : mapping of str to int
        What was not read or not used, by kind.
    healthy : bool or None
        Whether all that applies was judged and nothing has fired; None of a reading that judges no job as a whole.
    verdict : Verdict or None
        The job as a whole in three sentences.
    summary, cost : str or None
        The findings in one sentence, and what the job has cost.
    """

    rules: Sequence[RuleLine]
    files: Mapping[str, bytes]
    unread: Mapping[str, int] = field(default_factory=dict)
    healthy: bool | None = None
    verdict: Verdict | None = None
    summary: str | None = None
    cost: str | None = None

    @property
    def fired(self) -> list[str]:
        """Names of the rules that have fired."""
        return [line.rule for line in self.rules if line.fired]


def json_document(outcome: Outcome, **about: Any) -> bytes:
    """Return the outcome as one JSON document; ``about`` says what was analysed and how."""
    document = {
        "schema_version": SCHEMA_VERSION,
        **about,
        "healthy": not outcome.fired if outcome.healthy is None else outcome.healthy,
        "fired": outcome.fired,
        "verdict": outcome.verdict,
        "summary": outcome.summary,
        "cost": outcome.cost,
        "rules": [asdict(line) for line in outcome.rules],
        "unread": dict(outcome.unread),
        "files": list(outcome.files),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
