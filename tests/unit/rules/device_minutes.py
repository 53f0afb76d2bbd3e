"""Drives a system rule over minutes of a node with further series of its devices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.unit.rules.node_replay import JOB_START, NodeSeries, Replay, node_minutes, replayed
from trainguard.formats.profile.snapshots import NO_DEVICES, DeviceSamples, DeviceSeries
from trainguard.rules.protocol import AnySystemRule, RuleParameters
from trainguard.rules.rule_inputs import NodeMinute

# Values by metric and device: one for the whole minute, or several spread over it.
Readings = Mapping[str, Mapping[str, float | Sequence[float]]]

# Gives the readings of a minute, counted from 0.
DevicesAt = Callable[[int], Readings]


def devices(minute: int, readings: Readings) -> DeviceSamples:
    """Return readings as samples of a minute of the job."""
    return DeviceSamples(
        {
            metric: {device: _series(minute, values) for device, values in by_device.items()}
            for metric, by_device in readings.items()
            if by_device
        }
    )


def _series(minute: int, values: float | Sequence[float]) -> DeviceSeries:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    times = JOB_START + 60.0 * minute + (np.arange(array.size) + 0.5) * 60.0 / array.size
    return DeviceSeries(times, array)


@dataclass(frozen=True)
class Rows:
    """Utilization of a node's GPUs by minute."""

    minutes: Sequence[Sequence[float]]

    def series(self, interval_s: float = 5.0) -> NodeSeries:
        """Return a node's series with each minute's utilization throughout it."""
        gpu = np.repeat(np.asarray(self.minutes, dtype=np.float64), round(60.0 / interval_s), axis=0)
        calm = np.zeros(len(gpu))
        return NodeSeries(gpu, calm + 40.0, gpu / 2.0, calm, interval_s)


def replay_devices(
    rule: AnySystemRule,
    parameters: RuleParameters,
    node: NodeSeries,
    readings: DevicesAt,
    *,
    closed: bool = False,
) -> Replay:
    """Show ``rule`` the node's minutes with their devices, and at last, where ``closed``, the end of the stream."""
    return replayed(rule, parameters, device_minutes(node, readings, closed=closed))


def device_minutes(node: NodeSeries, readings: DevicesAt, *, closed: bool) -> Iterator[NodeMinute]:
    for number, minute in enumerate(node_minutes(node, closed=closed)):
        found = devices(number, readings(number)) if len(minute.snapshots) else NO_DEVICES
        yield replace(minute, devices=found)
