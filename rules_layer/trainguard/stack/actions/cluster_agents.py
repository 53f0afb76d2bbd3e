"""What a cluster's agent writes about resources whose owners opted in, and the requests that it carries out.

The stack reaches no cluster. The agent writes each such resource's state, and reads its cluster's requests. Of an
answer only one can write the first: the agent, before it acts, or the stack, when the time for it is over. So what the
stack gave up on is never done later, whatever the agent's clock says. Agents write JSON, and may be of another version:
what cannot be read is no state, and no answer.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from trainguard.core.errors import PortUnavailableError
from trainguard.core.ports import ResourceState
from trainguard.engine.settings.tag_names import EXEMPT_TAG, JOB_TAG, STOP_ALLOWED, STOP_TAG
from trainguard.stack.actions.request import FireInput, StopResult
from trainguard.stack.actions.stop_resources import ResourceDecision

# An agent that wrote no state for so long does not run.
AGENT_SILENT_S = 600.0

# So long the stack waits for the end of what the agent has begun.
DONE_WITHIN_S = 120.0

_Text = Annotated[str, msgspec.Meta(max_length=512)]


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """A resource; ``job`` as in the tag ``trainguard:job``, times in epoch seconds.

    ``action`` is what the owner allows, empty without an opt-in. ``resource`` is what is acted on: of a pod, its node.
    """

    resource: _Text
    action: _Text
    status: _Text
    runs: bool
    at: float
    job: _Text | None = None
    exempt: bool = False
    started_at: float | None = None


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is asked to do by ``expires_at``, to what runs since ``started_at``: epoch seconds."""

    id: str
    resource: str
    action: str
    job: str
    rule: str
    started_at: float | None
    expires_at: float
    schema_version: Literal[1] = 1


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request: ``begun`` before it acts, ``closed`` where the stack gave up first."""

    stage: Literal["begun", "done", "refused", "closed"]
    why: _Text = ""


class ClusterDesk(Protocol):
    """Where the stack and the agents of clusters meet; every method raises PortUnavailableError."""

    def state(self, cluster: str, resource: str) -> AgentState | None:
        """Return what the cluster's agent wrote last about a resource."""

    def ask(self, cluster: str, request: AgentRequest) -> None:
        """Leave a request, once however often it is asked."""

    def answer(self, cluster: str, request_id: str) -> AgentAnswer | None:
        """Return what has come of a request."""

    def close(self, cluster: str, request_id: str) -> bool:
        """Forbid the agent to begin; False where it has."""


def resource_states(desk: ClusterDesk, kind: str, identities: Sequence[str], now: float) -> list[ResourceState]:
    """Return the state of each ``<cluster>/<resource>`` that an agent names; ``now`` in epoch seconds."""
    found = []
    for identity in identities:
        cluster, _, resource = identity.partition("/")
        state = desk.state(cluster, resource)
        if state is not None:
            found.append(_resource_state(kind, identity, cluster, state, now))
    return found


def _resource_state(kind: str, identity: str, cluster: str, state: AgentState, now: float) -> ResourceState:
    tags = ({STOP_TAG: STOP_ALLOWED} if state.action else {}) | ({EXEMPT_TAG: "true"} if state.exempt else {})
    is_old = now - state.at > AGENT_SILENT_S
    return ResourceState(
        kind=kind,
        identity=identity,
        tags=tags if state.job is None else tags | {JOB_TAG: state.job},
        status=state.status,
        runs=state.runs,
        started_at=state.started_at,
        objection=f"was not looked at for {(now - state.at) / 60.0:.0f} min: no agent runs on {cluster}"
        if is_old
        else None,
        action=state.action,
        target=f"{cluster}/{state.resource}",
    )


def asked(desk: ClusterDesk, fire: FireInput, decision: ResourceDecision, now: float) -> StopResult:
    """Ask the cluster's agent, and return its answer, ``pending`` while there is none; raises PortUnavailableError.

    Called again and again until the result is not pending; no call asks for more than the first one did.
    """
    try:
        return _asked(desk, fire, decision, now)
    except PortUnavailableError:
        if now < (decision.expires_at or 0.0) + DONE_WITHIN_S:
            return StopResult(pending=True)
        raise


def _asked(desk: ClusterDesk, fire: FireInput, decision: ResourceDecision, now: float) -> StopResult:
    cluster, _, resource = decision.resources[0].partition("/")
    expires_at = decision.expires_at or 0.0
    answer = desk.answer(cluster, fire.fire_id)
    if answer is None and now >= expires_at:
        if not desk.close(cluster, fire.fire_id):
            return StopResult(pending=True)
        answer = AgentAnswer(stage="closed")
    if answer is None:
        request = AgentRequest(
            id=fire.fire_id,
            resource=resource,
            action=decision.action,
            job=fire.job,
            rule=fire.rule,
            started_at=decision.started_at,
            expires_at=expires_at,
        )
        desk.ask(cluster, request)
    if answer is None or (answer.stage == "begun" and now < expires_at + DONE_WITHIN_S):
        return StopResult(pending=True)
    if answer.stage == "begun":
        return StopResult(made=None, error=f"the agent of {cluster} began, and did not say what came of it")
    if answer.stage == "done":
        return StopResult(made=True)
    return StopResult(made=False, error=answer.why or f"the agent of {cluster} did not take the request")
