"""States of rules over a node that an earlier version stored: what it did not store is read as nothing."""

import inspect
from typing import Any

import msgspec
import pytest

from trainguard.rules.bottlenecks.state import BottleneckState, MinuteCount, Tally
from trainguard.rules.gpu_health.faults import GpuRecord, HealthState
from trainguard.rules.hung_job.state import ProcessProgress, ProgressState, WatchState
from trainguard.rules.low_gpu_utilization.devices import BusyMinutes, GpuSigns, HeldMemory
from trainguard.rules.low_gpu_utilization.results import InstanceMinutes, LowGPUUtilizationState
from trainguard.rules.low_gpu_utilization.usage import Streak
from trainguard.rules.overall_system_usage.rule import UsageState


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
def test_short_item_has_empty_values_for_missing_parts(stored: list[Any], kind: Any) -> None:
    lacking = msgspec.to_builtins(msgspec.convert(stored, kind))[len(stored) :]
    nested = [each for part in lacking for each in (part if isinstance(part, list) else [part])]
    deeper = [each for part in nested for each in (part if isinstance(part, list) else [part])]
    assert not any(each for each in deeper if not isinstance(each, list))
