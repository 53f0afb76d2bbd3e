"""Whether a fire may stop what a job outside SageMaker runs on: AWS Batch, EC2, or a cluster with an agent.

Anybody who may write a profile may write their names into ``job.json``. So the owner of each resource opts in by its
tags, which IAM checks once more, and names in a tag the job whose fires may stop it. A resource that started after the
profile began is another than the profile is of. All of them are stopped, or none.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.core.ports import ResourceState, TrainingJobDescription
from trainguard.core.records import JOB_NODE, OUTSIDE_ARN
from trainguard.core.stores import StopBudget
from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.engine.settings.tag_names import EXEMPT_TAG, JOB_TAG, STOP_ALLOWED, STOP_TAG, from_tag
from trainguard.rules.hung_job.text import GPU_FAULTS
from trainguard.stack.actions.request import StopCase, StopDecision
from trainguard.stack.actions.stop import StopPreconditions, StopTarget, decide, decide_stop, over_stop_rate
from trainguard.stack.actions.stop_switch import StopSwitches

# A stop outside SageMaker always has a warning, so that a checkpoint can be saved.
LEAST_GRACE_S = 600.0

# How far a node's clock may be behind its service's.
CLOCKS_APART_S = 60.0

# What a cluster's agent, which looks every 15 s, has not begun by then is not done.
TAKEN_WITHIN_S = 180.0

MOST_RESOURCES = 64
_CHECKPOINT = {
    "batch-job": "the job gets SIGTERM 30 s before SIGKILL, so save a checkpoint before",
    "instance": "instance store volumes lose their data, so save a checkpoint elsewhere before",
    "workload": "its processes end, so save a checkpoint before",
    "node": "what runs there may end, so save a checkpoint before",
}

# A broken GPU is the one finding whose cause is a node.
_NODE_RULE = "GPUHealth"


class ResourceDecision(StopDecision, frozen=True, rename="camel"):
    """A decision about resources, by their identities.

    On a cluster, whose agent acts until ``expires_at``, what ``started_at`` another time is another run: epoch seconds.
    """

    resources: tuple[str, ...] = ()
    started_at: float | None = None
    expires_at: float | None = None


def split_resources(named: Sequence[str]) -> tuple[str, list[str]]:
    """Return the kind of the resources that a job's item names, and their identities; a job has one kind."""
    kind = named[0].partition("/")[0] if named else ""
    return kind, [each.partition("/")[2] for each in named if each.startswith(f"{kind}/")]


def decide_resource_stop(
    case: StopCase,
    found: Sequence[ResourceState],
    switch: StopSwitches,
    *,
    kinds: Collection[str],
    known: StopPreconditions,
    now: float,
    node: str | None = None,
) -> ResourceDecision:
    """Decide whether a fire stops its job's resources of ``kinds``, as described now, or acts on ``node``."""
    named = () if known.job is None else known.job.resources
    named = named if node is None else (f"node/{node}",)
    kind, identities = split_resources(named)
    by_identity = {each.identity: each for each in found}
    resources = [by_identity.get(identity, identity) for identity in identities]
    first = found[0] if found else None
    target = StopTarget(
        forbidden=_objection_of_deployment(case, kind, identities, kinds),
        unfit=next(filter(None, (_objection_of(case, each, known) for each in resources)), None),
        opted_in=bool(found) and all(each.tags.get(STOP_TAG) == STOP_ALLOWED for each in found),
        allowed=f"{_allowed(kind, identities, first)}, and its grace time is over",
        grace_s=max(case.policy.stops.grace_s, LEAST_GRACE_S),
        hint=_CHECKPOINT.get(kind, ""),
    )
    outcome = msgspec.structs.asdict(decide(case, target, switch, known=known, now=now))
    if first is not None and first.target is not None:
        outcome |= {"action": first.action, "started_at": first.started_at, "expires_at": now + TAKEN_WITHIN_S}
        identities = [first.target]
    return ResourceDecision(**outcome | {"kind": kind, "resources": tuple(identities)})


def _allowed(kind: str, identities: Sequence[str], first: ResourceState | None) -> str:
    if first is not None and first.action:
        return f"its owner allows to {first.action} {kind} {first.target}"
    more = f" and {len(identities) - 1} more" if len(identities) > 1 else ""
    return f"{STOP_TAG} is {STOP_ALLOWED!r} on {kind} {''.join(identities[:1])}{more}"


def identity_of(case: StopCase, decision: ResourceDecision) -> str:
    """Return what the stop rate limit counts as one: a job's resources, which a later job of its name does not have."""
    return f"{case.job_arn} {decision.kind}/{decision.resources[0]}"


def _objection_of_deployment(
    case: StopCase, kind: str, identities: Sequence[str], kinds: Collection[str]
) -> str | None:
    if not identities:
        return f"SageMaker does not know a training job {case.job}, and its job.json names nothing to stop"
    if kind not in kinds:
        return f"this deployment may not stop resources of the kind {kind}"
    if len(identities) > MOST_RESOURCES:
        return f"{counted(len(identities), kind)} are named, expected at most {MOST_RESOURCES}"
    return None


