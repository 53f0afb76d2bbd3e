"""Rules for the tests of the kit: one of each kind, small, and some that are wrong on purpose."""

from typing import ClassVar

import msgspec
import numpy as np

from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.protocol import FrameworkRule, JobRule, JoinedRule, Percent, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeMinute, NodeView
from trainguard.rules.rule_result import RuleResult


class Limit(RuleParameters, frozen=True, kw_only=True):
    threshold: Percent = 80.0


class Count(msgspec.Struct):
    highest: float = 0.0
    seen: int = 0


def judged(measured: float, limit: Limit, points: int, what: str) -> RuleResult:
    if points == 0:
        return RuleResult(Status.WAITING_FOR_DATA, f"no {what} yet.")
    status = Status.FIRED if measured > limit.threshold else Status.OK
    return RuleResult(status, f"{what} at {measured:g}.", measured, limit.threshold, data_points=points)


class HotCpu(SystemRule[Limit, Count]):
    """Fires when the mean of a node's cores was over the threshold in its newest minute."""

    name: ClassVar[str] = "HotCpu"
    parameters_type = Limit
    state_type = Count

    def clear_after_s(self, parameters: Limit, interval_s: float) -> float:
        del parameters, interval_s
        return 120.0

    def window_points(self, parameters: Limit, interval_s: float) -> int:
        del parameters, interval_s
        return 0

    def observe(self, state: Count, minute: NodeMinute, parameters: Limit) -> None:
        del parameters
        state.seen += len(minute.snapshots)
        state.highest = float(np.nanmax(minute.snapshots.cpu_mean, initial=0.0))

    def judge(self, state: Count, view: NodeView, parameters: Limit) -> RuleResult:
        return judged(state.highest, parameters, state.seen, f"cpu of {view.node}")


class Forgetful(HotCpu):
    """Keeps what it has seen in itself, and not in its state."""

    name: ClassVar[str] = "Forgetful"

    def __init__(self) -> None:
        self._seen = 0

    def observe(self, state: Count, minute: NodeMinute, parameters: Limit) -> None:
        super().observe(state, minute, parameters)
        self._seen += 1
        state.highest = float(self._seen)


class Raising(HotCpu):
    """Fails when a core is over the threshold."""

    name: ClassVar[str] = "Raising"

    def observe(self, state: Count, minute: NodeMinute, parameters: Limit) -> None:
        super().observe(state, minute, parameters)
        if state.highest > parameters.threshold:
            raise LookupError("no such core")


class LargestBatch(Forgetful):
    """Keeps how many objects were applied at once, which is for delivery to decide."""

    name: ClassVar[str] = "LargestBatch"

    def observe(self, state: Count, minute: NodeMinute, parameters: Limit) -> None:
        before = state.highest
        super().observe(state, minute, parameters)
        state.highest = max(before, state.highest)


class SlowSteps(FrameworkRule[Limit, Count]):
    """Fires when a step takes more seconds than the threshold says."""

    name: ClassVar[str] = "SlowSteps"
    parameters_type = Limit
    state_type = Count

    def clear_after_s(self, parameters: Limit, interval_s: float) -> float:
        del parameters, interval_s
        return 120.0

    def observe(self, state: Count, events: FrameworkEvents, parameters: Limit) -> None:
        del parameters
        for steps in events.steps:
            state.seen += len(steps.numbers)
            state.highest = max(state.highest, float(steps.durations_us.max()) / 1e6)

    def judge(self, state: Count, view: FrameworkView, parameters: Limit) -> RuleResult:
        return judged(state.highest, parameters, state.seen, f"steps of {view.node}")


class Loaders(JoinedRule[Limit, Count]):
    """Fires when the job's events of a phase ``Loader`` are more than the threshold says."""

    name: ClassVar[str] = "Loaders"
    parameters_type = Limit
    state_type = Count

    def clear_after_s(self, parameters: Limit, interval_s: float) -> float:
        del parameters, interval_s
        return 120.0

    def observe(self, state: Count, events: FrameworkEvents, parameters: Limit) -> None:
        del parameters
        state.seen += int(events.table.rows_in(["Loader"]).size)

    def judge(self, view: JobView, parameters: Limit) -> RuleResult:
        collected = [facts.collected.get(self.name) for facts in view.nodes.values()]
        total = sum(each.seen for each in collected if isinstance(each, Count))
        return judged(float(total), parameters, total, "loader events")


class FewNodes(JobRule[Limit]):
    """Fires when the job has more nodes with system metrics than the threshold says."""

    name: ClassVar[str] = "FewNodes"
    parameters_type = Limit

    def clear_after_s(self, parameters: Limit, interval_s: float) -> float:
        del parameters, interval_s
        return 120.0

    def judge(self, view: JobView, parameters: Limit) -> RuleResult:
        nodes = [facts for facts in view.nodes.values() if facts.system is not None]
        return judged(float(len(nodes)), parameters, len(nodes), "nodes")
