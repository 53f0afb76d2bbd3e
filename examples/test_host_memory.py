"""HostMemory, tested as a deployment runs it."""

import math

import example_rules
import pytest
from example_rules.host_memory import HostMemory

from trainguard.core.records import Status
from trainguard.testing import (
    SyntheticJob,
    assert_boundary,
    assert_delivery_makes_no_difference,
    check_package,
    run_rule,
)

PARAMETERS = {"threshold": 80.0, "patience": 20}
JOB = SyntheticJob(nodes=2, minutes=20)


def full(snapshots: float, used: float = 95.0) -> SyntheticJob:
    """Return a job whose second node has so many snapshots in a row with ``used`` percent of its memory in use."""
    return JOB.with_series("host_memory", used, node="algo-2", start_s=150.0, end_s=150.0 + 5.0 * snapshots)


def test_the_package_can_be_deployed() -> None:
    assert check_package(example_rules) == ("HostMemory",)


def test_a_node_whose_memory_stays_full_fires_once_and_is_over_later() -> None:
    outcome = run_rule(HostMemory(), full(40), PARAMETERS)
    outcome.assert_fired(node="algo-2", times=1).assert_not_fired(node="algo-1").assert_status(Status.OK)
    assert [alert.kind.value for alert in outcome.alerts] == ["fire", "cleared"]
    assert outcome.fires[0].finding.measured == 95.0
    assert outcome.fires[0].finding.advice == "Load less ahead, or take an instance with more memory."


def test_it_fires_when_the_patience_is_over_and_not_one_snapshot_before() -> None:
    assert_boundary(HostMemory(), full, quiet_at=19, fires_at=20, parameters=PARAMETERS)


def test_it_is_quiet_on_the_threshold_and_fires_above_it() -> None:
    assert_boundary(HostMemory(), lambda used: full(40, used), quiet_at=80.0, fires_at=80.01, parameters=PARAMETERS)


def test_a_run_within_one_minute_counts() -> None:
    parameters = {"threshold": 80.0, "patience": 4}
    job = JOB.with_series("host_memory", 95.0, start_s=125.0, end_s=145.0)
    run_rule(HostMemory(), job, parameters).assert_fired(times=1)


def test_a_snapshot_below_in_between_begins_the_patience_anew() -> None:
    job = full(39).with_series("host_memory", 40.0, node="algo-2", start_s=245.0, end_s=250.0)
    run_rule(HostMemory(), job, PARAMETERS).assert_not_fired()


def test_snapshots_without_a_sample_say_nothing() -> None:
    job = full(25).with_series("host_memory", math.nan, node="algo-2", start_s=175.0, end_s=200.0)
    run_rule(HostMemory(), job, PARAMETERS).assert_fired(node="algo-2")
    silent = JOB.with_series("host_memory", math.nan)
    run_rule(HostMemory(), silent, PARAMETERS, ended=False).assert_status(Status.WAITING_FOR_DATA)


def test_late_and_repeated_messages_make_no_difference() -> None:
    assert_delivery_makes_no_difference(HostMemory(), full(40), PARAMETERS).assert_fired(node="algo-2", times=1)


@pytest.mark.parametrize("interval_s", [0.5, 5.0])
def test_the_row_says_how_long_it_lasted(interval_s: float) -> None:
    job = SyntheticJob(minutes=6, interval_s=interval_s).with_series("host_memory", 95.0, start_s=120.0)
    outcome = run_rule(HostMemory(), job, PARAMETERS)
    assert outcome.row.finding.reason.startswith("algo-1 has been over 80 % of its memory for 4.0 min")
    assert outcome.row.patience == "20/20"
