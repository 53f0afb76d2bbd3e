"""From a verdict to the row that a person reads."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from trainguard.engine.plan import RulePlan
from trainguard.engine.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.engine.slots import Verdict
from trainguard.records import RuleRow, Status


@dataclass(frozen=True, slots=True)
class RowContext:
    """What all rows of one stream share; ``node`` is None for rows of the whole job."""

    job: str
    node: str | None
    plan: RulePlan
    through: float | None
    counters: Mapping[str, int]
    last_fault: str | None
    expires_at: int | None


def rule_row(context: RowContext, verdict: Verdict) -> RuleRow:
    """Build the row of a rule.

    While an episode of firing is open the row stays FIRED, also between two evaluations at which the condition holds:
    a row must not flap under the reader's eyes.
    """
    judgement, episode = verdict.judgement, verdict.episode
    status, reason = shown_status(verdict), judgement.reason
    if status is not judgement.status:
        reason = f"fired, clean since and not yet over: {reason}"
    unused = {name: amount for name, amount in context.counters.items() if name not in HARMLESS_COUNTERS}
    reason += _counted(unused, context.last_fault)
    return RuleRow(
        job=context.job,
        rule=verdict.rule,
        node=context.node,
        status=status,
        reason=reason,
        measured=judgement.measured,
        threshold=judgement.threshold,
        worst=judgement.worst,
        data_points=judgement.data_points,
        patience=judgement.patience,
        violations=episode.violations,
        times_fired=episode.times_fired,
        evaluated_through=context.through,
        fired_at=episode.fired_at,
        counters=unused,
        parameters=parameters_shown(context.plan, verdict.rule),
        expires_at=context.expires_at,
    )


def shown_status(verdict: Verdict) -> Status:
    """Return the status that a person is shown: FIRED while an episode is open, unless the rule is at fault."""
    status = verdict.judgement.status
    return Status.FIRED if verdict.episode.is_open and status is not Status.ERROR else status


def _counted(counters: Mapping[str, int], last_fault: str | None) -> str:
    """Return sentences about what was not used, and about what was given up to keep the item small."""
    degraded = sorted(name for name in counters if name.startswith(DEGRADED))
    unused = [f"{amount} {name}" for name, amount in sorted(counters.items()) if name not in degraded]
    sentences = ""
    if unused:
        sentences += f" Not used: {', '.join(unused)}" + (f" (last: {last_fault})." if last_fault else ".")
    if degraded:
        sentences += f" Window {', '.join(degraded)}: the item had reached its cap."
    return sentences


def parameters_shown(plan: RulePlan, rule: str) -> dict[str, float | int | str | None]:
    """Return the parameters that a rule runs with; empty when its configuration is at fault."""
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else msgspec.structs.asdict(parameters)
