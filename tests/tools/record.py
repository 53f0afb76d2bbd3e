"""Makes the inputs of tests with the tools themselves: W&B offline, MLflow's SQLite store, its folders and its server.

    build/tools/bin/python tests/tools/record.py wandb FOLDER
    build/tools/bin/python tests/tools/record.py mlflow FOLDER
    build/tools/bin/python tests/tools/record.py packed tests/data

``packed`` writes the files that the tests read: ``wandb/run-recorded.wandb.xz`` and ``mlflow/{mlflow.db,replies.json,
run-folder.json}.xz``. ``make test-tools`` installs the tools, makes fresh inputs, and reads them.
"""

import json
import lzma
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

AT_MS = 1_800_000_000_000
STEPS, SAMPLES = 40, 160
ENDS_MS = AT_MS + 1_600_000
RUNS = (("starved", 2.0, "FINISHED"), ("diverged", 95.0, "FAILED"))
_AT_ONCE = 900


def record_wandb(folder: Path) -> Path:
    """Record a small run offline; return its run file."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    import wandb

    settings = wandb.Settings(x_stats_sampling_interval=1, host="trainer-1")
    run = wandb.init(project="project", entity="team", name="small run", settings=settings)
    for number in range(STEPS):
        nested = {"loss": math.nan if number == STEPS - 1 else 1.0 / (1 + number)}
        run.log(
            {
                "train/loss": 2.0 / (1 + number),
                "train/global_step": 10 * number,
                "nested": nested,
                "text": "no number",
            }
        )
        time.sleep(0.1)
    run.finish()
    (file,) = folder.rglob("run-*.wandb")
    return file


def record_mlflow(uri: str) -> dict[str, str]:
    """Record a starved and a diverged run in a store; return their identities by name."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client, found = MlflowClient(uri), {}
    experiment = client.create_experiment("recorded")
    for name, busy, status in RUNS:
        run = client.create_run(experiment, start_time=AT_MS, run_name=name, tags={"team": "vision"})
        metrics = [Metric(key, value, at, step) for key, value, at, step in _values(name, busy)]
        for begin in range(0, len(metrics), _AT_ONCE):
            client.log_batch(run.info.run_id, metrics=metrics[begin : begin + _AT_ONCE])
        client.set_terminated(run.info.run_id, status, end_time=ENDS_MS)
        found[name] = run.info.run_id
    return found


def _values(name: str, busy: float) -> Iterator[tuple[str, float, int, int]]:
    """Yield what a run logs: key, value, milliseconds, step."""
    for number in range(SAMPLES):
        at = AT_MS + 10_000 * number
        for key, value in {
            "gpu_0_utilization_percentage": busy + number % 3,
            "gpu_0_memory_usage_megabytes": 49_000.0 + number,
            "gpu_0_memory_usage_percentage": 61.5,
            "gpu_0_power_usage_watts": 95.0,
            "gpu_1_utilization_percentage": busy,
            "cpu_utilization_percentage": 11.0,
            "disk_usage_percentage": 40.0,
            "system_memory_usage_megabytes": 64_000.0,
            "system_memory_usage_percentage": 31.0,
            "network_receive_megabytes": 5.0 * (number + 1),
            "network_transmit_megabytes": 0.5 * number,
        }.items():
            yield f"system/{key}", value, at, number
    for number in range(STEPS):
        at, step = AT_MS + 40_000 * number, 10 * number
        broken = name == "diverged" and number > 30
        yield "train_loss", math.nan if broken else 2.0 / (1 + number), at, step
        if number % 5 == 0:
            yield "val_loss", math.inf if broken else 2.2 / (1 + number), at + 5, step


@contextmanager
def served(database: Path) -> Iterator[str]:
    """Run MLflow's server on this machine over a database; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment, start_new_session=True) as server:
        try:
            yield _answering(f"http://127.0.0.1:{port}", server)
        finally:
            os.killpg(server.pid, 15)


def _answering(url: str, server: subprocess.Popen[bytes]) -> str:
    for _ in range(1_200):
        try:
            with urlopen(f"{url}/health", timeout=1.0):
                return url
        except (URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise SystemExit(f"mlflow server does not answer at {url}")


def _replies(url: str, run: str) -> dict[str, Any]:
    """Return what the server answers for a run and its metrics, page by page."""
    found: dict[str, Any] = {"runs/get": _get(url, "runs/get", run_id=run)}
    for metric in found["runs/get"]["run"]["data"]["metrics"]:
        pages, token = [], ""
        while not pages or token:
            asked = {"run_id": run, "metric_key": metric["key"], "max_results": "100"}
            pages.append(_get(url, "metrics/get-history", **asked, **({"page_token": token} if token else {})))
            token = pages[-1].get("next_page_token", "")
        found[metric["key"]] = pages
    return found


def _get(url: str, path: str, **query: str) -> Any:
    with urlopen(f"{url}/api/2.0/mlflow/{path}?{urlencode(query)}", timeout=30.0) as answer:
        return json.load(answer)


def record_packed(data: Path) -> None:
    """Make the files of the tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _pack(data / "wandb" / "run-recorded.wandb.xz", record_wandb(folder / "wandb").read_bytes())
        database = folder / "mlflow.db"
        runs = record_mlflow(f"sqlite:///{database}")
        with served(database) as url:
            _pack(data / "mlflow" / "replies.json.xz", json.dumps(_replies(url, runs["diverged"])).encode())
        _pack(data / "mlflow" / "mlflow.db.xz", database.read_bytes())
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        stored = record_mlflow(str(folder / "mlruns"))
        (run,) = (folder / "mlruns").glob(f"*/{stored['diverged']}")
        files = {str(each.relative_to(run)): each.read_text() for each in run.rglob("*") if each.is_file()}
        _pack(data / "mlflow" / "run-folder.json.xz", json.dumps(files).encode())


def _pack(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


def main(kind: str, folder: Path) -> None:
    """Make inputs of one kind below a folder; print what was made as JSON."""
    if kind == "packed":
        record_packed(folder)
    elif kind == "wandb":
        sys.stdout.write(json.dumps({"file": str(record_wandb(folder))}) + "\n")
    elif kind == "mlflow":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        runs = record_mlflow(f"sqlite:///{folder / 'mlflow.db'}")
        sys.stdout.write(json.dumps({"file": str(folder / "mlflow.db"), "runs": runs}) + "\n")
    elif kind == "server":
        with served(folder / "mlflow.db") as url:
            sys.stdout.write(json.dumps({"url": url}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
