"""Runs of MLflow from its three stores; the inputs were made by MLflow 3.17 itself."""

import json
import lzma
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.json_service import json_service
from trainguard.cli.main import app
from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.mlflow.logged import NO_VALUE, Logged, RunInfo, logged, run_of
from trainguard.formats.runs.mlflow.stores import (
    database_runs,
    is_database,
    is_run_folder,
    read_database_run,
    read_run_folder,
)
from trainguard.formats.runs.run import RunOutcome, SeriesName, SourceRun
from trainguard.local.places import recording_at
from trainguard.local.runs import find_runs
from trainguard.local.services import service_run, service_runs

DATA = Path(__file__).parents[1] / "data" / "mlflow"
AT = 1_800_000_000.0
GPU = SeriesName("gpu", "gpu0", "GPUUtilization")
RECEIVED = SeriesName("network", "ReceiveBytesPerSecond", "Algorithm")
INFO = RunInfo("a1", "a run", "FINISHED", 1_800_000_000_000, None)


def unpacked(name: str) -> bytes:
    return lzma.decompress((DATA / name).read_bytes())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "mlflow.db"
    file.write_bytes(unpacked("mlflow.db.xz"))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "mlruns" / "1" / "diverged"
    for name, text in json.loads(unpacked("run-folder.json.xz")).items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    return run


def of_server(path: str, query: Mapping[str, str]) -> tuple[int, Any]:
    """Answer as MLflow's server has answered."""
    replies = json.loads(unpacked("replies.json.xz"))
    if path == "/api/2.0/mlflow/runs/get":
        known = query["run_id"] == replies["runs/get"]["run"]["info"]["run_id"]
        return (200, replies["runs/get"]) if known else (404, {"message": f"Run with id={query['run_id']} not found"})
    pages = replies[query["metric_key"]]
    tokens = ["", *(page.get("next_page_token", "") for page in pages)]
    return 200, pages[tokens.index(query.get("page_token", ""))]


def by_title(database: Path, title: str) -> SourceRun:
    (info,) = (each for each in database_runs(database) if each.name == title)
    return read_database_run(database, info.identity)


@pytest.fixture(params=["database", "folder", "server"])
def diverged(request: pytest.FixtureRequest) -> Iterator[SourceRun]:
    """The same run as each store has it."""
    if request.param == "database":
        yield by_title(request.getfixturevalue("database"), "diverged")
    elif request.param == "folder":
        yield read_run_folder(request.getfixturevalue("folder"))
    else:
        identity = json.loads(unpacked("replies.json.xz"))["runs/get"]["run"]["info"]["run_id"]
        with json_service(of_server) as (url, _):
            yield service_run(f"mlflow+{url}#{identity}", {}).read()


def test_run_is_the_same_from_any_store(diverged: SourceRun) -> None:
    assert (diverged.name, diverged.outcome, diverged.bad) == ("diverged", RunOutcome.FAILED, {})
    assert (diverged.started_at, diverged.ended_at, diverged.interval_s) == (AT, AT + 1_600.0, 10.0)
    assert diverged.owners == {}
    [snapshots] = diverged.snapshots.values()
    assert [each.values[GPU] for each in snapshots[:4]] == [95.0, 96.0, 97.0, 95.0]
    assert RECEIVED not in snapshots[0].values
    assert [each.values[RECEIVED] for each in snapshots[1:]] == pytest.approx([500_000.0] * (len(snapshots) - 1))
    assert [row.step for row in diverged.scalars] == [10 * number for number in range(40)]
    losses = [row.values["train_loss"] for row in diverged.scalars]
    assert losses[:2] == [2.0, 1.0]
    assert [math.isnan(each) for each in losses] == [number > 30 for number in range(40)]
    assert diverged.scalars[35].values["val_loss"] == math.inf


@pytest.mark.parametrize(
    ("tags", "user"),
    [
        ([{"key": "mlflow.user", "value": "ann"}], "ann"),
        ([{"key": "other", "value": "x"}], "bob"),
        ([7, {"key": "mlflow.user", "value": 7}], ""),
        ("x", "bob"),
    ],
)
def test_given_a_server_when_read_then_the_run_is_its_users(tags: object, user: str) -> None:
    info = {"run_id": "a1", "experiment_id": "1", "status": "RUNNING", "user_id": "bob"}
    with json_service(lambda *_: (200, {"run": {"info": info, "data": {"tags": tags}}})) as (url, _):
        run = service_run(f"mlflow+{url}#a1", {}).read()
    assert run.owners == ({"user": user} if user else {})


