"""Whole recorded jobs through the whole engine: each fault fires its own rule, and nothing else fires."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from demo.recording import Recording
from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.core.records import JobStatus, RuleRow, Status
from trainguard.ledger.document import lost_share_of
from trainguard.rules.max_initialization_time.rule import MaxInitializationTime
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

RECORDINGS = Path(__file__).parents[3] / "events" / "jobs"
RULES = {*RULE_NAMES, PROFILER_REPORT}


def play(name: str, tags: dict[str, str]) -> Network:
    """Deliver a recorded job as it was uploaded, with a run of the scheduler every five minutes."""
    network = Network()
    network.world.training_jobs.set(describe(tags))
    deliver(network, name)
    return network


def deliver(network: Network, name: str) -> None:
    recording = Recording.load(RECORDINGS / f"{name}.npz")
    next_tick = float(START)
    for item in recording.objects(JOB, start=START):
        upload = Upload(item.appears_at, item.key, item.body)
        while upload.at > next_tick:
            network.run_until(next_tick, batch_s=1.0)
            network.run_scheduler()
            next_tick += 300.0
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=1.0)
    network.run_until(upload.at + 2_000.0, batch_s=1.0)
    network.run_scheduler()


def rows(network: Network) -> dict[str, RuleRow]:
    return {row.rule: row for row in network.world.rows.of_job(JOB) if row.node is None}


@pytest.mark.parametrize(
    ("name", "fires"),
    [
        ("healthy", []),
        ("slow_data_loader", ["Dataloader", "LowGPUUtilization"]),
        ("cpu_bottleneck", ["CPUBottleneck", "Dataloader"]),
        ("late_first_step", ["MaxInitializationTime"]),
        ("slow_steps", ["StepOutlier"]),
    ],
)
def test_recorded_job_fires_exactly_its_own_fault(name: str, fires: list[str]) -> None:
    """Beside it may be what else shows of the fault; the fault stands first."""
    network = play(name, {})
    shown = rows(network)
    assert set(shown) == RULES
    report = shown.pop(PROFILER_REPORT)
    assert {rule for rule, row in shown.items() if row.status is Status.FIRED} == set(fires)
    started = [each["rule"] for each in network.world.executions.started.values() if each["kind"] == "fire"]
    assert sorted(map(str, started)) == fires
    for rule, row in shown.items():
        if rule not in fires:
            assert row.status in {Status.OK, Status.WARMING_UP, Status.NOT_APPLICABLE}
            assert row.times_fired == 0
            assert (row.finding.severity, row.finding.advice, row.affected_percent, row.finding.cost) == (
                None,
                None,
                None,
                None,
            )
    if not fires:
        assert (report.status, report.times_fired, report.finding.finding_kind) == (Status.OK, 0, "healthy")
    else:
        assert_it_says_what_it_means(shown[fires[0]], report)


def assert_it_says_what_it_means(row: RuleRow, report: RuleRow) -> None:
    assert row.finding.severity is not None
    assert row.finding.advice
    assert row.affected_percent is not None
    assert 0.0 < row.affected_percent <= 100.0
    assert (row.finding.cost or "").startswith("about USD ")
    assert f"({row.rule}, {row.finding.severity.value}, " in report.finding.reason
    assert report.finding.finding_kind in {"attention", "unhealthy"}
    assert lost_share_of(report.finding.facts) is not None
    told = (report.status, report.finding.severity, report.finding.advice, report.affected_percent, report.finding.cost)
    assert told == (row.status, row.finding.severity, row.finding.advice, row.affected_percent, row.finding.cost)


def test_other_rules_are_disabled_with_one_rule_to_invoke() -> None:
    shown = rows(play("cpu_bottleneck", {"trainguard:rule_to_invoke": "cPUbottleneck"}))
    assert set(shown) == RULES
    assert shown["CPUBottleneck"].status is shown[PROFILER_REPORT].status is Status.FIRED
    others = {rule: row for rule, row in shown.items() if rule not in {"CPUBottleneck", PROFILER_REPORT}}
    assert {row.status for row in others.values()} == {Status.DISABLED}
    assert {row.finding.reason for row in others.values()} == {"rule_to_invoke is CPUBottleneck."}


def test_instance_type_without_a_price_shows_no_money() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe({}), instance_type="ml.unheard-of.large"))
    deliver(network, "cpu_bottleneck")
    row = rows(network)["CPUBottleneck"]
    assert (row.status, row.finding.cost) == (Status.FIRED, None)
    fires = [each for each in network.world.executions.started.values() if each["kind"] == "fire"]
    assert [fire["cost"] for fire in fires] == [None] * 2


def test_money_lost_is_counted_once_by_rule_at_the_jobs_end() -> None:
    network = play("cpu_bottleneck", {})
    assert "money_lost" not in {each.what for each in network.world.journal.entries}
    ended = replace(describe({}), status=JobStatus.COMPLETED, ended_at=network.now)
    network.world.training_jobs.set(ended)
    for _ in range(30):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.run_scheduler()
    assert not network.job().active
    lost = [each for each in network.world.journal.entries if each.what == "money_lost"]
    by_rule = {str(each.where["rule"]): each.amount for each in lost}
    assert len(lost) == len(by_rule)
    assert by_rule["CPUBottleneck"] > 0.0
    assert 0.0 < sum(by_rule.values()) < 1_000.0


def test_raising_job_rule_is_counted_once_with_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judge(*_: object) -> None:
        raise ZeroDivisionError("no steps")

    monkeypatch.setattr(MaxInitializationTime, "judge", judge)
    network = play("slow_steps", {})
    row = rows(network)["MaxInitializationTime"]
    assert row.status is Status.ERROR
    assert re.fullmatch(
        r"The rule failed: ZeroDivisionError in engine/test_recorded_jobs\.py:\d+: no steps\.", row.finding.reason
    )
    assert network.world.journal.totals["rule_errors"] == 1
    assert rows(network)["StepOutlier"].status is Status.FIRED


def test_thresholds_in_tags_decide() -> None:
    above = {"trainguard:CPUBottleneck_threshold": "100"}
    fired, silent = (rows(play("cpu_bottleneck", tags))["CPUBottleneck"] for tags in ({}, above))
    assert (fired.status, fired.finding.threshold) == (Status.FIRED, 50.0)
    assert (silent.status, silent.finding.threshold) == (Status.OK, 100.0)
    assert silent.parameters["threshold"] == 100.0


def test_wrong_parameter_in_a_tag_puts_that_rule_alone_in_error() -> None:
    wrong = {"trainguard:LowGPUUtilization_threshold_p95": "150", "trainguard:NoSuchRule_x": "1"}
    shown = rows(play("cpu_bottleneck", wrong))
    assert shown["LowGPUUtilization"].status is Status.ERROR
    assert "LowGPUUtilization_threshold_p95 is '150'" in shown["LowGPUUtilization"].finding.reason
    assert shown["NoSuchRule"].status is Status.ERROR
    assert shown[PROFILER_REPORT].status is Status.FIRED
    assert shown["CPUBottleneck"].status is Status.FIRED
