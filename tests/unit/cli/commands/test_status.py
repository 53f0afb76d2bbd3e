"""`trainguard status`: the active jobs, one job's rules and nodes, exit codes, and looking again and again."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tests.support.small_job import JOB
from tests.unit.cli.seen import NOT_STOPPED, Deployed, deployed, firing, job, judged, many_nodes, row
from trainguard.cli.output.rendering import Line
from trainguard.cli.output.result import CommandResult, watch
from trainguard.cli.services.names import ALL_RULE_NAMES
from trainguard.core.errors import PortUnavailableError
from trainguard.core.finding import Severity
from trainguard.core.records import JobStatus, Status
from trainguard.rules.profiler_report import PROFILER_REPORT

__all__ = ["deployed"]
RULE_LINE = {
    "rule", "node", "status", "severity", "reason", "measured", "threshold", "worst", "data_points", "patience",
    "advice", "affected_percent", "wasted_percent", "cost_lost", "episodes", "earlier_episodes", "violations",
    "times_fired", "evaluated_through",
    "fired_at", "fire_id", "action", "action_at", "alert_id", "report_uri", "stop", "counters", "parameters",
    "progress", "finding_kind", "facts",
}  # fmt: skip


def document(deployed: Deployed, *words: str) -> dict[str, Any]:
    result = deployed.run("status", "--json", *words)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_active_jobs_are_listed_worst_first_without_ended_ones(
    deployed: Deployed,
) -> None:
    deployed.add(job("a-high"), firing("BatchSize", Severity.HIGH))
    deployed.add(job("a-quiet"), [row("BatchSize")])
    deployed.add(job("ended", active=False), firing("BatchSize", Severity.CRITICAL))
    found = document(deployed)
    assert list(found) == ["schema_version", "generated_at", "jobs", "brakes"]
    assert [line["job"] for line in found["jobs"]] == ["a-high", JOB, "a-quiet"]
    lines = deployed.run("status").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["a-high", JOB, "a-quiet"]
    assert lines[1].split("\t")[-2:] == [
        "medium",
        "LowGPUUtilization, StepOutlier; " + found["jobs"][1]["cost_lost"],
    ]


def test_no_active_job_points_to_the_others_on_stderr(deployed: Deployed) -> None:
    deployed.world.jobs.update_status(replace(judged()[0], status=JobStatus.COMPLETED, active=False))
    result = deployed.run("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No job is active: `trainguard jobs`" in result.stderr


def test_every_rule_of_a_job_is_shown_as_stored(deployed: Deployed) -> None:
    found = document(deployed, JOB)
    assert [line["rule"] for line in found["rules"]][:2] == ["LowGPUUtilization", "StepOutlier"]
    assert found["rules"][-1]["rule"] == PROFILER_REPORT
    assert {line["rule"] for line in found["rules"]} == set(ALL_RULE_NAMES)
    low = found["rules"][0]
    assert set(low) == RULE_LINE
    assert (low["status"], low["measured"], low["threshold"], low["worst"]) == ("FIRED", 39.0, 70.0, "algo-1/gpu0")
    assert (low["action"], low["alert_id"], low["fire_id"]) == (NOT_STOPPED, "f1", "f1")
    assert (low["fired_at"], low["action_at"]) == ("2026-11-21T08:06:50.010Z", "2026-11-21T08:07:02.010Z")
    assert found["fired"] == ["LowGPUUtilization", "StepOutlier"]
    assert (found["status"], found["active"], found["nodes"]) == ("InProgress", True, [])
    assert found["verdict"] == found["rules"][-1]["reason"]


def test_node_rows_are_shown_worst_first(deployed: Deployed) -> None:
    nodes = document(deployed, JOB, "--nodes")["nodes"]
    low = [line for line in nodes if line["rule"] == "LowGPUUtilization"]
    assert [(line["node"], line["status"]) for line in low] == [("algo-1", "FIRED"), ("algo-2", "OK")]
    assert {line["node"] for line in nodes} == {"algo-1", "algo-2"}


def test_fires_of_a_job_have_reason_advice_cost_and_outcome(
    deployed: Deployed,
) -> None:
    text = " ".join(deployed.shown("status", JOB, columns=160).split())
    assert "LowGPUUtilization (medium) 1 of 2 nodes fire; worst algo-1: gpu0 on algo-1" in text
    assert "To do: Raise the batch size" in text
    assert "It has cost about USD" in text
    assert f"Done: {NOT_STOPPED} (2026-11-21 08:07:02Z, 10 min ago)" in text
    assert "1 x, 10.2 min ago, on 1 of 2 nodes" in text
    assert "155/1000" in text
    assert "evaluated through 2026-11-21 08:13:50Z, 190 s ago" in text


@pytest.mark.parametrize("columns", [80, 120])
def test_narrow_terminal_drops_columns_and_keeps_names_whole(deployed: Deployed, columns: int) -> None:
    lines = deployed.shown("status", JOB, "--nodes", columns=columns).splitlines()
    assert max(len(line) for line in lines) <= columns
    for name in set(ALL_RULE_NAMES) - {PROFILER_REPORT}:
        assert any(line.startswith(f"{name} ") for line in lines)
    assert any("on 1" in line and "of 2 nodes" in " ".join(lines) for line in lines)


def test_worst_of_128_nodes_are_listed_and_the_others_counted(
    deployed: Deployed,
) -> None:
    nodes = many_nodes("BatchSize", 128, lambda number: Status.FIRED if number in {77, 128} else Status.OK)
    deployed.add(job("wide"), [*firing("BatchSize"), *nodes])
    text = deployed.shown("status", "wide", "--nodes", columns=120)
    lines = text.splitlines()
    assert len(lines) < 30
    assert "on 2 of 128 nodes" in " ".join(text.split())
    assert [line.split()[0] for line in lines if line.startswith("algo-")] == [
        "algo-77", "algo-128", "algo-1", "algo-2", "algo-3", "algo-4", "algo-5", "algo-6",
    ]  # fmt: skip
    assert "… and 120 nodes more: 120 OK. All of them are in --json." in text
    assert len(document(deployed, "wide", "--nodes")["nodes"]) == 128


def test_fail_on_fire_exits_with_1_even_when_fires_are_over(deployed: Deployed) -> None:
    deployed.add(job("over"), [row("BatchSize", times_fired=1), row(PROFILER_REPORT, times_fired=1)])
    deployed.add(job("quiet"), [row("BatchSize"), row(PROFILER_REPORT)])
    assert deployed.run("status", JOB).exit_code == 0
    assert deployed.run("status", JOB, "--fail-on-fire").exit_code == 1
    assert deployed.run("status", "over", "--fail-on-fire", "--json").exit_code == 1
    assert deployed.run("status", "quiet", "--fail-on-fire").exit_code == 0
    assert deployed.run("status", "--fail-on-fire").exit_code == 1


def test_misspelled_name_suggests_the_nearest(deployed: Deployed) -> None:
    deployed.add(job("resnet-50"))
    deployed.add(job("bert"))
    result = deployed.run("status", "smal-jobb")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no job 'smal-jobb' in the table of 3 jobs; perhaps you mean small-job" in result.stderr
    assert "perhaps" not in deployed.run("status", "zzzz").stderr
    assert "perhaps you mean resnet-50\n" in deployed.run("status", "RESNET").stderr


def test_rows_of_a_job_without_its_item_are_shown(deployed: Deployed) -> None:
    for stored in firing("BatchSize"):
        deployed.world.rows.record(stored)
    found = document(deployed, "job")
    assert (found["status"], found["active"], found["fired"]) == (None, False, ["BatchSize"])


def test_job_without_rows_says_that_nothing_was_read_yet(deployed: Deployed) -> None:
    deployed.add(job("fresh"))
    result = deployed.run("status", "fresh")
    assert result.exit_code == 0
    assert "No rule has a result yet" in result.stderr


def test_watching_without_a_terminal_is_refused(deployed: Deployed) -> None:
    result = deployed.run("status", "--watch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--watch needs a terminal" in result.stderr


def _terminal() -> tuple[Console, StringIO]:
    shown = StringIO()
    return Console(file=shown, force_terminal=True, width=80, height=20, highlight=False), shown


def test_watching_redraws_until_the_job_is_over() -> None:
    console, shown = _terminal()
    answers = iter(
        [CommandResult(document={}, blocks=[Line(f"look {n}")], final=n == 3, fired=n == 3) for n in (1, 2, 3)]
    )
    pauses: list[float] = []
    code = watch(lambda: next(answers), console=console, every_s=5.0, fail_on_fire=True, pause=pauses.append)
    assert (code, pauses) == (1, [5.0, 5.0])
    assert all(f"look {n}" in shown.getvalue() for n in (1, 2, 3))


def test_failed_refresh_is_shown_above_the_last_state() -> None:
    console, shown = _terminal()
    looks: list[Any] = [
        CommandResult(document={}, blocks=[Line("before")]),
        PortUnavailableError("DynamoDB", "Query", "slow"),
    ]
    looks += [
        CommandResult(document={}, blocks=[Line("after")]),
        CommandResult(document={}, blocks=[Line("end")], final=True),
    ]

    def look() -> CommandResult:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, CommandResult)
        return found

    assert watch(look, console=console, every_s=1.0, fail_on_fire=False, pause=lambda _: None) == 0
    assert shown.getvalue().count("Not brought up to date: DynamoDB.Query failed: slow") == 1
    assert shown.getvalue().count("before") == 2
    assert "after" in shown.getvalue()


def test_interrupted_watch_ends_with_the_last_state() -> None:
    console, shown = _terminal()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    result = CommandResult(document={}, blocks=[Line("last seen")], fired=True)
    assert watch(lambda: result, console=console, every_s=1.0, fail_on_fire=False, pause=interrupt) == 0
    assert shown.getvalue().rstrip().endswith("last seen")


def test_fired_rule_has_episodes_with_time_place_and_cost(
    deployed: Deployed,
) -> None:
    low = document(deployed, JOB)["rules"][0]
    (episode,) = low["episodes"]

    assert (episode["node"], episode["nodes"], episode["end"], low["earlier_episodes"]) == (
        "algo-1",
        ["algo-1"],
        None,
        0,
    )
    assert episode["start"] <= low["fired_at"]
    assert episode["cost"] > 0.0
    text = " ".join(deployed.shown("status", JOB, columns=160).split())
    assert f"It held since {episode['start'][:16].replace('T', ' ')} UTC on algo-1" in text


def test_explained_rule_says_when_its_condition_held(deployed: Deployed) -> None:
    text = " ".join(deployed.shown("explain", JOB, "LowGPUUtilization", columns=160).split())

    assert "When it held since 2026-11-21 08:0" in text or "When it held Since 2026-11-21 08:0" in text
    assert "; it cost USD " in text
