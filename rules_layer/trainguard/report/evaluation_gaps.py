"""What no rule has judged: as long as there is some of it, nobody may call a job healthy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.engine.verdicts.verdict import JUDGED, shown_status
from trainguard.records import Status
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.phrasing import listed
from trainguard.report.profiler_coverage import (
    BAD_OBJECTS,
    UNREAD_PARTS,
    lacking_nodes,
    stale_nodes,
    stopped_nodes,
)
from trainguard.rules.registry import spec_of
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.units import counted

PENDING = frozenset({Status.WARMING_UP, Status.WAITING_FOR_DATA})


@dataclass(frozen=True, slots=True)
class Judged:
    """Rules that can fire, by what became of them; ``partly`` names those that have not judged every node.

    ``stale`` are nodes without system metrics, ``stopped`` those whose metrics end long before the others';
    ``unread`` counts the objects that could not be read, without those of samples; ``lacking`` says of each node of
    whose time too much has no samples how much that is.
    """

    judged: Sequence[str]
    failed: Sequence[str]
    pending: Sequence[str]
    disabled: Sequence[str]
    not_applicable: Sequence[str]
    partly: Sequence[str]
    stale: Sequence[str]
    stopped: Sequence[str]
    unread: int = 0
    lacking: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every rule that applies has judged every node."""
        lacking = (self.failed, self.pending, self.disabled, self.partly, self.stale, self.stopped)
        return bool(self.judged) and not any(lacking) and not self.unread and not self.lacking

    @property
    def blind_to_gpus(self) -> bool:
        """Whether GPUs that are not busy could not be found."""
        return any(spec_of(rule).symptom == LOW_GPUS for rule in self.pending)

    @property
    def faults(self) -> list[str]:
        """What is wrong with the judging itself, in clauses: rules in error, nodes without system metrics."""
        parts = []
        if self.failed:
            parts.append(f"{listed(self.failed)} {_verb(self.failed, 'is', 'are')} in error")
        if self.stale:
            parts.append(f"{listed(self.stale)} wrote no system metrics")
        if self.stopped:
            parts.append(f"{listed(self.stopped)} stopped writing long before the other nodes")
        if self.unread:
            parts.append(f"{counted(self.unread, 'object')} could not be read")
        if self.lacking:
            parts.append(listed([f"{node} has no samples for {lack}" for node, lack in self.lacking.items()]))
        return parts

    def in_words(self, *, ended: bool) -> str:
        """Say what was not judged, without a full stop; empty when all was."""
        parts = self.faults
        if self.pending:
            late = (
                "had too little data for a verdict" if ended else f"{_verb(self.pending, 'has', 'have')} no verdict yet"
            )
            parts.append(f"{listed(self.pending)} {late}")
        if self.disabled:
            parts.append(f"{counted(len(self.disabled), 'rule')} {_verb(self.disabled, 'is', 'are')} disabled")
        if self.partly:
            parts.append(f"{listed(self.partly)} could not judge every node")
        return "; ".join(parts)


def unjudged(judged: EvaluatedJob) -> Judged:
    """Sort the rules of a job by whether they could judge it; one that only informs says nothing about its health."""
    by_status: dict[Status, list[str]] = {status: [] for status in Status}
    for verdict in judged.verdicts:
        if shown_status(verdict) in PENDING and verdict.result.needs_longer and judged.ended:
            continue  # the job was too short for what the rule looks for
        if not spec_of(verdict.rule).informs_only or verdict.result.status is Status.ERROR:
            by_status[shown_status(verdict)].append(verdict.rule)
    told = [*by_status[Status.FIRED], *by_status[Status.OK]]
    return Judged(
        judged=told,
        failed=by_status[Status.ERROR],
        pending=[*by_status[Status.WARMING_UP], *by_status[Status.WAITING_FOR_DATA]],
        disabled=by_status[Status.DISABLED],
        not_applicable=by_status[Status.NOT_APPLICABLE],
        partly=[rule for rule in told if _lacks_nodes(judged, rule)],
        stale=stale_nodes(judged),
        stopped=[*stopped_nodes(judged)],
        unread=_unread(judged),
        lacking=lacking_nodes(judged),
    )


def _unread(judged: EvaluatedJob) -> int:
    """Count what could not be read and what no rule knows of: a lost object of samples is known by their times."""
    return sum(
        record.counters.get(UNREAD_PARTS, 0)
        + (0 if record.key.stream == "system" else record.counters.get(BAD_OBJECTS, 0))
        for record in judged.streams.records.values()
    )


def _lacks_nodes(judged: EvaluatedJob, rule: str) -> bool:
    statuses = {verdict.result.status for verdict in judged.by_node.get(rule, {}).values()}
    return bool(statuses & JUDGED) and bool(statuses & PENDING)


def _verb(rules: Sequence[str], one: str, many: str) -> str:
    return one if len(rules) == 1 else many
