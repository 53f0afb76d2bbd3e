"""`trainguard verdict`: one word on a job of the stack, or on what lies at a place."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import DeployedStack, deployed_stack
from tests.support.json_service import json_service
from tests.support.small_job import JOB
from tests.support.wandb_files import ended, run, run_file, stats
from trainguard.cli.main import app


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployedStack]:
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


def verdict(*words: object) -> Result:
    return CliRunner().invoke(app, ["verdict", *(str(word) for word in words)])


def recorded(folder: Path, gpu: float, *, until: float, code: int | None = None, **further: float) -> Path:
    """Write an hour of a run, up to a time; ``further`` are other metrics of its GPU."""
    start = until - 3_600.0
    metrics = {"gpu.0.gpu": gpu, **{f"gpu.0.{name}": value for name, value in further.items()}}
    samples = [stats(start + 15.0 * number, metrics) for number in range(240)]
    file = folder / "run-a.wandb"
    file.write_bytes(run_file([run("bert", at=start), *([] if code is None else [ended(code)]), *samples]))
    return file


def test_stack_job_gives_the_verdict_of_its_rows(stack: DeployedStack) -> None:
    stack.live_job()
    result = verdict(JOB, "--json", "--fail-on-fire")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["verdict"], said["would_do"], said["active"]) == (1, "wasted", "nothing", False)
    assert "LowGPUUtilization" in said["rules"]


def test_unknown_job_is_reported_as_unknown(stack: DeployedStack) -> None:
    stack.live_job()
    result = verdict("unknown-job", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (3, "unknown")


@pytest.mark.parametrize(
    ("gpu", "late_s", "code", "word", "exit_code"),
    [
        (1.0, 60.0, None, "idle", 1),
        (95.0, 60.0, None, "healthy", 0),
        (1.0, 4_000.0, None, "unknown", 3),
        (1.0, 4_000.0, 0, "wasted", 1),
    ],
)
def test_verdict_is_provisional_while_running_and_final_after(
    gpu: float, late_s: float, code: int | None, word: str, exit_code: int, tmp_path: Path
) -> None:
    file = recorded(tmp_path, gpu, until=time.time() - late_s, code=code)
    result = verdict(file, "--json", "--fail-on-fire", "--instance-type", "ml.g5.xlarge")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (exit_code, word)


def test_verdict_is_shown_with_word_reason_and_money(tmp_path: Path) -> None:
    result = verdict(recorded(tmp_path, 1.0, until=time.time() - 60.0), "--instance-type", "ml.g5.xlarge")
    lines = dict(line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line)
    assert (lines["verdict"], lines["TrainGuard"]) == ("idle", "alert: The job's owner has not allowed stops.")
    lost, paid = (float(amount) for amount in lines["lost"].removeprefix("USD ").split(" of "))
    assert 0.95 * paid < lost <= paid == pytest.approx(1.4, abs=0.05)


def test_meaningless_options_for_a_job_are_refused(stack: DeployedStack) -> None:
    stack.live_job()
    assert verdict(JOB, "--instance-type", "ml.g5.xlarge").exit_code == 2


def tags_of(body: bytes) -> tuple[str, dict[str, str]]:
    sent = json.loads(body)
    return sent["run_id"], {each["key"]: each["value"] for each in sent["tags"]}


def test_verdict_is_written_as_tags_of_the_mlflow_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t1")
    file = recorded(tmp_path, 1.0, until=time.time() - 60.0)
    with json_service(lambda *_: (200, {})) as (url, asked):
        result = verdict(file, "--json", "--instance-type", "ml.g5.xlarge", "--write-mlflow", f"mlflow+{url}#a1")
    (request,) = asked
    run_id, tags = tags_of(request.body)
    said = json.loads(result.stdout)
    assert (result.exit_code, run_id, request.path) == (0, "a1", "/api/2.0/mlflow/runs/log-batch")
    assert (request.method, request.headers["Authorization"]) == ("POST", "Bearer t1")
    assert request.headers["Content-Type"] == "application/json"
    assert (tags["trainguard.verdict"], tags["trainguard.why"], tags["trainguard.currency"]) == (
        "idle",
        said["why"],
        "USD",
    )
    assert set(tags) == {f"trainguard.{name}" for name in TAGS}


TAGS = (
    *("verdict", "why", "since", "certainty", "rules", "wasted_share", "lost", "currency", "advice", "job"),
    *("evaluated_through", "generated_at"),
)


def test_unknown_fields_of_a_healthy_run_are_written_empty(tmp_path: Path) -> None:
    file = recorded(tmp_path, 95.0, until=time.time() - 60.0)
    with json_service(lambda *_: (200, {})) as (url, asked):
        assert verdict(file, "--write-mlflow", f"mlflow+{url}#a1").exit_code == 0
    _, tags = tags_of(asked[0].body)
    assert (tags["trainguard.verdict"], tags["trainguard.since"], tags["trainguard.lost"]) == ("healthy", "", "")


def test_named_run_is_written_to_the_server_of_the_user(
    tmp_path: Path,
) -> None:
    file = recorded(tmp_path, 95.0, until=time.time() - 60.0)
    with json_service(lambda *_: (200, {})) as (url, asked):
        without = verdict(file, "--write-mlflow", f"mlflow+{url}")
        assert (without.exit_code, len(asked)) == (2, 0)
        assert "names no run of MLflow" in without.output


@pytest.mark.parametrize(
    ("status", "place"),
    [(404, "mlflow+{url}#gone"), (403, "mlflow+{url}#a1"), (302, "mlflow+{url}#a1"), (200, "{url}#a1")],
)
def test_refusing_server_fails_the_command(status: int, place: str, tmp_path: Path) -> None:
    file = recorded(tmp_path, 95.0, until=time.time() - 60.0)
    with json_service(lambda *_: (status, {"message": "refused"})) as (url, _):
        result = verdict(file, "--write-mlflow", place.format(url=url))
    assert result.exit_code == 2


def test_idle_run_holding_memory_is_named_in_the_verdict(tmp_path: Path) -> None:
    memory: dict[str, Any] = {"memoryAllocated": 50.0, "memoryAllocatedBytes": 40 * 2.0**30}
    place = recorded(tmp_path, 0.0, until=time.time() - 60.0, **memory)

    said = json.loads(verdict(place, "--json").stdout)
    shown = verdict(place).stdout

    assert (said["verdict"], said["memory_held_on"]) == ("idle", said["idle_nodes"])
    assert len(said["idle_nodes"]) == 1
    assert said["why"].startswith("never used, memory held: ")
    assert "its GPU held 43.0 GB of 85.9 GB (50 %) of memory" in said["why"]
    assert f"holds GPU memory\t{said['idle_nodes'][0]}" in shown


def test_low_sm_activity_of_a_busy_run_is_named_in_the_verdict(
    tmp_path: Path,
) -> None:
    said = json.loads(verdict(recorded(tmp_path, 98.0, until=time.time() - 60.0, smActive=5.0), "--json").stdout)

    assert (said["verdict"], said["rules"]) == ("at_risk", ["LowGPUUtilization"])
    assert "SM activity of at most 5 % (threshold 20 %)" in said["why"]
