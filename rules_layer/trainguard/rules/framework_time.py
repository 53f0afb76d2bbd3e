"""Where the time of the framework goes on a node: what is remembered, what is shown, and what is said of it."""

import msgspec

from trainguard.rules.details import Details
from trainguard.rules.framework_classes import EventClass
from trainguard.rules.framework_loop import ProcessLoop
from trainguard.rules.framework_minutes import MinuteProfile
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.time_table import TimeTable, percentages
from trainguard.rules.units import show_duration, show_percent

TOP_OPERATORS = 64


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


def sentence_of(state: FrameworkTimeState, view: FrameworkView) -> str:
    """Say where the time of a node's processes went."""
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
