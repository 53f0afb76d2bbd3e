"""OverallFrameworkMetrics: where the time of the framework goes. It informs and never fires.

Source: AWS documentation of OverallFrameworkMetrics (an overview of time spent in phases, operators, forward and
backward pass). Three definitions are made exact here. An operator's time is its self time, what runs inside it left
out. "others" is the wall time of each process's loop, from the start of its first step to the end of its last, less the
union of its steps. And of the operators the 64 with the most time are named, the rest is "other".
"""

from typing import Any, ClassVar

import msgspec

from trainguard.records import Status
from trainguard.rules.framework_classes import BY_NAME, EventClass, classes_of
from trainguard.rules.framework_loop import ProcessLoop, loop_of
from trainguard.rules.framework_minutes import MinuteProfile, fold_minutes
from trainguard.rules.judgement import Judgement
from trainguard.rules.protocol import FrameworkRule, RuleParameters
from trainguard.rules.spec import FRAMEWORK, RuleSpec
from trainguard.rules.time_table import TimeTable, percentages, sum_by
from trainguard.rules.units import show_duration, show_percent
from trainguard.rules.views import FrameworkView
from trainguard.telemetry.framework import FrameworkEvents

TOP_OPERATORS = 64
KEPT_NAMES = 128
"""Names whose time is kept for each class, so that the reported ones are not decided by a single object."""

CLEAR_AFTER_S = 180.0


class OverallFrameworkMetricsParameters(RuleParameters, frozen=True, kw_only=True):
    """No parameters of its own."""


SPEC = RuleSpec(
    name="OverallFrameworkMetrics",
    title="Framework time",
    looks_at="each node's framework events",
    fires_when="never: it sums up where the time went",
    condition="never; it sums up",
    inputs=FRAMEWORK,
    informs_only=True,
    section="trainguard.report.html.sections.overall_framework_metrics:blocks",
)


class OverallFrameworkMetricsState(msgspec.Struct, array_like=True):
    """``classes`` has a table for each EventClass; ``devices`` the time of the phases of CPU and GPU operators."""

    events: int = 0
    classes: list[TimeTable] = msgspec.field(default_factory=lambda: [TimeTable() for _ in EventClass])
    devices: TimeTable = msgspec.field(default_factory=TimeTable)
    loops: list[ProcessLoop] = msgspec.field(default_factory=list)
    minutes: list[MinuteProfile] = msgspec.field(default_factory=list)

    def table(self, of: EventClass) -> TimeTable:
        """Return the times of a class."""
        return self.classes[of]


class OverallFrameworkMetrics(FrameworkRule[OverallFrameworkMetricsParameters, OverallFrameworkMetricsState]):
    """Sums up the framework's time by class, phase and operator."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OverallFrameworkMetricsParameters
    state_type = OverallFrameworkMetricsState

    def clear_after_s(self, parameters: OverallFrameworkMetricsParameters, interval_s: float) -> float:
        """Three evaluations; there is nothing to clear."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(
        self,
        state: OverallFrameworkMetricsState,
        events: FrameworkEvents,
        parameters: OverallFrameworkMetricsParameters,
    ) -> None:
        """Add the events of one object."""
        del parameters
        table = events.table
        if not len(table):
            return
        classes = classes_of(table)
        state.events += len(table)
        for of in EventClass:
            rows = classes == of
            if rows.any():
                names, index = (table.names, table.name_index) if of in BY_NAME else (table.phases, table.phase_index)
                state.table(of).add(*sum_by(names, index[rows], table.self_us[rows]), limit=KEPT_NAMES)
        on_device = classes <= EventClass.GPU
        state.devices.add(
            *sum_by(table.phases, table.phase_index[on_device], table.self_us[on_device]), limit=TOP_OPERATORS
        )
        loop = loop_of(state.loops, table.process)
        if loop is not None:
            loop.fold(events.steps)
        state.minutes = fold_minutes(state.minutes, loop, table, classes)

    def judge(
        self,
        state: OverallFrameworkMetricsState,
        view: FrameworkView,
        parameters: OverallFrameworkMetricsParameters,
    ) -> Judgement:
        """Say where the time went; never FIRED."""
        del parameters
        if not state.events:
            return Judgement(Status.WAITING_FOR_DATA, f"no framework event of {view.node} yet.")
        return Judgement(Status.OK, _sentence(state, view), data_points=state.events, details=_details(state))


def _loops(state: OverallFrameworkMetricsState) -> int:
    """Count the processes that took a training step."""
    return sum(loop.first_us is not None for loop in state.loops)


def _others_us(state: OverallFrameworkMetricsState) -> int:
    return sum(loop.others_us for loop in state.loops)


def _sentence(state: OverallFrameworkMetricsState, view: FrameworkView) -> str:
    wall_us = sum(loop.wall_us for loop in state.loops)
    if not wall_us:
        return f"{view.node} wrote {state.events:,} framework events and no training step."
    loops = _loops(state)
    others = 100.0 * _others_us(state) / wall_us
    spent = f"{loops} processes of {view.node} spent, on average," if loops > 1 else f"1 process of {view.node} spent"
    sentence = (
        f"{spent} {show_percent(100.0 - others)} of the {show_duration(wall_us / loops / 1e6)} of training loop in "
        f"steps and {show_percent(others)} between them"
    )
    for of, what in ((EventClass.CPU, "CPU"), (EventClass.GPU, "GPU")):
        shares = percentages(state.table(of).top(1))
        if shares:
            name, share = next(iter(shares.items()))
            sentence += f"; of the time of {what} operators {name} took the most, {show_percent(share)}"
    return f"{sentence}."


def _details(state: OverallFrameworkMetricsState) -> dict[str, Any]:
    """Shares in percent under the managed rule's names; ``phase_time`` and the totals in microseconds.

    Times are of all ``processes`` together, those that have a training loop.
    """
    steps = state.table(EventClass.STEP).top(TOP_OPERATORS)
    others_us = _others_us(state)
    phases = {**steps, "others": others_us} if steps or others_us else {}
    details: dict[str, Any] = {
        "processes": max(_loops(state), 1),
        "ratio": percentages(state.devices.top(TOP_OPERATORS)),
        "phase": percentages(phases),
        "phase_time": phases,
    }
    for of, name in ((EventClass.CPU, "CPU"), (EventClass.GPU, "GPU")):
        totals = state.table(of).top(TOP_OPERATORS)
        if totals:
            details[name], details[f"{name}_total"] = percentages(totals), totals
    for of, name in (
        (EventClass.GENERAL, "general"),
        (EventClass.HOROVOD, "horovod"),
        (EventClass.SMDATAPARALLEL, "smdataparallel"),
    ):
        shares = percentages(state.table(of).top(TOP_OPERATORS))
        if shares:
            details[name] = shares
    forward, backward = (state.table(of).total_us for of in (EventClass.FORWARD, EventClass.BACKWARD))
    if forward and backward:
        details["forward_backward"] = percentages({"Forward pass": forward, "Backward pass": backward})
    return details
