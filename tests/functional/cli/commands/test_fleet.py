"""`trainguard report --fleet`: from the stack's tables to a page and a document."""

import json
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import DeployedStack, deployed_stack
from tests.support.fleets import found, job, quiet, with_rows
from tests.support.small_job import JOB
from trainguard.adapters.memory.world import MemoryWorld
from trainguard.cli.commands.report.fleet import read_jobs
from trainguard.cli.main import app
from trainguard.cli.services.deployment import Stores
from trainguard.records import RuleRow
from trainguard.report.fleet import Fleet


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


def fleet(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", "--fleet", *(str(word) for word in words)])


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch, tables=True) as deployed:
        yield deployed


def test_given_a_job_that_was_replayed_when_the_fleet_is_reported_then_it_is_told_once(tables: DeployedStack) -> None:
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
    reads = {("cloudformation", "DescribeStacks"), ("dynamodb", "Scan"), ("dynamodb", "Query")}
    assert set(stack.calls) == reads


def test_given_a_terminal_s_reader_when_the_fleet_is_reported_then_what_wastes_most_is_told(
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


def test_given_no_jobs_when_the_fleet_is_reported_then_the_page_says_so(
    stack: DeployedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_given_what_cannot_be_when_the_fleet_is_reported_then_it_is_refused(
    stack: DeployedStack, words: list[str], said: str
) -> None:
    Path("file").touch()
    result = fleet(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not Path("fleet.html").exists()


def test_given_jobs_when_read_then_each_comes_with_its_own_rows_and_unwanted_ones_are_not_asked_for() -> None:
    world = MemoryWorld()
    jobs = [job(f"job-{number}") for number in range(30)]
    for each in (*jobs, replace(job("job-1@replay-x"), active=False)):
        world.jobs.register(each)
        world.rows.publish(with_rows(each, found(each))[1])
    stores = Stores(jobs=world.jobs, nodes=world.nodes, rows=world.rows, objects=world.objects)
    read = list(read_jobs(Fleet(stack="TrainGuard", region="eu-west-1"), stores))
    assert [of.job for of, _ in read] == [each.job for each in jobs]
    assert all({stored.job for stored in rows} == {of.job} for of, rows in read)
    assert world.faults.calls.count("RuleStates.of_job") == len(jobs)


def test_given_a_job_of_many_nodes_when_read_then_its_nodes_rows_are_left_aside_and_the_page_is_the_same() -> None:
    world = MemoryWorld()
    few, many = job("few", nodes=16), job("many", nodes=17)
    for each in (few, many):
        world.jobs.register(each)
        for stored in with_rows(each, found(each, action="Training job stopped."), quiet(each, "BatchSize"))[1]:
            world.rows.record(stored)
    stores = Stores(jobs=world.jobs, nodes=world.nodes, rows=world.rows, objects=world.objects)
    seen = fleet_of(stores)
    assert {job: len(rows) for job, rows in seen.items()} == {"few": 4, "many": 3}
    calls = world.faults.calls
    assert (calls.count("RuleStates.of_job"), calls.count("RuleStates.of_whole_job")) == (1, 1)
    told = [{stored.rule: stored.action for stored in rows if stored.node is None} for rows in seen.values()]
    assert told[0] == told[1]
    assert told[1]["LowGPUUtilization"] == "Training job stopped."


def fleet_of(stores: Stores) -> dict[str, list[RuleRow]]:
    """Return the rows that the fleet reads, by job."""
    return {of.job: list(rows) for of, rows in read_jobs(Fleet(stack="TrainGuard", region="eu-west-1"), stores)}
