"""A cluster and its stack's desk in memory: a call may fail before or after its effect, or end the process."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainguard.stack.actions.cluster_agents import AgentAnswer, AgentRequest, AgentState
from trainguard.stack.actions.stop_switch import StopSwitches
from trainguard_collector.agent.resources import ChangedError, Request, Resource


class Died(BaseException):
    """The agent's process ends here."""


# What goes wrong at a call: its name, and whether its effect has come by then.
Fault = Callable[[str, bool], None]


def no_fault(_: str, __: bool) -> None:
    return


@dataclass
class MemoryDesk:
    """Both sides of the desk."""

    switches: Callable[[], StopSwitches] = lambda: StopSwitches("enabled")
    fault: Fault = no_fault
    states: dict[tuple[str, str], AgentState] = field(default_factory=dict)
    asked: dict[str, AgentRequest] = field(default_factory=dict)
    answers: dict[str, AgentAnswer] = field(default_factory=dict)
    cluster: str = "prod"

    # The stack's side.

    def state(self, cluster: str, resource: str) -> AgentState | None:
        return self.states.get((cluster, resource))

    def ask(self, cluster: str, request: AgentRequest) -> None:
        assert cluster == self.cluster
        self.fault("stack", False)
        self.asked.setdefault(request.id, request)
        self.fault("stack", True)

    def answer(self, cluster: str, request_id: str) -> AgentAnswer | None:
        self.fault("stack", False)
        return self.answers.get(request_id)

    def close(self, cluster: str, request_id: str) -> bool:
        self.fault("stack", False)
        is_first = self.answers.setdefault(request_id, closed := AgentAnswer(stage="closed")) is closed
        self.fault("stack", True)
        return is_first

    # The agent's side.

    def requests(self) -> list[Request]:
        self.fault("agent", False)
        plain = [msgspec.to_builtins(each) for each in self.asked.values()]
        return [Request(**{name: each[name] for name in each if name != "schema_version"}) for each in plain]

    def publish(self, resource: str, state: dict[str, Any]) -> None:
        self.fault("agent", False)
        self.states[self.cluster, resource] = msgspec.convert(state, AgentState)
        self.fault("agent", True)

    def withdraw(self, resource: str) -> None:
        self.fault("agent", False)
        self.states.pop((self.cluster, resource), None)

    def begin(self, request_id: str) -> str | None:
        self.fault("agent", False)
        known = self.answers.get(request_id)
        self.answers.setdefault(request_id, AgentAnswer(stage="begun"))
        self.fault("agent", True)
        return None if known is None else known.stage

    def stage(self, request_id: str) -> str | None:
        self.fault("agent", False)
        known = self.answers.get(request_id)
        return None if known is None else known.stage

    def finish(self, request_id: str, stage: str, why: str) -> None:
        self.fault("agent", False)
        self.answers[request_id] = msgspec.convert({"stage": stage, "why": why}, AgentAnswer)
        self.fault("agent", True)

    def objection(self, job: str, rule: str, now: float) -> str | None:
        self.fault("agent", False)
        return self.switches().objection(job=job, rule=rule, now=now)


@dataclass(frozen=True)
class Effect:
    """An action that took effect: of which request, on which run."""

    request: str
    at: float
    run: int


class MemoryCluster:
    """One workload. Its owner may allow an action, take that back, and start it again: ``run`` counts.

    ``atomic`` writes the mark with the action, as Kubernetes does; Slurm's mark comes first.
    """

    def __init__(self, name: str, action: str, job: str, now: Callable[[], float], *, atomic: bool) -> None:
        self.name, self.allowed, self.job, self.exempt = name, action, job, False
        self.fault: Fault = no_fault
        self.effects: list[Effect] = []
        self._now, self._atomic = now, atomic
        self._versions = itertools.count()
        self.start()

    run = 0
    _mark: tuple[str, int] | None = None

    def start(self) -> None:
        """Let the owner start another run, which nobody has acted on."""
        self.run += 1
        self.runs, self.started_at = True, self._now()
        self.change()

    def replace(self) -> None:
        """Let the owner delete it, and create another of its name."""
        self._mark = None
        self.start()

    def change(self, **values: Any) -> None:
        vars(self).update(values)
        self._version = next(self._versions)

    def opted_in(self) -> Iterator[Resource]:
        self.fault("platform", False)
        if self.allowed:
            yield self._seen()

    def look(self, name: str) -> Resource | None:
        self.fault("platform", False)
        return self._seen() if name == self.name else None

    def act(self, found: Resource, request: Request) -> None:
        self.fault("platform", False)
        if found.version != self._version:
            raise ChangedError(found.name)
        if not self._atomic:
            self._mark = (request.id, self.run)
            self.fault("platform", False)
        self._mark = (request.id, self.run)
        self.change(runs=False)
        self.effects.append(Effect(request.id, self._now(), self.run))
        self.fault("platform", True)

    def _seen(self) -> Resource:
        mark, run = self._mark or (None, 0)
        acted = mark if self._atomic or not self.runs or run != self.run else None
        return Resource(
            name=self.name,
            action=self.allowed,
            status="active" if self.runs else "suspended",
            runs=self.runs,
            started_at=self.started_at,
            job=self.job,
            exempt=self.exempt,
            acted_by=acted,
            version=self._version,
        )
