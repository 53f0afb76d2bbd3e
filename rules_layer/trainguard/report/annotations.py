"""Episodes as marks on the time lines: when each began, of which rule, and where."""

from collections.abc import Iterator, Sequence

from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.finding import Episode
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
        system = judged.profiler.system.get(node)
        gpus: Sequence[str] = [] if system is None else system.state.gpu_names
        worst = verdict.result.worst
        for at, named in _starts(verdict.history, verdict.episodes):
            # A mark is on one GPU: of several, the worst.
            gpu = named[0] if len(named) == 1 else worst
            yield Mark(
                at=at,
                rule=rule,
                severity=severity.value,
                node=node,
                gpu=gpu if gpu in gpus else None,
                text=_text(verdict),
            )


def _on_job(judged: EvaluatedJob, rule: str, severity: Severity) -> Iterator[Mark]:
    """Yield the fires of a rule over the whole job; it may name the node that is worst."""
    stored, verdict = judged.streams.state.stored_rules.get(rule), judged.verdict_of(rule)
    if stored is None or verdict is None:
        return
    worst = verdict.result.worst
    node = worst if worst in judged.profiler.system else None
    for at, _ in _starts(stored.history, stored.history.shown_episodes()):
        yield Mark(at=at, rule=rule, severity=severity.value, node=node, gpu=None, text=_text(verdict))


def _starts(history: FiringHistory, episodes: Sequence[Episode]) -> list[tuple[float, tuple[str, ...]]]:
    """Return when each episode began and on which GPUs; of an item that keeps none, when its last fire was."""
    if episodes:
        return [(episode.start, episode.gpus) for episode in episodes]
    return [] if history.fired_at is None else [(history.fired_at, ())]


def _text(verdict: Verdict) -> str:
    reason = verdict.result.reason
    return reason if len(reason) <= TEXT_LENGTH else f"{reason[: TEXT_LENGTH - 1]}…"
