"""Whether a fire stops its job: a SageMaker training job, or what runs a job elsewhere, within the hour's ceiling."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from trainguard.actions.request import StopCase, StopDecision
from trainguard.actions.stop import decide_stop, over_ceiling
from trainguard.actions.stop_preconditions import StopPreconditions
from trainguard.actions.stop_resources import decide_resource_stop, identity_of, split_resources
from trainguard.actions.stop_switch import StopSwitches
from trainguard.ports import ResourceState, TrainingJobDescription
from trainguard.records import OUTSIDE_ARN
from trainguard.stores import StopBudget


@dataclass(frozen=True, slots=True)
class StopServices:
    """What a decision asks.

    Attributes
    ----------
    training_job : function
        From a job's name to SageMaker's description, None where SageMaker does not know it.
    resources : mapping of str to function
        By kind, from identities to what their service says of them.
    switches : function
        The deployment's stop switch and its override, as they are now.
    kinds : collection of str
        The kinds of resources that the deployment may stop.
    """

    training_job: Callable[[str], TrainingJobDescription | None]
    resources: Mapping[str, Callable[[Sequence[str]], list[ResourceState]]]
    switches: Callable[[], StopSwitches]
    kinds: Collection[str]


def decide_within_ceiling(
    case: StopCase, services: StopServices, budget: StopBudget, limit: int, *, known: StopPreconditions, now: float
) -> StopDecision:
    """Return the decision on a fire; one that stops has taken one of ``limit`` stops of the hour.

    Raises
    ------
    PortUnavailableError
        When a service does not answer: nothing is decided then, and nothing is stopped.
    StateConflictError
        When other fires took stops at the same time, each time.
    """
    decision, identity = decide_any_stop(case, services, known=known, now=now)
    if decision.stop and not budget.take(case.fire_id, identity, now=now, limit=limit):
        return over_ceiling(limit)
    return decision


def decide_any_stop(
    case: StopCase, services: StopServices, *, known: StopPreconditions, now: float
) -> tuple[StopDecision, str]:
    """Return the decision on a fire, and the identity that the ceiling counts as one stop.

    A job that SageMaker does not know may run elsewhere. Its resources are asked about only where the deployment may
    stop some.

    Parameters
    ----------
    case : StopCase
    services : StopServices
    known : StopPreconditions
    now : float
        Epoch seconds.

    Raises
    ------
    PortUnavailableError
        When a service does not answer: nothing is decided then, and nothing is stopped.
    """
    if not case.job_arn.startswith(OUTSIDE_ARN) or not services.kinds:
        description = services.training_job(case.job)
        return decide_stop(case, description, services.switches(), known=known, now=now), case.identity
    kind, identities = split_resources(() if known.job is None else known.job.resources)
    found = services.resources[kind](identities) if kind in services.kinds and identities else []
    decision = decide_resource_stop(case, found, services.switches(), kinds=services.kinds, known=known, now=now)
    return decision, identity_of(case, decision) if decision.resources else case.identity
