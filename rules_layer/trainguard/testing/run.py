"""Runs a rule over a synthetic job as a deployment does."""

from collections.abc import Mapping
from typing import Any

from trainguard.core.errors import SyntheticRunError
from trainguard.core.records import entry_in
from trainguard.rules.extension import AnyRule, check_rule
from trainguard.rules.parameters import parameters_of
from trainguard.rules.protocol import RuleParameters
from trainguard.testing.deployment import Deployment
from trainguard.testing.job import SyntheticJob
from trainguard.testing.outcome import Alert, Outcome
from trainguard.testing.watched import Watch

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
    alerts = tuple(_alert(each, job.start) for each in deployment.alerts if each["rule"] == rule.name)
    return Outcome(rule.name, deployment.rows, alerts, tuple(watch.raised))


def _parameters(rule: AnyRule, given: Parameters) -> RuleParameters:
    if isinstance(given, RuleParameters):
        return given
    settings = {f"{rule.name}_{name}": str(value) for name, value in (given or {}).items()}
    return parameters_of(rule.name, rule.parameters_type, settings)


def _alert(payload: Mapping[str, Any], start: int) -> Alert:
    entry = entry_in(payload)
    return Alert(kind=entry.kind, at_s=entry.enqueued_at - start, finding=entry.finding)
