"""Which rules run on a job, with which parameters: resolved from the job's settings, faults named rule by rule."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from trainguard.errors import RuleConfigError
from trainguard.pricing.table import PriceTable
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults
from trainguard.rules.parameters import resolve_parameters
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters
from trainguard.rules.protocol import (
    AnyFrameworkRule,
    AnyJobRule,
    AnyJoinedRule,
    AnySystemRule,
    FrameworkRule,
    JobRule,
    JoinedRule,
    RuleParameters,
    SystemRule,
)
from trainguard.rules.registry import FRAMEWORK_RULES, JOB_RULES, RULE_NAMES, SYSTEM_RULES
from trainguard.telemetry.assemble import SHORTEST_CONFIGURED_MS

DEFAULT_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class RulePlan:
    """The rules of one job; ``joined`` holds those of ``job`` that collect from framework events.

    ``episodes`` holds the job's current episode number a rule; ``interval_s`` the configured sampling interval, which
    stands in until the data shows its own. ``disabled`` names the rules that do not run because only another was asked
    for. ``prices`` stands in for the packaged price table.
    """

    system: tuple[AnySystemRule, ...]
    framework: tuple[AnyFrameworkRule, ...]
    job: tuple[AnyJobRule, ...]
    joined: tuple[AnyJoinedRule, ...]
    parameters: Mapping[str, RuleParameters]
    faults: Mapping[str, RuleConfigError]
    episodes: Mapping[str, int]
    interval_s: float
    disabled: tuple[str, ...] = ()
    prices: PriceTable | None = None

    @property
    def node_rules(self) -> frozenset[str]:
        """Names of the rules that are judged on each node."""
        return frozenset(rule.name for rule in (*self.system, *self.framework))

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of all rules that run, each once."""
        return tuple(dict.fromkeys(rule.name for rule in (*self.system, *self.framework, *self.job)))

    def rule_of_state(self, state_type: type[msgspec.Struct]) -> str | None:
        """Return the rule that runs and remembers such a state; None when none does."""
        rules: tuple[AnySystemRule | AnyFrameworkRule | AnyJoinedRule, ...]
        rules = (*self.system, *self.framework, *self.joined)
        return next((rule.name for rule in rules if rule.state_type is state_type), None)

    def parameters_of(self, rule: str) -> Any:
        """Return the rule's parameters; KeyError when its configuration is at fault."""
        return self.parameters[rule]

    def episode_of(self, rule: str) -> int:
        """Return the job's current episode of a rule."""
        return self.episodes.get(rule, 0)


def plan_rules(job: JobRecord, *, defaults: Defaults = "documented", prices: PriceTable | None = None) -> RulePlan:
    """Resolve a job's settings against the rules' own parameter classes."""
    parameters, found = resolve_parameters(job.rule_settings, defaults)
    faults = {rule: fault.given_by(job.setting_sources.get(fault.field)) for rule, fault in found.items()}
    interval_ms = job.profiling_interval_ms
    invoked = _invoked(parameters)
    job_rules = tuple(rule for rule in JOB_RULES if rule.name in invoked)
    return RulePlan(
        system=tuple(rule for rule in SYSTEM_RULES if rule.name in invoked),
        framework=tuple(rule for rule in FRAMEWORK_RULES if rule.name in invoked),
        job=job_rules,
        joined=tuple(rule for rule in job_rules if isinstance(rule, JoinedRule)),
        parameters=parameters,
        faults=faults,
        episodes=job.episodes,
        interval_s=DEFAULT_INTERVAL_S if interval_ms is None else max(interval_ms, SHORTEST_CONFIGURED_MS) / 1_000.0,
        disabled=tuple(rule for rule in RULE_NAMES if rule not in invoked),
        prices=prices,
    )


def _invoked(parameters: Mapping[str, RuleParameters]) -> tuple[str, ...]:
    """Return the rules that the report runs; all of them when its own configuration is at fault."""
    report = parameters.get(PROFILER_REPORT)
    if isinstance(report, ReportParameters) and report.rule_to_invoke != PROFILER_REPORT:
        return (report.rule_to_invoke,)
    return RULE_NAMES


def only(plan: RulePlan, rule: AnySystemRule | AnyFrameworkRule | AnyJobRule, parameters: RuleParameters) -> RulePlan:
    """Return the plan with one rule in place of all, which need be none of the registry."""
    return replace(
        plan,
        system=(rule,) if isinstance(rule, SystemRule) else (),
        framework=(rule,) if isinstance(rule, FrameworkRule) else (),
        job=(rule,) if isinstance(rule, JobRule) else (),
        joined=(rule,) if isinstance(rule, JoinedRule) else (),
        parameters={PROFILER_REPORT: plan.parameters[PROFILER_REPORT], rule.name: parameters},
        faults={},
        disabled=(),
    )
