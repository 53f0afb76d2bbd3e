"""OverallFrameworkMetrics: where the time of the framework goes. It informs and never fires.

Source: AWS documentation of OverallFrameworkMetrics. An operator's time is its self time. "others" is the wall time of
each process's loop, from its first step's start to its last one's end, less the union of its steps.
"""

from typing import Any

import msgspec

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.render.details import Details, NodeDetails
from trainguard.rules.dataloader.series import WORKER_PHASE
from trainguard.rules.framework_events import (
    BY_NAME,
    EventClass,
    MinuteProfile,
    ProcessLoop,
    TimeTable,
    admitted,
    classes_of,
    fold_minutes,
    percentages,
    sum_by,
)
from trainguard.rules.overall_framework_metrics.text import LOOP, NO_EVENTS, NO_STEP, text
from trainguard.rules.protocol import FrameworkRule, RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.spec import FRAMEWORK, RuleSpec

TOP_OPERATORS = 64


class FrameworkTimeState(msgspec.Struct, array_like=True):
    """``classes`` has a table for each EventClass; ``devices`` the time of the phases of CPU and GPU operators."""

    events: int = 0
    classes: list[TimeTable] = msgspec.field(default_factory=lambda: [TimeTable() for _ in EventClass])
    devices: TimeTable = msgspec.field(default_factory=TimeTable)
    loops: list[ProcessLoop] = msgspec.field(default_factory=list)
    minutes: list[MinuteProfile] = msgspec.field(default_factory=list)


class TimeDetails(Details, frozen=True, kw_only=True):
    """Shares in percent under the managed rule's names; ``phase_time`` and totals in microseconds of all processes."""

    processes: int
    ratio: dict[str, float]
    phase: dict[str, float]
    phase_time: dict[str, float]
    cpu: dict[str, float] = msgspec.field(default_factory=dict, name="CPU")
    cpu_total: dict[str, float] = msgspec.field(default_factory=dict, name="CPU_total")
    gpu: dict[str, float] = msgspec.field(default_factory=dict, name="GPU")
    gpu_total: dict[str, float] = msgspec.field(default_factory=dict, name="GPU_total")
    general: dict[str, float] = msgspec.field(default_factory=dict)
    horovod: dict[str, float] = msgspec.field(default_factory=dict)
    smdataparallel: dict[str, float] = msgspec.field(default_factory=dict)
    forward_backward: dict[str, float] = msgspec.field(default_factory=dict)


def details_of(state: FrameworkTimeState) -> TimeDetails:
    steps = state.classes[EventClass.STEP].top(TOP_OPERATORS)
    others_us = _others_us(state)
    phases = {**steps, "others": others_us} if steps or others_us else {}
    of_cpu, of_gpu, general, horovod, smdataparallel = (
        state.classes[of].top(TOP_OPERATORS)
        for of in (EventClass.CPU, EventClass.GPU, EventClass.GENERAL, EventClass.HOROVOD, EventClass.SMDATAPARALLEL)
    )
    forward, backward = (state.classes[of].total_us for of in (EventClass.FORWARD, EventClass.BACKWARD))
    passes = {"Forward pass": forward, "Backward pass": backward} if forward and backward else {}
    return TimeDetails(
        processes=max(_loops(state), 1),
        ratio=percentages(state.devices.top(TOP_OPERATORS)),
        phase=percentages(phases),
        phase_time={**phases},
        cpu=percentages(of_cpu),
        cpu_total={**of_cpu},
        gpu=percentages(of_gpu),
        gpu_total={**of_gpu},
        general=percentages(general),
        horovod=percentages(horovod),
        smdataparallel=percentages(smdataparallel),
        forward_backward=percentages(passes),
    )


def _loops(state: FrameworkTimeState) -> int:
    return sum(loop.first_us is not None for loop in state.loops)


def _others_us(state: FrameworkTimeState) -> int:
    return sum(loop.others_us for loop in state.loops)


def facts_of(state: FrameworkTimeState, view: FrameworkView) -> tuple[str, tuple[Fact, ...]]:
    where: dict[str, Any] = {"node": view.node, "end": view.watermark_s}
    wall_us = sum(loop.wall_us for loop in state.loops)
    if not wall_us:
        return NO_STEP, (Fact(name="events", value=state.events, **where),)
    loops, first_us = _loops(state), min(loop.first_us for loop in state.loops if loop.first_us is not None)
    where = {"node": view.node, "start": first_us / 1e6, "end": max(loop.last_us for loop in state.loops) / 1e6}
    between = _others_us(state) / wall_us
    facts = [
        Fact(name="processes", value=loops, **where),
        Fact(name="loop_time", value=wall_us / loops / 1e6, unit="s", **where),
        Fact(name="time_in_steps", value=1.0 - between, unit="share", **where),
        Fact(name="time_between_steps", value=between, unit="share", **where),
    ]
    for of, name in ((EventClass.CPU, "cpu_operator"), (EventClass.GPU, "gpu_operator")):
        for operator, share in percentages(state.classes[of].top(1)).items():
            facts += [
                Fact(name=name, value=operator, **where),
                Fact(name=f"{name}_time", value=share, unit="%", **where),
            ]
    return LOOP, tuple(facts)


# Names whose time is kept for each class, so that the reported ones are not decided by a single object.
KEPT_NAMES = 128


class OverallFrameworkMetrics(FrameworkRule[RuleParameters, FrameworkTimeState]):
    spec = RuleSpec(
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

    def observe(self, state: FrameworkTimeState, events: FrameworkEvents, parameters: RuleParameters) -> None:
        table = events.table
        if not len(table):
            return
        classes = classes_of(table)
        state.events += len(table)
        for of in EventClass:
            rows = classes == of
            if rows.any():
                names, index = (table.names, table.name_index) if of in BY_NAME else (table.phases, table.phase_index)
                state.classes[of].add(*sum_by(names, index[rows], table.self_us[rows]), limit=KEPT_NAMES)
        on_device = classes <= EventClass.GPU
        state.devices.add(
            *sum_by(table.phases, table.phase_index[on_device], table.self_us[on_device]), limit=TOP_OPERATORS
        )
        if len(table.rows_in([WORKER_PHASE])) == len(table):
            return  # a worker of a loader, which works beside the training processes
        loop = admitted(state.loops, table.process, ProcessLoop)
        if loop is not None:
            loop.fold(events.steps)
        state.minutes = fold_minutes(state.minutes, loop, table, classes)

    def judge(self, state: FrameworkTimeState, view: FrameworkView, parameters: RuleParameters) -> RuleResult:
        if not state.events:
            none = (Fact(name="events", value=0, node=view.node),)
            return RuleResult.of(text, Status.WAITING_FOR_DATA, NO_EVENTS, none)
        kind, facts = facts_of(state, view)
        details: NodeDetails = details_of(state) if view.detailed else {}
        return RuleResult.of(text, Status.OK, kind, facts, data_points=state.events, details=details)