def test_node_in_a_metric_name_is_a_separate_node() -> None:
    values = [
        Logged(f"system/{node}gpu_3_{what}", number, 1_800_000_000_000, 0)
        for node in ("worker-1/", "")
        for what, number in (("utilization_percentage", 40.0), ("memory_usage_megabytes", 2.0), ("new_metric", 1.0))
    ]
    run = run_of(INFO, values)
    expected = {SeriesName("gpu", "gpu3", "GPUUtilization"): 40.0, SeriesName("gpu", "gpu3.MemoryUsedBytes"): 2e6}
    assert {node: each[0].values for node, each in run.snapshots.items()} == {"worker-1": expected, "node-1": expected}


@pytest.mark.parametrize(("share", "total"), [(25.0, 80 * 2.0**30), (4.9, None), (0.0, None), (101.0, None)])
def test_memory_size_follows_from_megabytes_and_percent(share: float, total: float | None) -> None:
    used = SeriesName("gpu", "gpu0.MemoryUsedBytes")
    values = {"memory_usage_percentage": share, "memory_usage_megabytes": 20 * 2.0**30 / 1e6}
    rows = [Logged(f"system/gpu_0_{what}", value, 1_800_000_000_000, 0) for what, value in values.items()]
    [[snapshot]] = run_of(INFO, rows).snapshots.values()
    expected = {used: 20 * 2.0**30} | ({} if total is None else {SeriesName("gpu", "gpu0.MemoryTotalBytes"): total})
    assert snapshot.values == expected
    assert run_of(INFO, rows[:1]).snapshots == {}


def test_values_without_steps_are_numbered_by_time() -> None:
    run = run_of(INFO, [Logged("loss", 3.0 - number, 1_000 * number, 0) for number in (2, 0, 1)])
    assert [(row.step, row.values["loss"]) for row in run.scalars] == [(0, 3.0), (1, 2.0), (2, 1.0)]


def test_restart_of_a_run_keeps_the_order_of_time() -> None:
    steps = [0, 1, 2, 3, 1, 2]
    logged_in_time = [
        Logged(key, float(at), 1_000 * at, step) for at, step in enumerate(steps) for key in ("loss", "lr")
    ]
    run = run_of(INFO, logged_in_time[::-1])
    assert [(row.step, row.values) for row in run.scalars] == [
        (step, {"lr": float(at), "loss": float(at)}) for at, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("part", "value"), [(0, 7), (1, "many"), (1, True), (1, None), (2, 1.5), (3, -1), (3, "1"), (3, 2**60)]
)
def test_invalid_value_is_counted_and_others_are_kept(part: int, value: object) -> None:
    whole: list[object] = ["loss", 1.0, 1_000, 4]
    broken = [*whole[:part], value, *whole[part + 1 :]]
    run = run_of(INFO, [logged(*broken), logged(*whole)])
    assert (len(run.scalars), run.bad) == (1, {NO_VALUE: 1})


def test_run_in_a_database_is_found_by_id_or_name(database: Path) -> None:
    identity = next(each.identity for each in database_runs(database) if each.name == "starved")
    found = [recording_at(f"{database}#{name}") for name in ("starved", identity)]
    assert [each is not None and each.run for each in found] == [identity, identity]
    with pytest.raises(ProfileSourceError, match=r"holds 2 runs .*, expected one: for example .*mlflow\.db#"):
        recording_at(str(database))
    with pytest.raises(ProfileSourceError, match=r"has no run 'other'; it has .* starved"):
        recording_at(f"{database}#other")


def _foreign(file: Path) -> None:
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE runs (a)")


