"""The example of a deployment's own rules: how such a rule is tested."""

import example_rules
import msgspec
import numpy as np
import pytest
from example_rules.host_memory import HostMemory, HostMemoryParameters, HostMemoryState

from tests.support.node_snapshots import node_snapshots
from trainguard.engine.plan import only, plan_rules
from trainguard.engine.system_stream import SystemState, SystemStream
from trainguard.records import JobRecord, Status
from trainguard.rules.extension import rules_of
from trainguard.rules.judgement import Judgement
from trainguard.rules.registry import RESERVED_NAMES
from trainguard.rules.views import NodeMinute
from trainguard.telemetry.snapshots import FloatArray

PATIENCE = 20
PARAMETERS = HostMemoryParameters(threshold=80.0, patience=PATIENCE)
JOB = JobRecord(job="job", arn="unknown:job", bucket="", prefix="")


def judged(used: FloatArray, *, minute_points: int = 12) -> Judgement:
    """Return what the rule says after the samples of a node's memory, ``minute_points`` at a time."""
    rule, state = HostMemory(), HostMemoryState()
    stream = SystemStream("algo-1", SystemState(), only(plan_rules(JOB), rule, PARAMETERS))
    for start in range(0, used.size, minute_points):
        part = used[start : start + minute_points]
        times = 1_700_000_040.0 + 5.0 * np.arange(start, start + part.size, dtype=np.float64)
        snapshots = node_snapshots(times, np.full((part.size, 1), 90.0), host_memory=part)
        always = np.ones(part.size, dtype=np.bool_)
        minute = NodeMinute(snapshots, active=always, started=always, fresh=0, view=stream.view(closed=False))
        rule.observe(state, minute, PARAMETERS)
        stored = msgspec.msgpack.encode(state)
        state = msgspec.msgpack.decode(stored, type=HostMemoryState)
    return rule.judge(state, stream.view(closed=False), PARAMETERS)


def test_given_the_package_when_read_then_its_rules_keep_the_protocol() -> None:
    assert [rule.name for rule in rules_of(example_rules, RESERVED_NAMES)] == ["HostMemory"]


@pytest.mark.parametrize(
    ("over", "status"), [(PATIENCE - 1, Status.OK), (PATIENCE, Status.FIRED), (PATIENCE + 1, Status.FIRED)]
)
@pytest.mark.parametrize("minute_points", [1, 7, 100])
def test_given_memory_over_the_threshold_when_the_patience_is_over_then_it_fires(
    over: int, status: Status, minute_points: int
) -> None:
    used = np.concatenate([np.full(30, 50.0), np.full(over, 95.0)])
    said = judged(used, minute_points=minute_points)
    assert (said.status, said.patience, said.measured) == (status, f"{over}/{PATIENCE}", 95.0)
    assert (said.advice is not None) is (status is Status.FIRED)


@pytest.mark.parametrize(("used", "status"), [(80.0, Status.OK), (80.01, Status.FIRED)])
def test_given_memory_on_the_threshold_when_judged_then_it_does_not_fire(used: float, status: Status) -> None:
    assert judged(np.full(60, used)).status is status


def test_given_a_snapshot_below_in_between_when_judged_then_the_patience_begins_again() -> None:
    used = np.full(2 * PATIENCE - 1, 95.0)
    used[PATIENCE - 1] = 40.0
    assert judged(used).patience == f"{PATIENCE - 1}/{PATIENCE}"


def test_given_snapshots_without_samples_when_judged_then_they_say_nothing() -> None:
    used = np.full(PATIENCE + 5, 95.0)
    used[5:10] = np.nan
    assert judged(used).status is Status.FIRED
    assert judged(np.full(30, np.nan)).status is Status.WAITING_FOR_DATA
