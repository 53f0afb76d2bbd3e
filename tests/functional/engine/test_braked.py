"""A job whose evaluation an operator brakes: it has no verdict then, and nothing is missing afterwards."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.unit.testing.rules import HotCpu, SlowSteps
from trainguard.core.brakes import Brake, Braked, BrakeList, new_brake
from trainguard.core.records import RuleRow, Status
from trainguard.report.job_verdict import job_verdict
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.testing import SyntheticJob
from trainguard.testing.run import NAME, MemoryDeployment, Watch, _parameters

JOB = (
    SyntheticJob(nodes=2, minutes=16)
    .with_steps(lambda number: 9.0 if number == 200 else 3.0, node="algo-1")
    .with_series("cpu", 95.0, node="algo-2", start_s=240.0, end_s=420.0)
)


def brake(what: Braked = Braked.EVALUATION, **more: Any) -> Brake:
    return new_brake("b-1", what, by="arn:aws:iam::1:user/ada", why="it costs too much", now=float(JOB.start), **more)


@dataclass
class Run:
    """A job that runs, under a brake from one minute to before another."""

    rule: Any
    first: int = 0
    last: int = 0
    brake: Brake = field(default_factory=brake)
    seed: int | None = None
    seen: dict[int, list[RuleRow]] = field(default_factory=dict)
    verdicts: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run, start = self, JOB.start

        class Observed(MemoryDeployment):
            def _deliver(self, until: int, batches: Any) -> None:
                minute = (until - start) // 60
                run.seen[minute] = self.world.rows.of_job(NAME)
                run.verdicts[minute] = job_verdict(self.world.jobs, self.world.rows, NAME, now=float(until))
                self.world.brakes = BrakeList((run.brake,) if run.first <= minute < run.last else ())
                super()._deliver(until, batches)

        self.deployment = Observed(Watch(self.rule), _parameters(self.rule, None), JOB, seed=self.seed)
        self.deployment.run(ended=True)
        self.world = self.deployment.world

    @property
    def result(self) -> tuple[Any, ...]:
        rows = [
            (row.target, row.status, row.data_points, row.times_fired, row.evaluated_through, row.finding.episodes)
            for row in self.world.rows.of_job(NAME)
            if row.rule == self.rule.name
        ]
        fires = sorted(name for name, each in self.world.executions.started.items() if each["kind"] == "fire")
        return rows, fires

    def report(self, minute: int) -> RuleRow:
        (row,) = [row for row in self.seen[minute] if row.rule == PROFILER_REPORT]
        return row


Rule = type[HotCpu] | type[SlowSteps]


@cache
def unbraked(rule: Rule) -> tuple[Any, ...]:
    return Run(rule()).result


@pytest.mark.parametrize(
    ("rule", "first", "last", "seed"),
    [(HotCpu, 0, 10, 3), (HotCpu, 3, 12, None), (HotCpu, 5, 6, 5), (SlowSteps, 5, 20, None), (HotCpu, 15, 22, None)],
)
def test_braked_time_is_judged_in_full_afterwards(rule: Rule, first: int, last: int, seed: int | None) -> None:
    braked = Run(rule(), first, last, seed=seed)
    assert braked.result == unbraked(rule)
    job = braked.world.jobs.load(NAME)
    assert job is not None
    assert job.braked is None
    assert not job.active
    assert any(each.what == "not_evaluated" for each in braked.world.journal.entries)


def test_braked_job_is_never_called_healthy() -> None:
    run = Run(HotCpu(), 5, 12)
    assert run.report(5).status is Status.OK
    for minute in range(6, 13):
        report, verdict = run.report(minute), run.verdicts[minute]
        assert report.status is not Status.OK
        assert report.finding.reason.startswith("Not evaluated since ")
        assert "brake b-1 of ada until it is released: it costs too much" in report.finding.reason
        assert (verdict.verdict, verdict.would_do) == ("unknown", "nothing")
        assert verdict.why == report.finding.reason
        assert report.evaluated_through == run.report(5).evaluated_through
    assert run.report(13).finding.reason.startswith("Evaluated again since ")
    assert run.verdicts[16].verdict != "unknown"
    assert "valuated" not in run.report(16).finding.reason


def test_open_finding_stays_in_the_row_of_a_braked_job() -> None:
    run = Run(HotCpu(), 7, 11)
    assert run.report(10).status is Status.FIRED
    assert run.report(10).finding.reason.startswith("Not evaluated since ")


@pytest.mark.parametrize("other", [brake(job="other"), brake(Braked.ALERTS), brake(Braked.STOPS, job=NAME)])
def test_other_brake_holds_no_evaluation_back(other: Brake) -> None:
    run = Run(HotCpu(), 0, 99, other)
    assert run.result == unbraked(HotCpu)
    assert not [each for each in run.world.journal.entries if each.what == "not_evaluated"]


def test_brake_ends_by_itself_at_its_time() -> None:
    run = Run(HotCpu(), 0, 99, brake(until=JOB.start + 360.0))
    assert run.report(5).finding.reason.startswith("Not evaluated since ")
    assert run.result == unbraked(HotCpu)
