"""OverallFrameworkMetrics: where the time of the framework goes. It informs and never fires.

Source: AWS documentation of OverallFrameworkMetrics. An operator's time is its self time. "others" is the wall time of
each process's loop, from its first step's start to its last one's end, less the union of its steps.
"""

from dataclasses import replace

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.dataloader.series import WORKER_PHASE
from trainguard.rules.framework_events import BY_NAME, EventClass, classes_of, sum_by
from trainguard.rules.overall_framework_metrics.framework_time import (
    TOP_OPERATORS,
    FrameworkKind,
    FrameworkTimeState,
    TimeDetails,
    details_of,
    facts_of,
    text,
)
from trainguard.rules.overall_framework_metrics.loop import fold_minutes, loop_of
from trainguard.rules.protocol import FrameworkRule, RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import FRAMEWORK, RuleSpec

KEPT_NAMES = 128
"""Names whose time is kept for each class, so that the reported ones are not decided by a single object."""


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
    section="trainguard.rules.overall_framework_metrics.section:blocks",
)


class OverallFrameworkMetrics(FrameworkRule[OverallFrameworkMetricsParameters, FrameworkTimeState]):
    """Sums up the framework's time by class, phase and operator."""

    spec = SPEC

    clear_s = 180.0

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
