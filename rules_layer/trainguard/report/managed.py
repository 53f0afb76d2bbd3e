"""The files of the managed service's report: one a rule, with its five fields."""

from collections.abc import Sequence
from typing import Any

from trainguard.engine.plan import RulePlan
from trainguard.engine.rows import parameters_shown
from trainguard.engine.slots import Verdict
from trainguard.report.encode import encode_report
from trainguard.rules.registry import RULE_NAMES


def managed_files(verdicts: Sequence[Verdict], plan: RulePlan) -> dict[str, bytes]:
    """Return ``profiler-reports/<Rule>.json`` of every rule, by that name."""
    return {
        f"profiler-reports/{verdict.rule}.json": encode_report(_managed(verdict, plan))
        for verdict in verdicts
        if verdict.rule in RULE_NAMES
    }


def _managed(verdict: Verdict, plan: RulePlan) -> dict[str, Any]:
    """Return the five fields of the managed service's report, in its order.

    RuleTriggered counts episodes of firing, Violations evaluations at which the condition held, Datapoints judged
    snapshots or steps.
    """
    shown = parameters_shown(plan, verdict.rule)
    return {
        "RuleTriggered": verdict.episode.times_fired,
        "Violations": verdict.episode.violations,
        "Details": verdict.judgement.details,
        "Datapoints": verdict.judgement.data_points,
        "RuleParameters": "\n".join(f"{name}:{value}" for name, value in shown.items()),
    }
