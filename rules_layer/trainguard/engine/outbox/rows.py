"""From a verdict to the row that a person reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.engine.verdicts.findings import RankedFinding, finding_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.finding import Episode, Finding
from trainguard.ledger.job import Ledger
from trainguard.plain_text import LONGEST_SENTENCE, one_line
from trainguard.pricing.cost import Account
from trainguard.records import RuleRow, Status
from trainguard.rules.registry import spec_of
from trainguard.rules.units import faults_counted

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class RowContext:
    """What all rows of one stream share; ``node`` is None for rows of the whole job, ``account`` is what they cost.

    ``generation`` is that of the job's registration. ``ledger`` returns that of the rows' nodes, None where nothing is
    known of their GPUs; it is asked for when something has fired.
    """

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
    """Build the row of a rule; ``ranked`` is what the verdict means among the job's others, where that is known.

    While an episode of firing is open the row stays FIRED, also between two evaluations at which the condition holds:
    a row must not flap under the reader's eyes.
    """
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
    said = verdict.said_of(context.node, one_line(reason, LONGEST_SENTENCE))
    if ranked is not None:
        said = replace(said, episodes=tuple(_of_node(each, context.node) for each in ranked.episodes))
    if ranked is None or shown_status(verdict) is not Status.FIRED:
        return said
    found = ranked.finding
    return replace(said, severity=found.severity, advice=_plain(found.advice, LONGEST_SENTENCE), cost=found.cost)


def _of_node(episode: Episode, node: str | None) -> Episode:
    """Return an episode of a node's own verdict with its node."""
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
    """Return the parameters that a rule runs with, for reports; empty when its configuration is at fault."""
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else parameters.in_force()
