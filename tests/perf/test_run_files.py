"""What judging a folder of run files takes: `make bench`. Each holds an hour of eight GPUs, every 15 seconds."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support import wandb_files
from trainguard.cli.main import app

pytestmark = pytest.mark.perf

RUNS = 300
HOURS = 1
EVERY_S = 15.0
GPUS = 8
LIMIT_S = 120.0
START = 1_800_000_000.0


def run_file(number: int) -> bytes:
    """Return a run whose GPUs are idle in every third run, with a loss once a minute."""
    records = [wandb_files.run(f"run {number}", at=START, host=f"host-{number}")]
    busy = 0.0 if number % 3 == 0 else 92.0
    for sample in range(int(HOURS * 3_600 / EVERY_S)):
        at = START + sample * EVERY_S
        values = {f"gpu.{gpu}.gpu": busy + (sample + gpu) % 5 for gpu in range(GPUS)}
        values |= {f"gpu.{gpu}.memoryAllocatedBytes": 3.0e10 for gpu in range(GPUS)}
        records.append(wandb_files.stats(at, {**values, "cpu": 40.0, "memory_percent": 30.0}))
        if sample % 4 == 0:
            records.append(wandb_files.history(sample // 4, at, {"loss": 2.0 / (1 + sample / 100)}))
    return wandb_files.run_file([*records, wandb_files.ended(0)])


def test_fleet_of_300_run_files_takes_under_two_minutes(
    tmp_path: Path,
) -> None:
    for number in range(RUNS):
        folder = tmp_path / "wandb" / f"run-20270115_{number:06}-{number:08x}"
        folder.mkdir(parents=True)
        (folder / f"run-{number:08x}.wandb").write_bytes(run_file(number))
    begin = time.perf_counter()
    result = CliRunner().invoke(app, ["report", str(tmp_path / "wandb"), "--out", str(tmp_path / "fleet.html")])
    took = time.perf_counter() - begin
    assert result.exit_code == 0, result.output
    assert (tmp_path / "fleet.html").exists()
    os.write(1, f"\n{RUNS} run files of {HOURS} h and {GPUS} GPUs: {took:.0f} s\n".encode())
    assert took <= LIMIT_S
