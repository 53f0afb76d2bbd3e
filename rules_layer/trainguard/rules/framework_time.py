"""Where the time of the framework goes on a node: what is remembered, and what is shown."""

from enum import StrEnum
from typing import Any

import msgspec

from trainguard.finding import Fact
from trainguard.rules.details import Details
from trainguard.rules.framework_classes import EventClass
from trainguard.rules.framework_loop import ProcessLoop
from trainguard.rules.framework_minutes import MinuteProfile
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.time_table import TimeTable, percentages

TOP_OPERATORS = 64


class FrameworkKind(StrEnum):
    """What is known of a node's framework events."""

    LOOP = "loop"
    NO_STEP = "no_step"
    NO_EVENTS = "no_events"


class FrameworkTimeState(msgspec.Struct, array_like=True):
    """``classes`` has a table for each EventClass; ``devices`` the time of the phases of CPU and GPU operators."""

    events: int = 0
    classes: list[TimeTable] = msgspec.field(default_factory=lambda: [TimeTable() for _ in EventClass])
    devices: TimeTable = msgspec.field(default_factory=TimeTable)
    loops: list[ProcessLoop] = msgspec.field(default_factory=list)
    minutes: list[MinuteProfile] = msgspec.field(default_factory=list)

    def table(self, of: EventClass) -> TimeTable:
        """Return the times of a class."""
        return self.classes[of]


class TimeDetails(Details, frozen=True, kw_only=True):
    """Shares in percent under the managed rule's names; ``phase_time`` and the totals in microseconds.

    Times are of all ``processes`` together, those that have a training loop.
    """

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
    """Return the numbers of a node."""
    steps = state.table(EventClass.STEP).top(TOP_OPERATORS)
    others_us = _others_us(state)
    phases = {**steps, "others": others_us} if steps or others_us else {}
    of_cpu, of_gpu, general, horovod, smdataparallel = (
        state.table(of).top(TOP_OPERATORS)
        for of in (
            EventClass.CPU,
            EventClass.GPU,
            EventClass.GENERAL,
            EventClass.HOROVOD,
            EventClass.SMDATAPARALLEL,
        )
    )
    forward, backward = (state.table(of).total_us for of in (EventClass.FORWARD, EventClass.BACKWARD))
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
    """Count the processes that took a training step."""
    return sum(loop.first_us is not None for loop in state.loops)


def _others_us(state: FrameworkTimeState) -> int:
    return sum(loop.others_us for loop in state.loops)


def facts_of(state: FrameworkTimeState, view: FrameworkView) -> tuple[FrameworkKind, tuple[Fact, ...]]:
    """Return where the time of a node's processes went."""
    where: dict[str, Any] = {"node": view.node, "end": view.watermark_s}
    wall_us = sum(loop.wall_us for loop in state.loops)
    if not wall_us:
        return FrameworkKind.NO_STEP, (Fact(name="events", value=state.events, **where),)
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
        for operator, share in percentages(state.table(of).top(1)).items():
            facts += [
                Fact(name=name, value=operator, **where),
                Fact(name=f"{name}_time", value=share, unit="%", **where),
            ]
    return FrameworkKind.LOOP, tuple(facts)
