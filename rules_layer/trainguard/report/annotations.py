"""Fires as marks on the time lines: when an episode began, of which rule, and where.

Of each rule and node the last fire is known, however many there were.
"""

from collections.abc import Iterator, Sequence

from trainguard.engine.verdicts.verdict import Verdict
from trainguard.records import Severity
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.timeline.series import Mark

MAX_MARKS = 256
TEXT_LENGTH = 240


def marks(judged: EvaluatedJob) -> list[Mark]:
    """Return the fires in order of time: the first of each rule are kept where there are more than MAX_MARKS."""
    found = [mark for finding in judged.findings for mark in _of_rule(judged, finding.rule, finding.severity)]
    ranked = sorted(found, key=lambda each: each[0])[:MAX_MARKS]
    return sorted((mark for _, mark in ranked), key=lambda mark: (mark.at, mark.rule, mark.node or "", mark.gpu or ""))


def unmarked(judged: EvaluatedJob) -> list[str]:
    """Say how many fires have no mark."""
    found = sum(1 for finding in judged.findings for _ in _of_rule(judged, finding.rule, finding.severity))
    return [f"{found - MAX_MARKS:,} of {found:,} fires are not marked."] if found > MAX_MARKS else []


def _of_rule(judged: EvaluatedJob, rule: str, severity: Severity) -> Iterator[tuple[tuple[int, float], Mark]]:
    """Yield marks, each with its place among those of its rule: the first fire of every rule comes first."""
    fires = [*_on_nodes(judged, rule, severity), *_on_job(judged, rule, severity)]
    for place, mark in enumerate(sorted(fires, key=lambda mark: (mark.at, mark.node or ""))):
        yield (place, mark.at), mark


def _on_nodes(judged: EvaluatedJob, rule: str, severity: Severity) -> Iterator[Mark]:
    for node, verdict in judged.by_node.get(rule, {}).items():
        if verdict.history.fired_at is not None:
            system = judged.profiler.system.get(node)
            gpus: Sequence[str] = [] if system is None else system.state.gpu_names
            worst = verdict.result.worst
            yield Mark(
                at=verdict.history.fired_at,
                rule=rule,
                severity=severity.value,
                node=node,
                gpu=worst if worst in gpus else None,
                text=_text(verdict),
            )


def _on_job(judged: EvaluatedJob, rule: str, severity: Severity) -> Iterator[Mark]:
    """Yield the fire of a rule over the whole job; it may name the node that is worst."""
    stored, verdict = judged.streams.state.stored_rules.get(rule), judged.verdict_of(rule)
    if stored is not None and stored.history.fired_at is not None and verdict is not None:
        worst = verdict.result.worst
        node = worst if worst in judged.profiler.system else None
        yield Mark(
            at=stored.history.fired_at, rule=rule, severity=severity.value, node=node, gpu=None, text=_text(verdict)
        )


def _text(verdict: Verdict) -> str:
    reason = verdict.result.reason
    return reason if len(reason) <= TEXT_LENGTH else f"{reason[: TEXT_LENGTH - 1]}…"
