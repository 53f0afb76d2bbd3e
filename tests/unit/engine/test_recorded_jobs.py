"""Whole recorded jobs through the whole engine: each fault rings its own rule, and nothing else rings."""

from pathlib import Path

import pytest

from demo.recording import Recording
from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.records import RuleRow, Status

RECORDINGS = Path(__file__).parents[3] / "events" / "jobs"
RULES = {"LowGPUUtilization", "CPUBottleneck", "MaxInitializationTime", "StepOutlier"}


def play(name: str, tags: dict[str, str]) -> Network:
    """Deliver a recorded job as it was uploaded, with a tick every five minutes."""
    network = Network()
    network.world.training_jobs.set(describe(tags))
    recording = Recording.load(RECORDINGS / f"{name}.npz")
    next_tick = float(START)
    for item in recording.objects(JOB, start=START):
        upload = Upload(item.appears_at, item.key, item.body)
        while upload.at > next_tick:
            network.run_until(next_tick, batch_s=1.0)
            network.tick()
            next_tick += 300.0
        network.put(upload)
        network.ring(upload, upload.at)
        network.run_until(upload.at, batch_s=1.0)
    network.run_until(upload.at + 2_000.0, batch_s=1.0)
    return network


def rows(network: Network) -> dict[str, RuleRow]:
    return {row.rule: row for row in network.world.rows.of_job(JOB) if row.node is None}


@pytest.mark.parametrize(
    ("name", "fires"),
    [
        ("healthy", None),
        ("slow_data_loader", "LowGPUUtilization"),
        ("cpu_bottleneck", "CPUBottleneck"),
        ("late_first_step", "MaxInitializationTime"),
        ("slow_steps", "StepOutlier"),
    ],
)
def test_given_a_recorded_job_when_it_has_ended_then_exactly_its_own_fault_has_fired(
    name: str, fires: str | None
) -> None:
    network = play(name, {})
    shown = rows(network)
    assert set(shown) == RULES
    assert {rule for rule, row in shown.items() if row.status is Status.FIRED} == ({fires} if fires else set())
    started = [each["rule"] for each in network.world.executions.started.values() if each["kind"] == "fire"]
    assert started == ([fires] if fires else [])
    for rule, row in shown.items():
        if rule != fires:
            assert row.status in {Status.OK, Status.WARMING_UP}
            assert row.times_fired == 0


def test_given_thresholds_in_tags_when_the_same_job_runs_then_they_decide() -> None:
    below = {"trainguard:LowGPUUtilization_threshold_p95": "20", "trainguard:LowGPUUtilization_threshold_p5": "0"}
    fired, silent = (rows(play("slow_data_loader", tags))["LowGPUUtilization"] for tags in ({}, below))
    assert (fired.status, fired.threshold) == (Status.FIRED, 70.0)
    assert (silent.status, silent.threshold) == (Status.OK, 20.0)
    assert silent.parameters["threshold_p95"] == 20.0


def test_given_a_wrong_parameter_in_a_tag_when_the_job_runs_then_that_rule_says_error_and_the_others_go_on() -> None:
    network = play("slow_data_loader", {"trainguard:CPUBottleneck_threshold": "150", "trainguard:NoSuchRule_x": "1"})
    shown = {row.rule: row for row in network.world.rows.of_job(JOB) if row.node is None}
    assert shown["CPUBottleneck"].status is Status.ERROR
    assert "CPUBottleneck_threshold is '150'" in shown["CPUBottleneck"].reason
    assert shown["NoSuchRule"].status is Status.ERROR
    assert shown["LowGPUUtilization"].status is Status.FIRED
