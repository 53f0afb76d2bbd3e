"""From a verdict to the row that a person reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainguard.core.finding import Episode, Finding
from trainguard.core.records import RuleRow, Status
from trainguard.core.text import LONGEST_SENTENCE, one_line
from trainguard.core.units import faults_counted
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.engine.verdicts.findings import RankedFinding, finding_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import Account
from trainguard.rules.registry import spec_of

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class RowContext:
    """Common parts of a stream's rows; ``node`` None: the whole job. ``ledger`` gives None where no GPU is known."""

    job: str
    node: str | None
    plan: RulePlan
    watermark_s: float | None
    counters: Mapping[str, int]
    last_fault: str | None
    expires_at: int | None
    account: Account
    generation: int = 0
    ledger: Callable[[], Ledger | None] = lambda: None


def rule_row(context: RowContext, verdict: Verdict, ranked: RankedFinding | None = None) -> RuleRow:
    """Build the row of a rule; it stays FIRED while an episode is open, so that it does not flap."""
    result, history = verdict.result, verdict.history
    measure = spec_of(verdict.rule).measure_of(result)
    status = shown_status(verdict)
    parameters = context.plan.parameters.get(verdict.rule)
    if ranked is None and (history.times_fired or status is Status.FIRED):
        ranked = finding_of(verdict, context.account, ledger=context.ledger())
    unused = {name: amount for name, amount in context.counters.items() if name not in HARMLESS_COUNTERS}
    fired = None if status is not Status.FIRED else ranked
    return RuleRow(
        job=context.job,
        finding=_finding(context, verdict, ranked, unused),
        status=status,
        quantity=None if measure is None else _plain(measure.what, LONGEST_NAME),
        unit=None if measure is None else _plain(measure.unit or None, LONGEST_NAME),
        worst=_plain(result.worst, LONGEST_NAME),
        data_points=result.data_points,
        progress=result.progress,
        affected_percent=None if fired is None else fired.affected_percent,
        wasted_percent=None if ranked is None else ranked.wasted_percent,
        violations=history.violations,
        times_fired=history.times_fired,
        evaluated_through=context.watermark_s,
        fired_at=history.fired_at,
        counters=unused,
        parameters={} if parameters is None else parameters.as_given(),
        expires_at=context.expires_at,
        generation=context.generation,
        earlier_episodes=verdict.earlier_episodes,
    )


def _finding(context: RowContext, verdict: Verdict, ranked: RankedFinding | None, unused: Mapping[str, int]) -> Finding:
    """Return what the row says: of a finding that is over, its episodes alone, beside what the rule says now."""
    reason = verdict.result.reason + _counted(unused, context.last_fault)
    finding = verdict.finding_on(context.node, one_line(reason, LONGEST_SENTENCE))
    if ranked is not None:
        finding = replace(finding, episodes=tuple(_of_node(each, context.node) for each in ranked.episodes))
    if ranked is None or shown_status(verdict) is not Status.FIRED:
        return finding
    found = ranked.finding
    return replace(finding, severity=found.severity, advice=_plain(found.advice, LONGEST_SENTENCE), cost=found.cost)


def _of_node(episode: Episode, node: str | None) -> Episode:
    return (episode if node is None else replace(episode, nodes=(node,))).plain


def _plain(text: str | None, longest: int) -> str | None:
    return None if text is None else one_line(text, longest)


def _counted(counters: Mapping[str, int], last_fault: str | None) -> str:
    """Return sentences about what was not used, and about what was given up to keep the item small."""
    degraded = sorted(name for name in counters if name.startswith(DEGRADED))
    unused = [faults_counted(amount, name) for name, amount in sorted(counters.items()) if name not in degraded]
    sentences = ""
    if unused:
        sentences += f" Not used: {', '.join(unused)}" + (f" (last: {last_fault})." if last_fault else ".")
    if degraded:
        sentences += f" State {', '.join(degraded)}: the item had reached its cap."
    return sentences


def parameters_shown(plan: RulePlan, rule: str) -> dict[str, Any]:
    """Return the parameters that a rule runs with; empty when its configuration is at fault."""
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else parameters.in_force()
