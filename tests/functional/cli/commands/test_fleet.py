"""`trainguard report` without a job: from the stack's tables to a page and a document."""

import json
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import DeployedStack, deployed_stack
from tests.support.fleets import found, job, quiet, with_rows
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB
from trainguard.cli.main import app
from trainguard.cli.services.deployment import Stores
from trainguard.cli.services.job_list import read_whole_job
from trainguard.core.records import RuleRow
from trainguard.report.fleet.fleet import Fleet, read_fleet


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


def fleet(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *(str(word) for word in words)])


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch, tables=True) as deployed:
        yield deployed


def test_replayed_job_is_counted_once(tables: DeployedStack) -> None:
    stack = tables
    stack.live_job()
    assert CliRunner().invoke(app, ["replay", JOB, "--as", "again"]).exit_code == 0
    stack.calls.clear()
    result = fleet("--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [each["job"] for each in document["jobs"]] == [JOB]
    assert "LowGPUUtilization" in document["jobs"][0]["fired"]
    assert document["totals"]["lost"] > 0.0
    assert (document["stack"], document["region"]) == ("TrainGuard", "eu-west-1")
    assert json.loads(Path("fleet.json").read_bytes()) == document
    assert JOB in Path("fleet.html").read_text("utf-8")
    assert result.stderr == ""
    reads = {("cloudformation", "DescribeStacks"), ("dynamodb", "Scan"), ("dynamodb", "Query"), ("ssm", "GetParameter")}
    assert set(stack.calls) == reads


def test_terminal_shows_what_wastes_most(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    result = fleet("--out", "pages/all.html", "--fail-on-fire")
    assert result.exit_code == 1
    lines = [line.split("\t") for line in result.stdout.split("\n")]
    waster = next(line for line in lines if line[0] == JOB)
    assert waster[2].startswith("USD ")
    assert "LowGPUUtilization" in waster[4]
    assert ["Page: pages/all.html"] in lines
    assert sorted(file.name for file in Path("pages").iterdir()) == ["all.html", "all.json"]


def test_fleet_page_without_jobs_says_so(stack: DeployedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    result = fleet("--since", "30d", "--out", ".", "--open", "--fail-on-fire")
    assert (result.exit_code, result.stderr) == (0, "No browser could be opened.\n")
    assert "none of 0 jobs was evaluated" in Path("fleet.html").read_text("utf-8")
    assert opened == [Path("fleet.html").resolve().as_uri()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "is no span of time"),
        (["--prices", "nowhere.json"], "nowhere.json"),
        (["--stack", "Other"], "has no stack Other"),
        (["--out", "file/fleet.html"], "cannot be written"),
    ],
)
def test_impossible_fleet_arguments_are_refused(stack: DeployedStack, words: list[str], said: str) -> None:
    Path("file").touch()
    result = fleet(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not Path("fleet.html").exists()


def test_jobs_come_with_their_rows_and_unwanted_are_not_queried() -> None:
    world = MemoryWorld()
    jobs = [job(f"job-{number}") for number in range(30)]
    for each in (*jobs, replace(job("job-1@replay-x"), active=False)):
        world.jobs.register(each)
        world.rows.publish(with_rows(each, found(each))[1])
    stores = Stores(
        jobs=world.jobs,
        nodes=world.nodes,
        rows=world.rows,
        bookkeeping=world.bookkeeping,
        objects=world.objects,
        alerts=world.alerts,
    )
    read = list(read_fleet(Fleet(stack="TrainGuard", region="eu-west-1"), stores.jobs, partial(read_whole_job, stores)))
    assert [of.job for of, _ in read] == [each.job for each in jobs]
    assert all({stored.job for stored in rows} == {of.job} for of, rows in read)
    assert world.faults.calls.count("RuleStates.of_job") == len(jobs)


def test_node_rows_of_a_large_job_do_not_change_the_page() -> None:
    world = MemoryWorld()
    few, many = job("few", nodes=16), job("many", nodes=17)
    for each in (few, many):
        world.jobs.register(each)
        for stored in with_rows(each, found(each, action="Training job stopped."), quiet(each, "BatchSize"))[1]:
            world.rows.record(stored)
    stores = Stores(
        jobs=world.jobs,
        nodes=world.nodes,
        rows=world.rows,
        bookkeeping=world.bookkeeping,
        objects=world.objects,
        alerts=world.alerts,
    )
    seen = fleet_of(stores)
    assert {job: len(rows) for job, rows in seen.items()} == {"few": 4, "many": 3}
    calls = world.faults.calls
    assert (calls.count("RuleStates.of_job"), calls.count("RuleStates.of_whole_job")) == (1, 1)
    told = [{stored.rule: stored.action for stored in rows if stored.node is None} for rows in seen.values()]
    assert told[0] == told[1]
    assert told[1]["LowGPUUtilization"] == "Training job stopped."


def fleet_of(stores: Stores) -> dict[str, list[RuleRow]]:
    """Return the rows that the fleet reads, by job."""
    return {
        of.job: list(rows)
        for of, rows in read_fleet(
            Fleet(stack="TrainGuard", region="eu-west-1"), stores.jobs, partial(read_whole_job, stores)
        )
    }
