"""The result of an analysis, in one shape for both readings, for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


FIELDS = (
    *("rule", "status", "reason", "severity", "advice", "worst", "affected_share", "wasted_share", "cost"),
    *("measured", "threshold", "times_fired", "violations", "data_points", "parameters"),
)
"""What is said about a rule; a share is from 0 to 1, ``cost`` a sentence. None is what a reading does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An analysis of ``place``; ``rules`` have `FIELDS` and are most severe first, ``files`` are reports by name.

    ``unread`` are numbers by kind. ``healthy``: all that applies was judged and nothing has fired.
    """

    place: str
    rules: Sequence[Mapping[str, Any]]
    files: Mapping[str, bytes]
    unread: Mapping[str, int]
    healthy: bool
    verdict: Verdict | None = None
    summary: str | None = None
    cost: str | None = None
    notes: Sequence[str] = ()

    @property
    def fired(self) -> list[str]:
        """Names of the rules that have fired, be it over by now."""
        return [each["rule"] for each in self.rules if each["times_fired"] > 0 or each["status"] == Status.FIRED]

    @property
    def evaluated(self) -> bool:
        """Whether any rule has judged."""
        return has_verdict((each["rule"], each["status"], each["times_fired"]) for each in self.rules)


def document_of(outcome: Outcome, **about: Any) -> dict[str, Any]:
    """Return the outcome for machines, with ``about`` the analysis."""
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "healthy": outcome.healthy,
        "evaluated": outcome.evaluated,
        "fired": outcome.fired,
        "verdict": outcome.verdict,
        "summary": outcome.summary,
        "cost": outcome.cost,
        "rules": outcome.rules,
        "unread": dict(outcome.unread),
        "files": [] if about.get("out") is None else list(outcome.files),
        "notes": list(outcome.notes),
    }


def blocks_of(outcome: Outcome) -> list[Block]:
    """Return blocks of the rules' verdicts, unread files, and the job's cost."""
    verdict = outcome.verdict
    texts = [] if verdict is None else [verdict.health, verdict.change, verdict.cost]
    texts += [] if outcome.cost is None else [outcome.cost]
    unused = dict(outcome.unread)
    if missing := unused.pop(_GAPS, 0):
        texts.append(f"Missing between the first and the last system metrics: {counted(missing, 'minute')}.")
    if unused:
        texts.append(f"Not used: {', '.join(faults_counted(amount, name) for name, amount in unused.items())}.")
    if not outcome.evaluated:
        texts.append(f"{NOTHING_EVALUATED} The profile holds nothing that a rule could read, or too little of it.")
    rows = [_row(each) for each in outcome.rules]
    return [Grid(_COLUMNS, rows, stacks_below=_NARROW), *(Line(text, whole=True) for text in texts)]


def _row(rule: Mapping[str, Any]) -> list[Shown]:
    cost = None if rule["cost"] is None else f"It has cost {rule['cost']}."
    sentences = " ".join(part for part in (rule["reason"], rule["advice"], cost) if part)
    return [status_cell(Status(rule["status"]), over=True), rule["rule"], rule["severity"] or "", sentences]
