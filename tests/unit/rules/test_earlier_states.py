"""States of rules over a node that an earlier version stored: what it did not store is read as nothing."""

import inspect
from typing import Any

import msgspec
import pytest

from trainguard.rules.bottleneck_counts import MinuteCount, Tally
from trainguard.rules.bottleneck_state import BottleneckState
from trainguard.rules.gpu_faults import GpuRecord, HealthState
from trainguard.rules.hung_steps import ProcessProgress, ProgressState
from trainguard.rules.hung_watch import WatchState
from trainguard.rules.low_gpu_devices import BusyMinutes, GpuSigns, HeldMemory
from trainguard.rules.low_gpu_instances import InstanceMinutes
from trainguard.rules.low_gpu_state import LowGPUUtilizationState
from trainguard.rules.low_gpu_usage import Streak
from trainguard.rules.system_usage import UsageState


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ([], BusyMinutes),
        ([], InstanceMinutes),
        ([], GpuSigns),
        ([5, 7], HeldMemory),
        (["under", 5], Streak),
        ([], LowGPUUtilizationState),
        ([], WatchState),
        ([5, "7", 9], ProcessProgress),
        ([], ProgressState),
        ([5, 4, 3], MinuteCount),
        ([], Tally),
        ([], BottleneckState),
        ([], GpuRecord),
        ([], HealthState),
        ([], UsageState),
    ],
    ids=lambda each: each.__name__ if inspect.isclass(each) else "",
)
def test_given_a_short_item_when_it_is_read_then_all_that_it_lacks_is_nothing(stored: list[Any], kind: Any) -> None:
    lacking = msgspec.to_builtins(msgspec.convert(stored, kind))[len(stored) :]
    nested = [each for part in lacking for each in (part if isinstance(part, list) else [part])]
    deeper = [each for part in nested for each in (part if isinstance(part, list) else [part])]
    assert not any(each for each in deeper if not isinstance(each, list))
