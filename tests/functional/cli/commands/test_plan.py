"""`trainguard plan` on a folder: rows, what is missing, and the end of a run with known length."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.families.training.test_scalars import events
from tests.support.profile_folder import ProfileFolder, ticks
from trainguard.cli.main import app

STATE = {"max_steps": 400, "train_batch_size": 8, "global_step": 200, "log_history": [{"step": 200, "loss": 1.0}]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = ProfileFolder(tmp_path)
    times = ticks(30)
    busy = [0.0 if at < 120.0 else 90.0 for at in times]
    folder.system(times, {**{f"gpu{each}": busy for each in range(4)}, "cpu0": 30.0})
    folder.end()
    job = tmp_path / "job"
    (job / "trainer-output").mkdir()
    (job / "trainer-output" / "trainer_state.json").write_text(json.dumps(STATE))
    return job


def plan(*words: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["plan", *map(str, words), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code != 2 else result.output


def test_plan_of_a_profile_has_the_job_and_each_size(run: Path) -> None:
    found = plan(run, "--ran-on", "ml.g5.12xlarge", "--nodes", "2,4")
    assert [row["nodes"] for row in found["rows"]] == [1, 2, 4]
    ran, twice, _ = found["rows"]
    assert ran["seconds"]["value"] == pytest.approx(1_800.0, rel=0.03)
    assert ran["parts"]["start_up"] == pytest.approx(120.0, rel=0.1)
    assert twice["parts"]["start_up"] == ran["parts"]["start_up"]
    assert 1.7 < twice["faster"]["value"] < 2.0 < twice["faster"]["high"] * 1.2
    assert ran["cost"]["value"] == pytest.approx(7.09 / 2.0, rel=0.03)
    assert {"trace", "timed_steps"} == {each["kind"] for each in found["missing"]}


def test_batch_that_the_trainer_has_saved_need_not_be_given(run: Path) -> None:
    found = plan(run, "--ran-on", "ml.g5.12xlarge", "--batch-per-gpu", 16)
    assert found["rows"][1]["batch_factor"] == 2.0
    (run / "trainer-output" / "trainer_state.json").unlink()
    found = plan(run, "--ran-on", "ml.g5.12xlarge", "--batch-per-gpu", 16)
    assert "batch" in {each["kind"] for each in found["missing"]}
    assert plan(run, "--batch-per-gpu", "8:16")["rows"][1]["batch_factor"] == 2.0


def test_what_is_unknown_is_said_and_not_invented(run: Path) -> None:
    found = plan(run, "--nodes", 2, "--instance-type", "ml.p9.48xlarge")
    assert len(found["rows"]) == 1
    assert {(each["kind"], each["name"]) for each in found["missing"]} >= {
        ("gpus_of_type", "ml.p9.48xlarge"),
        ("instance_type", ""),
    }
    assert found["rows"][0]["cost"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "0"],
        ["--nodes", "2;4"],
        ["--batch-per-gpu", "8:"],
        ["--time-limit", "x"],
        ["--time-limit", "0s"],
        ["--batch-per-gpu", "16", "--keep-global-batch"],
    ],
)
def test_wishes_that_cannot_be_read_are_refused(run: Path, words: list[str]) -> None:
    plan(run, *words, code=2)


def test_end_is_forecast_from_the_times_of_steps(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.out.tfevents.1.h").write_bytes(
        events({step: 2.0 - step / 400 for step in range(0, 201, 2)}, "loss")
    )
    found = plan(folder, "--total-steps", 400, "--time-limit", "10s")["finish"]
    assert (found["done"], found["total"]) == (200, 400)
    assert found["end"]["low"] < found["end"]["value"] < found["end"]["high"]
    assert found["end"]["low"] > found["limit_at"]
    assert plan(folder)["finish"] is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--nodes", 99_999], "too_unlike"),
        (["--batch-per-gpu", 999_999_999], "too_unlike"),
        (["--nodes", 32, "--keep-global-batch"], "no_sample"),
    ],
)
def test_what_no_published_result_covers_is_left_out(run: Path, words: list[object], kind: str) -> None:
    found = plan(run, "--ran-on", "ml.g5.12xlarge", *words)
    assert len(found["rows"]) == 1
    assert kind in {each["kind"] for each in found["missing"]}


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    times = {step: 2.0 - step / 400 for step in range(0, 201, 2)}
    (folder / "events.out.tfevents.1.h").write_bytes(events(times, "loss"))
    return folder


def test_the_time_that_is_left_has_an_interval(half_done: Path) -> None:
    ran, twice = plan(half_done, "--total-steps", 400)["rows"]
    assert ran["seconds"]["low"] < ran["seconds"]["value"] < ran["seconds"]["high"]
    assert not ran["measured"]
    assert ran["faster"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert twice["faster"] == pytest.approx(plan(half_done)["rows"][1]["faster"])


def test_too_few_steps_are_not_carried_over_to_all(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(events({0: 2.0, 2: 1.9}, "loss"))
    ran = plan(tmp_path, "--total-steps", 400)["rows"][0]
    assert ran["seconds"]["value"] == pytest.approx(2.0)


def test_a_job_whose_steps_are_done_has_no_end_to_forecast(half_done: Path) -> None:
    found = plan(half_done, "--total-steps", 200, "--time-limit", "10h")
    assert found["finish"] is None
    assert "steps_left" in {each["kind"] for each in found["missing"]}


def test_a_limit_that_has_passed_did_not_end_the_job(half_done: Path) -> None:
    (said,) = [
        each for each in plan(half_done, "--total-steps", 400, "--time-limit", "10s")["sentences"] if "limit" in each
    ]
    assert "ran on" in said
    assert "ends it" not in said
