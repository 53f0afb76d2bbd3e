"""`trainguard status` of a tuning job: its jobs, the worst first."""

import json

import pytest

from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job
from trainguard.core.finding import Severity
from trainguard.core.records import MOST_TUNED_JOBS, JobStatus, TunedJob

__all__ = ["deployed"]

LOW_GPU = TunedJob(JobStatus.STOPPED, finished=True, findings=3, rule="LowGPUUtilization", severity=Severity.CRITICAL)
BATCH = TunedJob(JobStatus.IN_PROGRESS, findings=1, rule="BatchSize", severity=Severity.LOW)


@pytest.fixture
def tuned(deployed: Deployed) -> Deployed:
    """Return a deployment with a tuning job of three."""
    for name, told in (("a-well", TunedJob(JobStatus.COMPLETED, finished=True)), ("b", BATCH), ("c", LOW_GPU)):
        deployed.world.bookkeeping.upsert_tuned_job("tune", name, told, 1)
    return deployed


def test_document_of_a_tuning_job_has_its_jobs_worst_first(
    tuned: Deployed,
) -> None:
    assert json.loads(tuned.run("status", "tune", "--json").stdout) == {
        "schema_version": "1",
        "generated_at": "2026-11-21T08:17:00.000Z",
        "tuning_job": "tune",
        "seen": 3,
        "finished": 2,
        "with_findings": 2,
        "more": False,
        "brakes": [],
        "jobs": [
            {
                "job": "c",
                "status": "Stopped",
                "finished": True,
                "findings": 3,
                "rule": "LowGPUUtilization",
                "severity": "critical",
            },
            {
                "job": "b",
                "status": "InProgress",
                "finished": False,
                "findings": 1,
                "rule": "BatchSize",
                "severity": "low",
            },
            {
                "job": "a-well",
                "status": "Completed",
                "finished": True,
                "findings": 0,
                "rule": None,
                "severity": None,
            },
        ],
    }


def test_tuning_job_has_a_line_per_job(tuned: Deployed) -> None:
    shown = tuned.shown("status", "tune", columns=100)
    assert "3, 2 of them evaluated to their end" in shown
    assert "LowGPUUtilization (critical) on c" in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[-3:] == [
        "c Stopped to its end critical LowGPUUtilization and 2 more",
        "b InProgress still low BatchSize",
        "a-well Completed to its end no finding",
    ]


@pytest.mark.parametrize(("told", "code"), [(BATCH, 1), (TunedJob(JobStatus.COMPLETED, finished=True), 0)])
def test_fail_on_fire_sets_the_exit_code_of_a_tuning_job(deployed: Deployed, told: TunedJob, code: int) -> None:
    deployed.world.bookkeeping.upsert_tuned_job("tune", "a", told, 1)
    assert deployed.run("status", "tune", "--fail-on-fire").exit_code == code


def test_more_jobs_than_shown_says_where_all_are(deployed: Deployed) -> None:
    for number in range(MOST_TUNED_JOBS + 1):
        deployed.world.bookkeeping.upsert_tuned_job("tune", f"job-{number}", BATCH, 1)
    result = deployed.run("status", "tune")
    assert "750 and more, 0 of them evaluated to their end" in result.stdout
    assert "`trainguard jobs --tuning tune` has all." in result.stderr


def test_training_job_is_preferred_to_a_tuning_job_of_its_name(
    tuned: Deployed,
) -> None:
    tuned.world.bookkeeping.upsert_tuned_job(JOB, "a", BATCH, 1)
    assert json.loads(tuned.run("status", JOB, "--json").stdout)["job"] == JOB


def test_job_of_a_tuning_job_names_it(tuned: Deployed) -> None:
    tuned.add(job("c", tuning_job="tune"))
    assert json.loads(tuned.run("status", "c", "--json").stdout)["tuning_job"] == "tune"
    assert "tuning job" in tuned.shown("status", "c", columns=100)


def test_unknown_name_is_refused(tuned: Deployed) -> None:
    result = tuned.run("status", "tune-9")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tune-9" in result.stderr
