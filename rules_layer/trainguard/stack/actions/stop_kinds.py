"""Whether a fire stops its job: a SageMaker training job, or one elsewhere, within the hour's limit."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from trainguard.core.ports import ResourceState, TrainingJobDescription
from trainguard.core.records import OUTSIDE_ARN
from trainguard.core.stores import StopBudget
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import decide_stop, over_stop_rate, unwarned
from trainguard.stack.actions.stop_preconditions import StopPreconditions
from trainguard.stack.actions.stop_resources import decide_resource_stop, identity_of, split_resources
from trainguard.stack.actions.stop_switch import StopSwitches


@dataclass(frozen=True, slots=True)
class StopServices:
    """Sources of a decision; ``kinds`` are those that the deployment may stop, ``resources`` states by kind."""

    training_job: Callable[[str], TrainingJobDescription | None]
    resources: Mapping[str, Callable[[Sequence[str]], list[ResourceState]]]
    switches: Callable[[], StopSwitches]
    kinds: Collection[str]


def decide_within_stop_rate(
    case: StopCase, services: StopServices, budget: StopBudget, limit: int, *, known: StopPreconditions, now: float
) -> StopDecision:
    """Decide within ``limit`` stops an hour; raises PortUnavailableError, StateConflictError, undecided then."""
    if not case.warned:
        return unwarned()
    decision, identity = decide_any_stop(case, services, known=known, now=now)
    if decision.stop and not budget.take(case.fire_id, identity, now=now, limit=limit):
        return over_stop_rate(limit)
    return decision


def decide_any_stop(
    case: StopCase, services: StopServices, *, known: StopPreconditions, now: float
) -> tuple[StopDecision, str]:
    """Return the decision and the identity that counts as one stop; raises PortUnavailableError."""
    if not case.job_arn.startswith(OUTSIDE_ARN) or not services.kinds:
        description = services.training_job(case.job)
        return decide_stop(case, description, services.switches(), known=known, now=now), case.identity
    kind, identities = split_resources(() if known.job is None else known.job.resources)
    found = services.resources[kind](identities) if kind in services.kinds and identities else []
    decision = decide_resource_stop(case, found, services.switches(), kinds=services.kinds, known=known, now=now)
    return decision, identity_of(case, decision) if decision.resources else case.identity
