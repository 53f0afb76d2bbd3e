"""OverallFrameworkMetrics: where the time of the framework goes. It informs and never fires.

Source: AWS documentation of OverallFrameworkMetrics (an overview of time spent in phases, operators, forward and
backward pass). Three definitions are made exact here. An operator's time is its self time, what runs inside it left
out. "others" is the wall time of each process's loop, from the start of its first step to the end of its last, less the
union of its steps. And of the operators the 64 with the most time are named, the rest is "other".
"""

from dataclasses import replace
from typing import ClassVar

from trainguard.finding import Fact
from trainguard.records import Status
from trainguard.rules.framework_classes import BY_NAME, EventClass, classes_of
from trainguard.rules.framework_loop import loop_of
from trainguard.rules.framework_minutes import fold_minutes
from trainguard.rules.framework_time import (
    TOP_OPERATORS,
    FrameworkKind,
    FrameworkTimeState,
    TimeDetails,
    details_of,
    facts_of,
)
from trainguard.rules.loader_series import WORKER_PHASE
from trainguard.rules.overall_framework_metrics_text import text
from trainguard.rules.protocol import FrameworkRule, RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import FRAMEWORK, RuleSpec
from trainguard.rules.time_table import sum_by
from trainguard.telemetry.framework import FrameworkEvents

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
    text=text,
    details=TimeDetails,
    section="trainguard.report.html.sections.overall_framework_metrics:blocks",
)


class OverallFrameworkMetrics(FrameworkRule[OverallFrameworkMetricsParameters, FrameworkTimeState]):
    """Sums up the framework's time by class, phase and operator."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = OverallFrameworkMetricsParameters
    state_type = FrameworkTimeState

    def clear_after_s(self, parameters: OverallFrameworkMetricsParameters, interval_s: float) -> float:
        """Three evaluations; there is nothing to clear."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(
        self,
        state: FrameworkTimeState,
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
        if len(table.rows_in([WORKER_PHASE])) == len(table):
            return  # a worker of a loader, which works beside the training processes
        loop = loop_of(state.loops, table.process)
        if loop is not None:
            loop.fold(events.steps)
        state.minutes = fold_minutes(state.minutes, loop, table, classes)

    def judge(
        self,
        state: FrameworkTimeState,
        view: FrameworkView,
        parameters: OverallFrameworkMetricsParameters,
    ) -> RuleResult:
        """Say where the time went; never FIRED."""
        del parameters
        if not state.events:
            none = (Fact(name="events", value=0, node=view.node),)
            return RuleResult.of(text, Status.WAITING_FOR_DATA, FrameworkKind.NO_EVENTS, none)
        kind, facts = facts_of(state, view)
        result = RuleResult.of(text, Status.OK, kind, facts, data_points=state.events)
        return replace(result, details=details_of(state)) if view.detailed else result
