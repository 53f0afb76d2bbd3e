"""Runs a rule over a synthetic job as a deployment does."""

from collections.abc import Callable, Mapping
from types import ModuleType

from trainguard.core.errors import SyntheticRunError
from trainguard.core.records import entry_in
from trainguard.rules.extension import AnyRule, check_rule, rules_of
from trainguard.rules.parameters import parameters_of
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import RESERVED_NAMES
from trainguard.testing.deployment import Deployment, Watch
from trainguard.testing.job import SyntheticJob
from trainguard.testing.outcome import Alert, Outcome

Parameters = Mapping[str, object] | RuleParameters | None


def run_rule(
    rule: AnyRule, job: SyntheticJob, parameters: Parameters = None, *, ended: bool = True, seed: int | None = None
) -> Outcome:
    """Run one rule over a job, through the engine that is deployed, on stores in memory.

    Objects appear as the job writes them, the scheduler runs each minute, and at the end the job is closed. From one
    evaluation to the next the rule keeps nothing but its state.

    Parameters
    ----------
    parameters : mapping or RuleParameters, optional
        By name, for example ``{"threshold": 80.0}``; a mapping is read as settings are. Else the rule's defaults.
    ended : bool
        Whether the job ends; False leaves it running after its last object.
    seed : int, optional
        Draws how late messages arrive, in which order, and which come twice; None delivers them in order.

    Raises
    ------
    RuleLoadError
        When the rule breaks the protocol of rules.
    RuleConfigError
        When a parameter is unknown, or has a value that it cannot have.
    SyntheticRunError
        When the engine itself failed, which is a defect of TrainGuard.
    """
    check_rule(rule)
    chosen = _parameters(rule, parameters)
    watch = Watch(rule)
    deployment = Deployment(watch, chosen, job, seed=seed)
    deployment.run(ended=ended)
    if deployment.failures:
        raise SyntheticRunError(rule.name, deployment.failures)
    entries = [entry_in(each) for each in deployment.alerts if each["rule"] == rule.name]
    alerts = tuple(Alert(each.kind, each.enqueued_at - job.start, each.finding) for each in entries)
    return Outcome(rule.name, deployment.rows, alerts, tuple(watch.raised))


def _parameters(rule: AnyRule, given: Parameters) -> RuleParameters:
    if isinstance(given, RuleParameters):
        return given
    settings = {f"{rule.name}_{name}": str(value) for name, value in (given or {}).items()}
    return parameters_of(rule.name, rule.parameters_type, settings)


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
