"""Which rules run on a job, with which parameters, and what is wrong with their settings."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from trainguard.core.errors import RuleConfigError
from trainguard.core.records import FIRST_FAMILY, JobRecord
from trainguard.formats.profile.assemble import SHORTEST_CONFIGURED_MS
from trainguard.pricing.table import PriceTable
from trainguard.rules import protocol
from trainguard.rules.parameters import Defaults, parameters_of, resolve_parameters
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters

DEFAULT_INTERVAL_S = 0.5


@dataclass(frozen=True)
class RulePlan:
    """The rules of one job by family; ``episodes`` are current numbers by rule.

    ``interval_s`` stands in until the data show the sampling interval. ``disabled`` do not run because only another was
    asked for, ``unchosen`` because the owner did not choose them. ``by_event_time`` is for a job without a scheduler.
    """

    by_family: Mapping[str, tuple[protocol.AnyRule, ...]]
    parameters: Mapping[str, protocol.RuleParameters]
    faults: Mapping[str, RuleConfigError]
    episodes: Mapping[str, int]
    interval_s: float
    disabled: tuple[str, ...] = ()
    unchosen: tuple[str, ...] = ()
    prices: PriceTable | None = None
    detailed: bool = True
    by_event_time: bool = False

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule.name for rules in self.by_family.values() for rule in rules))

    @cached_property
    def node_rules(self) -> frozenset[str]:
        every = (rule for rules in self.by_family.values() for rule in rules)
        return frozenset(rule.name for rule in every if not isinstance(rule, protocol.JobRule))

    @cached_property
    def system_rules(self) -> tuple[protocol.AnySystemRule, ...]:
        return tuple(rule for rule in self.rules_of(FIRST_FAMILY) if isinstance(rule, protocol.SystemRule))

    @cached_property
    def framework_rules(self) -> tuple[protocol.AnyFrameworkRule, ...]:
        return tuple(rule for rule in self.rules_of(FIRST_FAMILY) if isinstance(rule, protocol.FrameworkRule))

    @cached_property
    def job_rules(self) -> tuple[protocol.AnyJobRule, ...]:
        return tuple(rule for rule in self.rules_of(FIRST_FAMILY) if isinstance(rule, protocol.JobRule))

    @cached_property
    def joined_rules(self) -> tuple[protocol.AnyJoinedRule, ...]:
        return tuple(rule for rule in self.rules_of(FIRST_FAMILY) if isinstance(rule, protocol.JoinedRule))

    @cached_property
    def compared_rules(self) -> frozenset[str]:
        """The rules over system metrics whose states a rule over the whole job compares."""
        return frozenset(rule.name for rule in self.job_rules) & frozenset(rule.name for rule in self.system_rules)

    def rules_of(self, family: str) -> tuple[protocol.AnyRule, ...]:
        return self.by_family.get(family, ())

    def rule_of_state(self, state_type: type[msgspec.Struct]) -> str | None:
        every = (rule for rules in self.by_family.values() for rule in rules)
        return next((rule.name for rule in every if getattr(rule, "state_type", None) is state_type), None)

    def parameters_of(self, rule: str) -> Any:
        """Return the rule's parameters; KeyError when its configuration is at fault."""
        return self.parameters[rule]

    def episode_of(self, rule: str) -> int:
        return self.episodes.get(rule, 0)


def plan_rules(
    job: JobRecord,
    rules: Mapping[str, tuple[protocol.AnyRule, ...]],
    *,
    others: Collection[str] = (),
    groups: Mapping[str, type[protocol.RuleParameters]] | None = None,
    defaults: Defaults = "documented",
    prices: PriceTable | None = None,
) -> RulePlan:
    """Resolve a job's settings; ``others`` are all rules' names, ``groups`` settings that are no rule's."""
    every = {rule.name: rule for of_family in rules.values() for rule in of_family}
    types = {**{name: rule.parameters_type for name, rule in every.items()}, **(groups or {})}
    parameters, found = _resolved(tuple(job.rule_settings.items()), tuple(types.items()), defaults)
    faults = {rule: fault.given_by(job.setting_sources.get(fault.field)) for rule, fault in found.items()}
    of_profiler = tuple(dict.fromkeys(rule.name for rule in rules.get(FIRST_FAMILY, ())))
    invoked = _invoked(parameters, of_profiler)
    interval_ms = job.profiling_interval_ms
    return RulePlan(
        by_family={
            family: tuple(rule for rule in of_family if family != FIRST_FAMILY or rule.name in invoked)
            for family, of_family in rules.items()
        },
        parameters=parameters,
        faults=faults,
        episodes=job.episodes,
        interval_s=DEFAULT_INTERVAL_S if interval_ms is None else max(interval_ms, SHORTEST_CONFIGURED_MS) / 1_000.0,
        disabled=tuple(rule for rule in of_profiler if rule not in invoked),
        unchosen=tuple(rule for rule in others if rule not in every),
        prices=prices,
    )


@lru_cache(maxsize=32)
def _resolved(
    settings: tuple[tuple[str, str], ...],
    types: tuple[tuple[str, type[protocol.RuleParameters]], ...],
    defaults: Defaults,
) -> tuple[Mapping[str, protocol.RuleParameters], Mapping[str, RuleConfigError]]:
    """Return the parameters of each rule, and what is wrong with those of others; jobs are evaluated each minute."""
    parameters, found = resolve_parameters(dict(settings), defaults)
    for name, kind in types:
        if name not in parameters and name not in found:
            try:
                parameters[name] = parameters_of(name, kind, dict(settings))
            except RuleConfigError as fault:
                found[name] = fault
    return parameters, found


def _invoked(parameters: Mapping[str, protocol.RuleParameters], every: tuple[str, ...]) -> tuple[str, ...]:
    """Return the profiler rules that the report runs; all of them when its own configuration is at fault."""
    report = parameters.get(PROFILER_REPORT)
    if isinstance(report, ReportParameters) and report.rule_to_invoke != PROFILER_REPORT:
        return (report.rule_to_invoke,)
    return every


def only(plan: RulePlan, rule: protocol.AnyRule, parameters: protocol.RuleParameters) -> RulePlan:
    """Return the plan with one rule in place of all, which need be none of the registry."""
    return replace(
        plan,
        by_family={family: (rule,) if family == FIRST_FAMILY else () for family in plan.by_family},
        parameters={PROFILER_REPORT: plan.parameters[PROFILER_REPORT], rule.name: parameters},
        faults={},
        disabled=(),
    )
