"""Signs of work on GPUs whose utilization is low: their SM activity, and their power.

A counter of utilization can miss work: that of a divided GPU stands at zero. What else was measured of a node's GPUs is
asked before the node is called idle.
"""

from collections.abc import Mapping

import msgspec

from trainguard.rules.low_gpu_activity import LITTLE_WATTS
from trainguard.rules.rule_inputs import NodeMinute, NodeView
from trainguard.rules.units import show_number, show_percent
from trainguard.state.idle_evidence import QUIET_PERCENT
from trainguard.state.sample_window import ACTIVE_PERCENT
from trainguard.telemetry import devices as names

MEMORY_MINUTES = 20
"""A mean over minutes forgets the older of them at this pace."""

LEAST_MINUTES = 5
LEAST_PERCENT = 1.0
"""Power is a sign of work only beside some utilization: a GPU with a context draws more than one without."""

WORK_SHARE = 0.75
"""Of the power at work; where that is little, it says nothing."""

MOST_GPUS = 64


class GpuSigns(msgspec.Struct, array_like=True):
    """Means of one GPU over minutes: SM activity and power, watts, since it was last active, and power while it was.

    ``idle``, ``measured`` and ``busy`` count the minutes behind power, SM activity and power at work, up to 20.
    """

    power: float = 0.0
    idle: int = 0
    activity: float = 0.0
    measured: int = 0
    at_work: float = 0.0
    busy: int = 0

    def add(self, power: float | None, activity: float | None, *, active: bool) -> None:
        """Take in the means of one minute."""
        if active:
            self.power = self.activity = 0.0
            self.idle = self.measured = 0
            if power is not None:
                self.at_work, self.busy = _mean(self.at_work, self.busy, power)
            return
        if power is not None:
            self.power, self.idle = _mean(self.power, self.idle, power)
        if activity is not None:
            self.activity, self.measured = _mean(self.activity, self.measured, activity)


def _mean(mean: float, count: int, value: float) -> tuple[float, int]:
    count = min(count + 1, MEMORY_MINUTES)
    return round(mean + (value - mean) / count, 1), count


def fold_signs(signs: dict[str, GpuSigns], minute: NodeMinute) -> None:
    """Add the minute of each GPU of which power or SM activity is collected."""
    power, activity = minute.devices.of(names.POWER), minute.devices.of(names.SM_ACTIVITY)
    if not len(minute.snapshots) or not (power or activity):
        return
    for column, gpu in enumerate(minute.snapshots.gpu_names):
        if (gpu not in power and gpu not in activity) or (gpu not in signs and len(signs) >= MOST_GPUS):
            continue
        signs.setdefault(gpu, GpuSigns()).add(
            power[gpu].mean if gpu in power else None,
            activity[gpu].mean if gpu in activity else None,
            active=bool((minute.snapshots.gpu_utilization[:, column] >= ACTIVE_PERCENT).any()),
        )


def sign_of_work(signs: Mapping[str, GpuSigns], view: NodeView) -> str | None:
    """Say by what a GPU of a node without active GPUs is seen to work, as a clause; None where by nothing."""
    for gpu in view.gpu_names:
        each = signs.get(gpu)
        if each is None:
            continue
        if each.measured >= LEAST_MINUTES and each.activity >= QUIET_PERCENT:
            return f"the SM activity of {gpu} is {show_percent(each.activity)}"
        known = min(each.idle, each.busy) >= LEAST_MINUTES and view.idle_time.run_mean >= LEAST_PERCENT
        if known and each.at_work >= LITTLE_WATTS and each.power >= WORK_SHARE * each.at_work:
            return f"{gpu} draws {show_number(each.power)} W, of {show_number(each.at_work)} W at work"
    return None
