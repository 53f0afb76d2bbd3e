"""The profiler's rules of a plan by what they look at."""

from trainguard.engine.plan import RulePlan
from trainguard.records import FIRST_FAMILY
from trainguard.rules.protocol import (
    AnyFrameworkRule,
    AnyJobRule,
    AnyJoinedRule,
    AnySystemRule,
    FrameworkRule,
    JobRule,
    JoinedRule,
    SystemRule,
)


def system_rules(plan: RulePlan) -> tuple[AnySystemRule, ...]:
    """Return the rules over a node's system metrics."""
    return tuple(rule for rule in plan.rules_of(FIRST_FAMILY) if isinstance(rule, SystemRule))


def framework_rules(plan: RulePlan) -> tuple[AnyFrameworkRule, ...]:
    """Return the rules over a node's framework events."""
    return tuple(rule for rule in plan.rules_of(FIRST_FAMILY) if isinstance(rule, FrameworkRule))


def job_rules(plan: RulePlan) -> tuple[AnyJobRule, ...]:
    """Return the rules over the whole job."""
    return tuple(rule for rule in plan.rules_of(FIRST_FAMILY) if isinstance(rule, JobRule))


def compared_rules(plan: RulePlan) -> frozenset[str]:
    """Return the names of the rules over system metrics whose states a rule over the whole job compares."""
    return frozenset(rule.name for rule in job_rules(plan)) & frozenset(rule.name for rule in system_rules(plan))


def joined_rules(plan: RulePlan) -> tuple[AnyJoinedRule, ...]:
    """Return the rules over the whole job that collect from framework events."""
    return tuple(rule for rule in plan.rules_of(FIRST_FAMILY) if isinstance(rule, JoinedRule))
