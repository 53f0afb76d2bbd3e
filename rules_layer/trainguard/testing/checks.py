"""Checks that take more than one run, or a whole package."""

from collections.abc import Callable
from types import ModuleType

from trainguard.rules.extension import AnyRule, rules_of
from trainguard.rules.registry import RESERVED_NAMES
from trainguard.testing.job import SyntheticJob
from trainguard.testing.outcome import Outcome
from trainguard.testing.run import Parameters, run_rule


def assert_boundary(
    rule: AnyRule,
    job_at: Callable[[float], SyntheticJob],
    *,
    quiet_at: float,
    fires_at: float,
    parameters: Parameters = None,
) -> None:
    """Check where a rule begins to fire: not at ``quiet_at``, but at ``fires_at``, on the job of ``job_at(value)``."""
    for value, fires in ((quiet_at, False), (fires_at, True)):
        outcome = run_rule(rule, job_at(value), parameters)
        try:
            outcome.assert_fired() if fires else outcome.assert_not_fired()
        except AssertionError as fault:
            raise AssertionError(f"at {value:g}: {fault}") from fault.__cause__


def assert_delivery_makes_no_difference(
    rule: AnyRule, job: SyntheticJob, parameters: Parameters = None, *, seeds: int = 3
) -> Outcome:
    """Check that a rule says the same in ``seeds`` late and disordered deliveries; return that outcome."""
    expected = run_rule(rule, job, parameters)
    for seed in range(seeds):
        found = run_rule(rule, job, parameters, seed=seed)
        for was, now in zip(_shown(expected), _shown(found), strict=True):
            if was != now:
                raise AssertionError(f"{rule.name} says {now} when messages are late (seed {seed}), and else {was}")
    return expected


def check_package(package: ModuleType) -> tuple[str, ...]:
    """Return the names of a package's rules, as a deployment would find them; raises RuleLoadError."""
    return tuple(rule.name for rule in rules_of(package, RESERVED_NAMES))


def _shown(outcome: Outcome) -> tuple[object, ...]:
    rows = tuple(
        (
            row.target,
            row.status,
            row.finding.reason,
            row.finding.measured,
            row.worst,
            row.data_points,
            row.times_fired,
            row.fired_at,
        )
        for row in outcome.rows
    )
    return (*rows, sorted((each.kind.value, each.at_s, each.finding.reason) for each in outcome.fires))
