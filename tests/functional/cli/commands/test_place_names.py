"""A job outside SageMaker below a prefix: every command knows it by the name of its place."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import PREFIX, DeployedStack, deployed_stack
from tests.support.small_job import BUCKET, JOB
from trainguard.cli.main import app

NAME = f"{JOB}@{PREFIX}"
PLACE = f"s3://{BUCKET}/{PREFIX}{JOB}/"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStack]:
    monkeypatch.chdir(tmp_path)
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


def call(*words: str, fails: bool = False) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code != 0) is fails, result.output
    return result


def test_commands_know_a_job_of_a_place_by_name(stack: DeployedStack) -> None:
    stack.live_job(outside=True)
    for words in (["jobs"], ["status", NAME], ["explain", NAME, "LowGPU"], ["report", NAME, "--out", "reports"]):
        assert NAME in call(*words).stdout
    stack.clients.s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}{JOB}/rule-output/TrainGuardReport/report.html", Body=b"x")
    assert json.loads(call("open", NAME, "--json").stdout)["uri"].startswith(PLACE)


def test_replay_by_name_or_place_lies_beside_its_job(
    stack: DeployedStack,
) -> None:
    stack.live_job(outside=True)
    by_name = json.loads(call("replay", NAME, "--as", "one", "--report", "--json").stdout)
    by_place = json.loads(call("replay", PLACE, "--as", "two", "--json").stdout)
    assert (by_name["replay_of"], by_name["changed"]) == (by_place["replay_of"], by_place["changed"]) == (NAME, [])
    keys = [each["Key"] for each in stack.clients.s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert f"{PREFIX}{JOB}@replay-one/rule-output/TrainGuardReport/report.json" in keys


@pytest.mark.parametrize("command", ["status", "open", "report"])
def test_bare_folder_name_suggests_the_job_of_the_place(stack: DeployedStack, command: str) -> None:
    stack.live_job(outside=True)
    assert f"perhaps you mean {NAME}" in call(command, JOB, fails=True).stderr


def test_mistyped_path_is_not_taken_for_a_job_name(stack: DeployedStack) -> None:
    stack.calls.clear()
    assert "does not exist" in call("report", "team-a/my-run", fails=True).stderr
    assert stack.calls == []