def _views(file: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS key FROM n"
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE runs (a)")
        made.execute(f"CREATE VIEW metrics AS {endless}")


@pytest.mark.parametrize(
    "write", [_foreign, _views, lambda file: file.write_bytes(b"SQLite format 3\0" + b"\xff" * 900)]
)
def test_foreign_or_hostile_database_is_no_store(write: Callable[[Path], None], tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    write(file)
    assert not is_database(file)
    with pytest.raises(ProfileSourceError):
        read_database_run(file, "a")


def test_damaged_database_is_named(database: Path) -> None:
    body = bytearray(database.read_bytes())
    body[20_000:] = b"\xa5" * (len(body) - 20_000)
    database.write_bytes(body)
    with pytest.raises(ProfileSourceError, match=r"mlflow\.db"):
        by_title(database, "diverged")


def test_damaged_line_in_a_folder_is_counted(folder: Path) -> None:
    assert is_run_folder(folder)
    with (folder / "metrics" / "train_loss").open("a") as file:
        file.write("1800000000000 nothing 4\n1800000\n")
    assert read_run_folder(folder).bad == {NO_VALUE: 2}


def test_commands_judge_mlflow_runs(database: Path, folder: Path, tmp_path: Path) -> None:
    page = CliRunner().invoke(app, ["report", str(tmp_path), "--json", "--out", str(tmp_path / "page")])
    jobs = {each["place"]: each["fired"] for each in json.loads(page.stdout)["jobs"]}
    assert len(jobs) == 3
    assert jobs["mlruns/1/diverged"] == ["training/TrainingDiverged", "training/ExplodingTensor"]
    one = CliRunner().invoke(app, ["report", f"{database}#starved", "--json", "--out", str(tmp_path / "one")])
    assert json.loads(one.stdout)["fired"] == ["LowGPUUtilization"]
    assert "MLflow recorded the system metrics, a sample each 10.0 s." in json.loads(one.stdout)["notes"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "t0k"}, "Bearer t0k"),
        ({"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "pw"}, "Basic bWU6cHc="),
        ({}, None),
    ],
)
def test_credentials_are_sent_to_the_server(environment: dict[str, str], expected: str | None) -> None:
    with json_service(of_server) as (url, requests), pytest.raises(ProfileSourceError, match=r"id=nope not found"):
        service_run(f"mlflow+{url}/#/experiments/1/runs/nope", environment).read()
    assert [each.headers.get("Authorization") for each in requests] == [expected]


def test_page_that_links_to_itself_ends() -> None:
    value = {"key": "loss", "value": 1.0, "timestamp": 1_000, "step": 0}
    run = {"run": {"info": {"status": "RUNNING"}, "data": {"metrics": [{"key": "loss"}]}}}

    def answer(path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        del query
        return 200, run if path.endswith("runs/get") else {"metrics": [value], "next_page_token": "again"}

    with json_service(answer) as (url, requests):
        assert service_run(f"mlflow+{url}#a", {}).read().outcome is None
    assert len(requests) == 3


@pytest.mark.parametrize("answer", [[], {"run": 3}, {"run": {"info": None}}, b"<html>", {"error": "x"}])
def test_foreign_response_error_names_the_server(answer: Any) -> None:
    with json_service(lambda _path, _query: (200, answer)) as (url, _), pytest.raises(ProfileSourceError, match=url):
        service_run(f"mlflow+{url}#a", {}).read()


def searched(path: str, _: Mapping[str, str]) -> tuple[int, Any]:
    if path.endswith("experiments/search"):
        return 200, {"experiments": [{"experiment_id": "0"}, {"experiment_id": "7"}, 5]}
    infos = [{"run_id": f"r{number}", "run_name": f"run {number}", "start_time": number} for number in range(3)]
    return 200, {"runs": [{"info": info} for info in infos] + ["none", {}]}


@pytest.mark.parametrize(("named", "experiments"), [("", ["0", "7"]), ("#/experiments/7", ["7"])])
def test_server_without_a_run_is_its_newest_runs(named: str, experiments: list[str]) -> None:
    with json_service(searched) as (url, asked):
        found = find_runs(f"mlflow+{url}{named}").runs
        assert [each.place for each in found] == [f"mlflow+{url}#r{number}" for number in range(3)]
    assert json.loads(asked[-1].body)["experiment_ids"] == experiments
    assert [each.method for each in asked] == ["POST"] * len(asked)


@pytest.mark.parametrize("answer", [{}, {"runs": []}])
def test_server_without_runs_says_where_it_looked(answer: Mapping[str, Any]) -> None:
    with (
        json_service(lambda *_: (200, answer)) as (url, _),
        pytest.raises(ProfileSourceError, match="has no run in 0 experiments"),
    ):
        service_runs(f"mlflow+{url}", {})


def test_answer_of_another_service_is_named() -> None:
    with json_service(lambda *_: (200, [])) as (url, _), pytest.raises(ProfileSourceError, match="no list of"):
        service_runs(f"mlflow+{url}", {})


def test_one_run_of_several_has_to_be_named() -> None:
    with json_service(searched) as (url, _), pytest.raises(ProfileSourceError, match=r"holds 3 runs .*#r2"):
        recording_at(f"mlflow+{url}")
