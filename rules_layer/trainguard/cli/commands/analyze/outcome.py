"""The result of an analysis, in one shape for both readings, for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trainguard.cli.output.blocks import Block, Column, Grid, Line, Shown, status_cell
from trainguard.cli.output.rows import has_verdict
from trainguard.core.records import Status
from trainguard.core.units import counted, faults_counted
from trainguard.report.document import Verdict

SCHEMA_VERSION = "2"
FOREIGN = "files_of_other_kinds"

NOTHING_EVALUATED = "No verdict: no rule could be evaluated."

_COLUMNS = (Column("status"), Column("rule"), Column("severity"), Column("reason and advice", folds=True))
_GAPS = "gaps"
_NARROW = 72
"""On fewer columns the reasons would be cut to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
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
    """An analysis that ran; ``rules`` are most severe first, ``files`` reports by name, ``unread`` numbers by kind.

    ``healthy``: all that applies was judged and nothing has fired; None of a reading that judges no job as a whole.
    """

    rules: Sequence[RuleVerdict]
    files: Mapping[str, bytes]
    unread: Mapping[str, int] = field(default_factory=dict)
    healthy: bool | None = None
    verdict: Verdict | None = None
    summary: str | None = None
    cost: str | None = None
    notes: Sequence[str] = ()

    @property
    def fired(self) -> list[str]:
        """Names of the rules that have fired."""
        return [rule.rule for rule in self.rules if rule.fired]

    @property
    def evaluated(self) -> bool:
        """Whether any rule has judged."""
        return has_verdict((rule.rule, rule.status, rule.times_fired) for rule in self.rules)


def document_of(outcome: Outcome, **about: Any) -> dict[str, Any]:
    """Return the outcome for machines, with ``about`` the analysis."""
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "healthy": outcome.evaluated and not outcome.fired if outcome.healthy is None else outcome.healthy,
        "evaluated": outcome.evaluated,
        "fired": outcome.fired,
        "verdict": outcome.verdict,
        "summary": outcome.summary,
        "cost": outcome.cost,
        "rules": [asdict(rule) for rule in outcome.rules],
        "unread": dict(outcome.unread),
        "files": [] if about.get("out") is None else list(outcome.files),
        "notes": list(outcome.notes),
    }


def blocks_of(outcome: Outcome) -> list[Block]:
    """Return blocks of the rules' verdicts, unread files, and the job's cost."""
    rows = [_row(rule) for rule in outcome.rules]
    verdict = outcome.verdict
    whole = [] if verdict is None else [verdict.health, verdict.change, verdict.cost]
    texts = [*whole, *([] if outcome.cost is None else [outcome.cost])]
    missing = outcome.unread.get(_GAPS)
    if missing:
        texts.append(f"Missing between the first and the last system metrics: {counted(missing, 'minute')}.")
    unused = {name: amount for name, amount in outcome.unread.items() if name != _GAPS}
    if unused:
        listed = ", ".join(faults_counted(amount, name) for name, amount in unused.items())
        texts.append(f"Not used: {listed}.")
    if not outcome.evaluated:
        texts.append(f"{NOTHING_EVALUATED} The profile holds nothing that a rule could read, or too little of it.")
    return [Grid(_COLUMNS, rows, stacks_below=_NARROW), *(Line(text, whole=True) for text in texts)]


def _row(rule: RuleVerdict) -> list[Shown]:
    return [status_cell(Status(rule.status), over=True), rule.rule, rule.severity or "", _sentences(rule)]


def _sentences(rule: RuleVerdict) -> str:
    cost = None if rule.cost is None else f"It has cost {rule.cost}."
    return " ".join(part for part in (rule.reason, rule.advice, cost) if part)
