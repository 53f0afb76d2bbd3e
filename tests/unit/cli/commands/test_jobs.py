"""`trainguard jobs`: which jobs are listed, in which order, and what is said about each."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.faults import Fault
from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, firing, job, row
from trainguard.core.errors import StateCodecError
from trainguard.core.finding import Severity
from trainguard.core.records import JobStatus, Status, TunedJob
from trainguard.rules.profiler_report import PROFILER_REPORT

__all__ = ["deployed"]
DAY_S = 86_400.0
LINE = {
    "job", "status", "active", "instance_type", "instance_count", "started_at", "ended_at", "duration_s", "verdict",
    "finding", "severity", "cost_lost", "ringing", "fired", "evaluated_through", "tuning_job", "fault",
    "platform", "queue", "owners",
}  # fmt: skip


def listed(deployed: Deployed, *words: str) -> list[dict[str, Any]]:
    result = deployed.run("jobs", "--json", *words)
    assert result.exit_code == 0, result.stderr
    jobs: list[dict[str, Any]] = json.loads(result.stdout)["jobs"]
    return jobs


def names(deployed: Deployed, *words: str) -> list[str]:
    return [line["job"] for line in listed(deployed, *words)]


def test_judged_job_has_status_verdict_worst_finding_and_cost(
    deployed: Deployed,
) -> None:
    (line,) = listed(deployed)
    assert set(line) == LINE
    assert (line["job"], line["status"], line["active"]) == (JOB, "InProgress", True)
    assert (line["instance_type"], line["instance_count"]) == ("ml.g5.12xlarge", 2)
    assert (line["started_at"], line["ended_at"], line["duration_s"]) == ("2026-11-21T08:00:00.000Z", None, 1020.0)
    assert (line["finding"], line["severity"]) == ("LowGPUUtilization", "medium")
    assert line["ringing"] == line["fired"] == ["LowGPUUtilization", "StepOutlier"]
    assert line["cost_lost"].startswith("about USD ")
    assert line["verdict"].startswith("This job is not healthy: its 8 GPUs worked 27.8 % of the paid time")


def test_json_document_has_a_version_and_a_time(deployed: Deployed) -> None:
    document = json.loads(deployed.run("jobs", "--json").stdout)
    assert list(document) == ["schema_version", "generated_at", "jobs", "more"]
    assert (document["schema_version"], document["generated_at"]) == ("1", "2026-11-21T08:17:00.000Z")


def test_newest_job_is_first_and_the_limit_drops_the_oldest(
    deployed: Deployed,
) -> None:
    deployed.add(job("older", started_at=deployed.now - 9 * DAY_S))
    deployed.add(job("created", created_at=deployed.now - DAY_S))
    deployed.add(job("unknown", last_object_at=deployed.now - 2 * DAY_S))
    assert names(deployed) == [JOB, "created", "unknown", "older"]
    assert names(deployed, "--limit", "2") == [JOB, "created"]
    assert "Only the newest 2 are shown" in deployed.run("jobs", "--limit", "2").stderr
    assert deployed.run("jobs", "--limit", "4").stderr == ""


@pytest.mark.parametrize(("span", "found"), [("12h", [JOB]), ("1d", [JOB, "edge"]), ("1w", [JOB, "edge", "older"])])
def test_span_lists_only_jobs_started_in_it(deployed: Deployed, span: str, found: list[str]) -> None:
    deployed.add(job("edge", started_at=deployed.now - DAY_S))
    deployed.add(job("older", started_at=deployed.now - DAY_S - 1.0))
    deployed.add(job("never"))
    assert names(deployed, "--since", span) == found


@pytest.mark.parametrize("span", ["7", "d", "7y", "-1d", "1.2.3h", ""])
def test_invalid_span_is_refused(deployed: Deployed, span: str) -> None:
    result = deployed.run("jobs", "--since", span)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--since" in result.stderr


def test_filter_by_status_or_active_lists_only_those(deployed: Deployed) -> None:
    deployed.add(job("failed", status=JobStatus.FAILED, active=False))
    deployed.add(job("closing", status=JobStatus.COMPLETED, closing=True))
    assert names(deployed, "--status", "failed") == ["failed"]
    assert names(deployed, "--active") == [JOB, "closing"]
    assert names(deployed, "--active", "--status", "Completed") == ["closing"]


def test_fired_filter_includes_finished_fires_and_no_quiet_jobs(
    deployed: Deployed,
) -> None:
    deployed.add(job("quiet"), [row("BatchSize"), row(PROFILER_REPORT, Status.OK, reason="No rule has fired.")])
    deployed.add(job("over"), [row("BatchSize", times_fired=2), row(PROFILER_REPORT, times_fired=2)])
    deployed.add(job("node"), [row("BatchSize", Status.FIRED, "algo-1")])
    assert set(names(deployed, "--fired")) == {JOB, "over"}
    assert len(names(deployed, "--fired", "--limit", "1")) == 1
    assert next(line for line in listed(deployed) if line["job"] == "over")["ringing"] == []


def test_duration_of_an_ended_job_is_until_its_end(deployed: Deployed) -> None:
    ended = job("ended", status=JobStatus.COMPLETED, active=False, started_at=100.0, ended_at=400.0)
    deployed.add(ended)
    line = next(line for line in listed(deployed) if line["job"] == "ended")
    assert (line["duration_s"], line["verdict"], line["finding"]) == (300.0, None, None)


def test_of_equal_severities_what_lost_most_is_listed_first(
    deployed: Deployed,
) -> None:
    cause = firing("CPUBottleneck", Severity.HIGH, wasted_percent=60.0)
    symptom = row("LowGPUUtilization", Status.FIRED, severity=Severity.HIGH, wasted_percent=5.0, times_fired=1)
    deployed.add(job("two"), [symptom, *cause])
    assert next(line for line in listed(deployed) if line["job"] == "two")["ringing"][0] == "CPUBottleneck"


def test_pipe_has_a_tabbed_line_per_job_and_no_headings(
    deployed: Deployed,
) -> None:
    deployed.add(job("another", started_at=1.0))
    lines = deployed.run("jobs").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [JOB, "another"]
    assert {line.count("\t") for line in lines} == {6}
    assert "\x1b" not in "".join(lines)
    assert lines[1].split("\t")[-1] == "No verdict yet."


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_keeps_findings(deployed: Deployed, columns: int) -> None:
    lines = deployed.shown("jobs", columns=columns).splitlines()
    assert max(len(line) for line in lines) <= columns
    assert "severity" in lines[0]
    assert JOB in lines[1]
    assert "medium" in lines[1]


def test_no_matching_job_leaves_stdout_empty_and_tells_stderr(deployed: Deployed) -> None:
    result = deployed.run("jobs", "--status", "Stopped")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No job matches.\n")


def test_hostile_text_is_escaped_and_markup_is_shown(deployed: Deployed) -> None:
    hostile = "\x1b[2J\x9b31m[red]x[/red]\u202eevil\r\nsecond\tline"
    deployed.add(job("hostile"), [row(PROFILER_REPORT, reason=hostile)])
    for how in ((), ("--json",)):
        shown = deployed.run("jobs", *how).stdout
        assert not set("\x1b\x9b\u202e\r") & set(shown)
        assert "[red]x[/red]" in shown
    shown = deployed.shown("jobs", columns=200)
    assert not set("\x1b\x9b\u202e\r") & set(shown)
    assert r"\x1b[2J\x9b31m[red]x[/red]\u202eevil second line" in shown
    verdicts = {line["job"]: line["verdict"] for line in listed(deployed)}
    assert verdicts["hostile"] == hostile


def test_unreadable_rows_of_one_job_leave_the_others_listed(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = deployed.world.rows.of_job

    def broken(name: str) -> Any:
        if name == "broken":
            raise StateCodecError("RuleState/broken/BatchSize", 0, "'BROKEN' is not a valid Status")
        return read(name)

    monkeypatch.setattr(deployed.world.rows, "of_job", broken)
    deployed.add(job("broken"))
    lines = {line["job"]: line for line in listed(deployed)}
    assert "RuleState/broken/BatchSize" in lines["broken"]["fault"]
    assert lines[JOB]["fault"] is None


def test_unanswering_store_is_refused_in_one_line(deployed: Deployed) -> None:
    deployed.world.faults.schedule("Jobs.all", Fault.FAIL_BEFORE)
    result = deployed.run("jobs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "trainguard: Jobs.all failed: ordered FAIL_BEFORE\n"


def test_listing_does_not_read_node_rows(deployed: Deployed) -> None:
    def line() -> Any:
        (found,) = json.loads(deployed.run("jobs", "--json").stdout)["jobs"]
        return found

    record = deployed.world.jobs.load(JOB)
    assert record is not None
    before = line()
    many = replace(record, instance_count=128)
    deployed.world.jobs.update_status(many)
    begun = len(deployed.world.faults.calls)
    assert line() == {**before, "instance_count": 128}
    read = [call for call in deployed.world.faults.calls[begun:] if call.startswith("RuleStates.")]
    assert read == ["RuleStates.of_whole_job"]


def test_filter_by_tuning_job_lists_only_its_jobs(deployed: Deployed) -> None:
    deployed.add(job("mine", tuning_job="tune"), firing("BatchSize", Severity.LOW))
    deployed.add(job("other", tuning_job="tune-2"))
    deployed.world.bookkeeping.upsert_tuned_job("tune", "mine", TunedJob(JobStatus.IN_PROGRESS), 1)
    assert names(deployed, "--tuning", "tune") == ["mine"]
    assert {line["job"]: line["tuning_job"] for line in listed(deployed)} == {
        JOB: None, "mine": "tune", "other": "tune-2"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--platform", "slurm"), ["cpu", "gpu"]),
        (("--platform", "slurm", "--queue", "gpu"), ["gpu"]),
        (("--owner", "nlp"), ["gpu"]),
        (("--owner", "nobody"), []),
    ],
)
def test_filters_by_place_and_owner_list_only_those(
    words: tuple[str, ...], found: list[str], deployed: Deployed
) -> None:
    deployed.add(job("gpu", platform="slurm", queue="gpu", owners={"user": "ann", "team": "nlp"}))
    deployed.add(job("cpu", platform="slurm", queue="cpu"))
    assert sorted(names(deployed, *words)) == found
