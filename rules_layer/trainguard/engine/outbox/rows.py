"""From a verdict to the row that a person reads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.engine.verdicts.findings import Finding, finding_of
from trainguard.engine.verdicts.verdict import Verdict, shown_status
from trainguard.finding import Episode
from trainguard.plain_text import LONGEST_SENTENCE, one_line
from trainguard.pricing.cost import Account
from trainguard.records import RuleRow, Status
from trainguard.rules.registry import spec_of

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class RowContext:
    """What all rows of one stream share; ``node`` is None for rows of the whole job, ``account`` is what they cost.

    ``generation`` is that of the job's registration.
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


def rule_row(context: RowContext, verdict: Verdict, finding: Finding | None = None) -> RuleRow:
    """Build the row of a rule; ``finding`` is what the verdict means among the job's others, where that is known.

    While an episode of firing is open the row stays FIRED, also between two evaluations at which the condition holds:
    a row must not flap under the reader's eyes.
    """
    result, history = verdict.result, verdict.history
    measure = spec_of(verdict.rule).measure_of(result)
    status, reason = shown_status(verdict), result.reason
    if finding is None and (history.times_fired or status is Status.FIRED):
        finding = finding_of(verdict, context.account)
    wasted_percent = None if finding is None else _wasted_percent(finding, context.account)
    episodes = () if finding is None else tuple(_of_node(each, context.node) for each in finding.episodes)
    if status is not Status.FIRED:
        finding = None
    unused = {name: amount for name, amount in context.counters.items() if name not in HARMLESS_COUNTERS}
    reason += _counted(unused, context.last_fault)
    return RuleRow(
        job=context.job,
        rule=verdict.rule,
        node=context.node,
        status=status,
        reason=one_line(reason, LONGEST_SENTENCE),
        measured=result.measured,
        threshold=result.threshold,
        quantity=None if measure is None else _plain(measure.what, LONGEST_NAME),
        unit=None if measure is None else _plain(measure.unit or None, LONGEST_NAME),
        worst=_plain(result.worst, LONGEST_NAME),
        data_points=result.data_points,
        patience=_plain(result.patience, LONGEST_NAME),
        severity=None if finding is None else finding.severity,
        advice=None if finding is None else _plain(finding.advice, LONGEST_SENTENCE),
        affected_percent=None if finding is None else finding.affected_percent,
        cost_lost=None if finding is None or finding.cost is None else str(finding.cost),
        wasted_percent=wasted_percent,
        violations=history.violations,
        times_fired=history.times_fired,
        evaluated_through=context.watermark_s,
        fired_at=history.fired_at,
        counters=unused,
        parameters=parameters_shown(context.plan, verdict.rule),
        expires_at=context.expires_at,
        generation=context.generation,
        episodes=episodes,
        earlier_episodes=verdict.earlier_episodes,
    )


def _of_node(episode: Episode, node: str | None) -> Episode:
    """Return an episode of a node's own verdict with its node."""
    return (episode if node is None else replace(episode, nodes=(node,))).plain


def _plain(text: str | None, longest: int) -> str | None:
    return None if text is None else one_line(text, longest)


def _wasted_percent(finding: Finding, account: Account) -> float | None:
    """Return what a finding wasted of the paid time of all nodes, in percent to one decimal."""
    if finding.wasted_nodes is None or account.nodes == 0:
        return None
    return round(100.0 * min(finding.wasted_nodes / account.nodes, 1.0), 1)


def _counted(counters: Mapping[str, int], last_fault: str | None) -> str:
    """Return sentences about what was not used, and about what was given up to keep the item small."""
    degraded = sorted(name for name in counters if name.startswith(DEGRADED))
    unused = [f"{amount} {name}" for name, amount in sorted(counters.items()) if name not in degraded]
    sentences = ""
    if unused:
        sentences += f" Not used: {', '.join(unused)}" + (f" (last: {last_fault})." if last_fault else ".")
    if degraded:
        sentences += f" State {', '.join(degraded)}: the item had reached its cap."
    return sentences


def parameters_shown(plan: RulePlan, rule: str) -> dict[str, float | int | str | None]:
    """Return the parameters that a rule runs with; empty when its configuration is at fault."""
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else msgspec.structs.asdict(parameters)
