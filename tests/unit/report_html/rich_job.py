"""A job of two nodes that gives every rule something to show, judged from files by the engine itself."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from typer.testing import CliRunner

from tests.support.profile_folder import EVAL, TRAIN, ProfileFolder, event, step, ticks
from trainguard.cli.main import app
from trainguard.report.document import Report

MINUTES = 26
PARAMETERS = {
    "LowGPUUtilization": {"window": 20, "patience": 20},
    "BatchSize": {"window": 20, "patience": 20},
    "GPUMemoryIncrease": {"window": 60, "patience": 20},
    "CPUBottleneck": {"patience": 20},
    "StepOutlier": {"n_outliers": 3},
}


def write(folder: Path) -> Path:
    """Write the profile below ``folder``, and return where it is."""
    profile = ProfileFolder(folder)
    times = ticks(MINUTES, every_s=2.0)
    for node in ("algo-1", "algo-2"):
        random = np.random.default_rng(int(node[-1]))
        profile.system(times, _columns(times, random, low=node == "algo-1"), node=node)
        profile.timeline(_events(random), node=node)
    profile.end()
    return profile.path


def judge(folder: Path) -> Report:
    """Write the profile below ``folder``, judge it, and return its report."""
    place = write(folder)
    parameters, out = folder / "params.json", folder / "out"
    parameters.write_text(json.dumps(PARAMETERS), encoding="utf-8")
    words = [str(place), "--out", str(out), "--params", str(parameters), "--instance-type", "ml.p3.8xlarge"]
    done = CliRunner().invoke(app, ["analyze", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return msgspec.json.decode((out / "report.json").read_bytes(), type=Report)


def _columns(times: np.ndarray[Any, Any], random: np.random.Generator, *, low: bool) -> dict[str, Any]:
    def around(level: float, width: float = 5.0) -> np.ndarray[Any, Any]:
        return np.clip(np.rint(random.normal(level, width, times.size)), 0.0, 100.0)

    waiting = random.random(times.size) < (0.8 if low else 0.1)
    return {
        "gpu0": around(85.0) if low else np.where(waiting, 3.0, around(90.0)),
        **{f"gpu{index}": np.where(waiting, around(4.0, 1.0), around(30.0)) for index in (1, 2)},
        **{f"gpu{index}_memory": np.linspace(20.0, 90.0, times.size) + index for index in range(3)},
        "cpu0": np.where(waiting, 97.0, around(30.0)),
        "cpu1": around(30.0),
        "cpu0_io": around(4.0, 1.0),
        "cpu1_io": around(2.0, 1.0),
        "memory": around(23.0, 1.0),
        "network": around(60.0) * 1e5,
    }


def _events(random: np.random.Generator) -> list[dict[str, Any]]:
    """Return steps of two modes, one in 40 of which is slow, and what runs in them."""
    events = [event("DataLoaderIterInitialize", "init", 20.0, 0.2, pid=100, num_workers=4, pin_memory=False)]
    at, number = 30.0, 0
    while at < 60.0 * MINUTES - 20.0:
        mode = EVAL if number % 4 == 3 else TRAIN
        length = float(random.normal(1.0, 0.02)) * (4.0 if number % 40 == 39 else 1.0)
        events.append(step(number, at, length, mode=mode))
        events.append(event("Forward-SubModuleInternal", "layer1", at + 0.1, 0.3))
        events.append(event("Backward-SubModuleInternal", "layer1", at + 0.4, 0.3))
        events.append(event("cpu_functions", "aten::conv2d", at + 0.1, 0.2))
        events.append(event("gpu_functions-dev:0", "aten::addmm", at + 0.2, 0.4))
        events.append(event("DataLoaderIter", "DataLoaderIter::GetNext", at, 0.01, pid=100, worker_id=0))
        events.append(event("DataLoaderWorker", "worker", at, 0.5, pid=200 + number % 3, worker_id=number % 3))
        at, number = at + length + 0.1, number + 1
    return events
