"""Rules that are not TrainGuard's own, well-behaved and not, as a deployment might bring them along."""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from trainguard.core.records import Status
from trainguard.engine.profiler.family import ProfilerFamily
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules import parameters, registry
from trainguard.rules.extension import AnyRule
from trainguard.rules.protocol import (
    FrameworkRule,
    JobRule,
    JoinedRule,
    Percent,
    RuleParameters,
    SystemRule,
    spec_of_rule,
)
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult


class OwnParameters(RuleParameters, frozen=True, kw_only=True):
    threshold: Percent = 50.0


class OwnState(msgspec.Struct):
    minutes: int = 0
    notes: list[str] = msgspec.field(default_factory=list)


def idle(state: OwnState, minute: NodeMinute) -> None:
    """Do nothing more than to count."""


def fine(state: OwnState, view: NodeView) -> Any:
    """Say how many minutes were seen."""
    del view
    return RuleResult(Status.OK, f"{state.minutes} minutes.", data_points=state.minutes)


class OwnRule(SystemRule[OwnParameters, OwnState]):
    """A rule over a node that does what it is given to do."""

    name: ClassVar[str] = "OwnRule"
    parameters_type = OwnParameters
    state_type = OwnState

    def __init__(
        self,
        seeing: Callable[[OwnState, NodeMinute], object] = idle,
        judging: Callable[[OwnState, NodeView], Any] = fine,
        *,
        clear: Callable[[], Any] = lambda: 60.0,
        window: Callable[[], Any] = lambda: 0,
    ) -> None:
        self._seeing, self._judging, self._clear, self._window = seeing, judging, clear, window

    def named(self, name: str) -> "OwnRule":
        """Return such a rule of another name."""
        kind: type[OwnRule] = type(name, (OwnRule,), {"name": name})
        return kind(self._seeing, self._judging, clear=self._clear, window=self._window)

    def clear_after_s(self, parameters: OwnParameters, interval_s: float) -> float:
        del parameters, interval_s
        return self._clear()  # type: ignore[no-any-return]  # on purpose, whatever a test gives

    def window_points(self, parameters: OwnParameters, interval_s: float) -> int:
        del parameters, interval_s
        return self._window()  # type: ignore[no-any-return]  # on purpose, whatever a test gives

    def observe(self, state: OwnState, minute: NodeMinute, parameters: OwnParameters) -> None:
        del parameters
        state.minutes += 1
        self._seeing(state, minute)

    def judge(self, state: OwnState, view: NodeView, parameters: OwnParameters) -> RuleResult:
        del parameters
        return self._judging(state, view)  # type: ignore[no-any-return]  # on purpose, whatever a test gives


class OwnSteps(FrameworkRule[OwnParameters, OwnState]):
    """A rule over framework events that counts objects."""

    name: ClassVar[str] = "OwnSteps"
    parameters_type = OwnParameters
    state_type = OwnState

    def clear_after_s(self, parameters: OwnParameters, interval_s: float) -> float:
        del parameters, interval_s
        return 60.0

    def observe(self, state: OwnState, events: FrameworkEvents, parameters: OwnParameters) -> None:
        del parameters
        state.minutes += len(events.steps)

    def judge(self, state: OwnState, view: FrameworkView, parameters: OwnParameters) -> RuleResult:
        del view, parameters
        return RuleResult(Status.OK, f"{state.minutes} batches of steps.", data_points=state.minutes)


class OwnJoin(JoinedRule[OwnParameters, OwnState]):
    """A rule over the job that collects from framework events."""

    name: ClassVar[str] = "OwnJoin"
    parameters_type = OwnParameters
    state_type = OwnState

    def clear_after_s(self, parameters: OwnParameters, interval_s: float) -> float:
        del parameters, interval_s
        return 60.0

    def observe(self, state: OwnState, events: FrameworkEvents, parameters: OwnParameters) -> None:
        del events, parameters
        state.minutes += 1

    def judge(self, view: JobView, parameters: OwnParameters) -> RuleResult:
        collected = [facts.collected.get(self.name) for facts in view.nodes.values()]
        objects = sum(each.minutes for each in collected if isinstance(each, OwnState))
        status = Status.FIRED if objects > parameters.threshold else Status.OK
        return RuleResult(status, f"{objects} objects.", measured=float(objects), threshold=parameters.threshold)


class OwnJob(JobRule[OwnParameters]):
    """A rule over the job that fails."""

    name: ClassVar[str] = "OwnJob"
    parameters_type = OwnParameters

    def clear_after_s(self, parameters: OwnParameters, interval_s: float) -> float:
        del parameters, interval_s
        return 60.0

    def judge(self, view: JobView, parameters: OwnParameters) -> RuleResult:
        del parameters
        raise LookupError(f"{len(view.nodes)} nodes are not enough")


def deploy(monkeypatch: pytest.MonkeyPatch, *rules: AnyRule) -> None:
    """Let the engine have rules beside TrainGuard's own, as a layer with a package of them does."""
    monkeypatch.setattr(ProfilerFamily, "rules", (*registry.ALL_RULES, *rules))
    for rule in rules:
        monkeypatch.setitem(parameters.PARAMETERS_TYPES, rule.name, rule.parameters_type)
        monkeypatch.setitem(registry.SPECS, rule.name, spec_of_rule(rule))
        monkeypatch.setitem(parameters._CANONICAL, rule.name.lower(), rule.name)
        monkeypatch.setitem(parameters._GIVEN_FOR, rule.name.lower(), rule.name)