def _objection_of(case: StopCase, resource: ResourceState | str, known: StopPreconditions) -> str | None:
    if isinstance(resource, str):
        if known.job is not None and split_resources(known.job.resources)[0] == "workload":
            return f"its owner has not opted in: no agent names {resource}"
        return f"there is no {resource} in this account and Region"
    name = f"{resource.kind} {resource.identity}"
    reason = _objection_of_tags(case, name, resource)
    if reason is not None:
        return reason
    if not resource.runs:
        return f"{name} is {resource.status}, and does not run"
    if resource.objection is not None:
        return f"{name} {resource.objection}"
    return _objection_of_identity(case, resource, known)


def _objection_of_tags(case: StopCase, name: str, resource: ResourceState) -> str | None:
    tags = resource.tags
    if tags.get(STOP_TAG) != STOP_ALLOWED:
        given = tags.get(STOP_TAG)
        held = "has no tag" if given is None else f"has the value {given!r} in its tag"
        return f"its owner has not opted in: {name} {held} {STOP_TAG}, expected {STOP_ALLOWED!r}"
    if EXEMPT_TAG in tags:
        return f"{name} is exempt by its tag {EXEMPT_TAG}"
    if from_tag(tags.get(JOB_TAG, "")) != case.job:
        if resource.kind == "node":
            return f"nothing of job {case.job} runs on {resource.target}, as far as its agent says"
        return f"the tag {JOB_TAG} of {name} is {tags.get(JOB_TAG)!r}, expected {case.job!r}"
    return None


def _objection_of_identity(case: StopCase, resource: ResourceState, known: StopPreconditions) -> str | None:
    """Return why the profile may be of an earlier run: the resource started after it began."""
    starts = [case.entry.enqueued_at]
    if known.job is not None and known.job.started_at is not None:
        starts.append(known.job.started_at)
    if known.row is not None:
        starts += [episode.start for episode in known.row.finding.episodes[-1:]]
    began = min(starts)
    if resource.started_at is None:
        return f"it is not known since when {resource.kind} {resource.identity} runs"
    if resource.started_at > began + CLOCKS_APART_S:
        since = iso_time(resource.started_at)
        return f"{resource.kind} {resource.identity} runs since {since}, and the profile began by {iso_time(began)}"
    return None


@dataclass(frozen=True, slots=True)
class StopServices:
    """Sources of a decision; ``kinds`` are those that the deployment may stop, ``resources`` states by kind."""

    training_job: Callable[[str], TrainingJobDescription | None]
    resources: Mapping[str, Callable[[Sequence[str]], list[ResourceState]]]
    switches: Callable[[], StopSwitches]
    kinds: Collection[str]


def decide_within_stop_rate(
    case: StopCase,
    services: StopServices,
    budget: StopBudget,
    limit: int,
    *,
    known: StopPreconditions,
    now: float,
) -> tuple[StopDecision, str]:
    """Decide within ``limit`` stops an hour; also return the identity that counts as one stop.

    Raises PortUnavailableError, StateConflictError: undecided then.
    """
    if not case.warned:
        refused = StopDecision(False, "refused", "the warning of the stop could not be sent", opted_in=True)
        return refused, case.identity
    decision, identity = decide_any_stop(case, services, known=known, now=now)
    if decision.stop and not budget.take(case.fire_id, identity, now=now, limit=limit):
        return over_stop_rate(limit), identity
    return decision, identity


def decide_any_stop(
    case: StopCase, services: StopServices, *, known: StopPreconditions, now: float
) -> tuple[StopDecision, str]:
    """Return the decision and the identity that counts as one stop; raises PortUnavailableError."""
    if not case.job_arn.startswith(OUTSIDE_ARN) or not services.kinds:
        description = services.training_job(case.job)
        return decide_stop(case, description, services.switches(), known=known, now=now), case.identity
    named = () if known.job is None else known.job.resources
    node = _node_of(case, named, known) if "node" in services.kinds else None
    if node is not None and _names_job(services, named, case) and (found := services.resources["node"]([node])):
        decision = decide_resource_stop(
            case, found, services.switches(), kinds=services.kinds, known=known, now=now, node=node
        )
        return decision, identity_of(case, decision)
    kind, identities = split_resources(named)
    found = services.resources[kind](identities) if kind in services.kinds and identities else []
    decision = decide_resource_stop(case, found, services.switches(), kinds=services.kinds, known=known, now=now)
    return decision, identity_of(case, decision) if decision.resources else case.identity


def _names_job(services: StopServices, named: Sequence[str], case: StopCase) -> bool:
    """Whether the workload's owner says that it is of this job: else a profile could name anybody's node."""
    states = services.resources["workload"](split_resources(named)[1][:1])
    return any(from_tag(each.tags.get(JOB_TAG, "")) == case.job for each in states)


def _node_of(case: StopCase, named: Sequence[str], known: StopPreconditions) -> str | None:
    """Return ``<cluster>/unit/<unit>`` of the node that a fire finds broken; None where no node is the cause."""
    kind, identities = split_resources(named)
    row = known.node_row or known.row
    if kind != "workload" or case.rule != _NODE_RULE or case.node == JOB_NODE or row is None:
        return None
    if row.finding.finding_kind not in GPU_FAULTS:
        return None
    cluster, _, workload = identities[0].partition("/")
    parts = workload.split("/")
    return f"{cluster}/unit/{workload if parts[0] == 'slurm' else parts[1]}/{case.node}"
