"""What W&B and MLflow of today write, read by TrainGuard: a drift of their formats fails here first."""

import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.conftest import PYTHON
from trainguard.formats.runs.run import RunOutcome, SeriesName, SourceRun
from trainguard.local.places import recording_at
from trainguard.local.services import service_run

RECORD = Path(__file__).parent / "record.py"
GPU = SeriesName("gpu", "gpu0", "GPUUtilization")
pytestmark = [pytest.mark.tools, pytest.mark.timeout(300)]


def recorded(kind: str, folder: Path) -> Any:
    made = subprocess.run([str(PYTHON), str(RECORD), kind, str(folder)], check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return recorded("mlflow", tmp_path_factory.mktemp("tools") / "mlflow")


@pytest.fixture
def server(store: Any) -> Iterator[str]:
    """Serve the store by MLflow's own server, until the end of the test."""
    call = [str(PYTHON), str(RECORD), "server", str(Path(store["file"]).parent)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield json.loads(process.stdout.readline())["url"]
        process.stdin.close()


def check_diverged(run: SourceRun) -> None:
    assert (run.name, run.outcome, run.bad, run.interval_s) == ("diverged", RunOutcome.FAILED, {}, 10.0)
    [snapshots] = run.snapshots.values()
    assert [each.values[GPU] for each in snapshots[:4]] == [95.0, 96.0, 97.0, 95.0]
    losses = [row.values["train_loss"] for row in run.scalars]
    assert [math.isnan(each) for each in losses] == [number > 30 for number in range(40)]
    assert run.scalars[35].values["val_loss"] == math.inf


def test_a_run_of_wandb_that_is_made_now(tmp_path: Path) -> None:
    found = recording_at(recorded("wandb", tmp_path)["file"])
    assert found is not None
    run = found.read()
    assert (run.name, run.outcome, run.bad, list(run.snapshots)) == (
        "small run",
        RunOutcome.COMPLETED,
        {},
        ["trainer-1"],
    )
    assert [row.step for row in run.scalars] == [10 * number for number in range(40)]
    assert math.isnan(run.scalars[-1].values["nested.loss"])
    assert run.snapshots["trainer-1"]


def test_a_database_of_mlflow_that_is_made_now(store: Any) -> None:
    found = recording_at(f"{store['file']}#diverged")
    assert found is not None
    check_diverged(found.read())


def test_a_server_of_mlflow_that_runs_now(store: Any, server: str) -> None:
    check_diverged(service_run(f"mlflow+{server}#{store['runs']['diverged']}", {}).read())
