"""The organisation's stop rate limit: a rule that errs must not stop what trains in all accounts.

The central account counts, and holds the limit: no account can raise it. An account whose question gets no answer stops
nothing.
"""

from typing import Annotated, Protocol

import msgspec

from trainguard.core.stores import StopBudget
from trainguard.stack.actions.request import StopDecision

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_048)]


class StopRequest(msgspec.Struct, frozen=True):
    """Asks for one stop; ``asker`` is the ARN of the function that asks, and sets apart what accounts name alike."""

    asker: Text
    fire_id: Text
    job: Text


class Admission(msgspec.Struct, frozen=True):
    """Whether the stop is admitted, within ``limit`` an hour."""

    admitted: bool
    limit: int


class StopLimit(Protocol):
    """The central account's answer."""

    def ask(self, request: StopRequest) -> Admission:
        """Ask for one stop, once a job and fire; raises PortUnavailableError."""


def admission(request: StopRequest, budget: StopBudget, *, limit: int, now: float) -> Admission:
    """Take one of the organisation's stops, if one is left; raises StateConflictError, PortUnavailableError."""
    fire_id, job = f"{request.asker}/{request.fire_id}", f"{request.asker}/{request.job}"
    return Admission(budget.take(fire_id, job, now=now, limit=limit), limit)


def within_organisation(
    stop_limit: StopLimit | None, asker: str, fire_id: str, decision: StopDecision, job: str
) -> StopDecision:
    """Return the decision, or a refusal where a stop finds no room within the limit; raises PortUnavailableError."""
    if stop_limit is None or not decision.stop:
        return decision
    answer = stop_limit.ask(StopRequest(asker, fire_id, job))
    if answer.admitted:
        return decision
    why = f"the organisation makes at most {answer.limit} stops an hour, and the last hour has had them"
    return StopDecision(False, "refused", why, opted_in=True)
