"""Several ranks of one job: replicas are compared by their checksums, shards are recorded each for itself."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.run_folder import steps_of
from trainguard.local.api import analyze
from trainguard_collector.objects import objects_folder

pytestmark = pytest.mark.torch
Send = Callable[[], Path]


def run(kind: str, folder: Path) -> None:
    ranks = []
    for rank in range(2):
        variables = {
            "TRAINGUARD_OUTPUT": str(folder / "output"),
            "TRAINGUARD_SPOOL": str(folder / "spool"),
            "TRAINGUARD_JOB": "run-1",
            "TRAINGUARD_NODE": "node-1",
            "TRAINGUARD_AUTOSTART": "0",
            "RENDEZVOUS": (folder / "rendezvous").as_uri(),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "tests.torch.ranks", kind]
        root = Path(__file__).parents[2]
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}, cwd=root, stderr=subprocess.PIPE))
    for each in ranks:
        error = each.communicate()[1].decode()
        assert each.returncode == 0, error


def verdict(job: Path) -> str:
    found = analyze(job, time_lines=False).rules
    return dict(zip(found["rule"], found["status"], strict=True))["training/RanksOutOfSync"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "status"), [("ddp", "OK"), ("broken", "FIRED")])
def test_replicas_out_of_sync_are_found(kind: str, status: str, tmp_path: Path, send: Send) -> None:
    run(kind, tmp_path)
    assert objects_folder(str(tmp_path / "spool"), "run-1", "node-1").is_dir()
    job = send()
    steps = steps_of(job / "debug-output")
    assert [step.step for step in steps] == [0, 2, 4, 6]
    assert [name for name in steps[0].names if "checksum" in name] == ["trainguard/checksum/0", "trainguard/checksum/1"]
    assert steps[0].workers == ("worker_0", "worker_1")
    assert "gradient/Sequential_0.weight" in steps[0].names
    assert verdict(job) == status
    names = sorted(path.name.split("_")[1] for path in (job / "profiler-output").rglob("*_pythontimeline.json"))
    assert names == ["rank0-node-1", "rank1-node-1"]


def test_shards_are_recorded_per_rank_and_not_compared(tmp_path: Path, send: Send) -> None:
    run("fsdp", tmp_path)
    job = send()
    (first, *_) = steps_of(job / "debug-output")
    weights = {"Sequential_0.weight", "Sequential_2.weight"}
    assert set(first.members("weights")) == {f"{name}/shard_{rank}" for name in weights for rank in range(2)}
    assert {f"gradient/{name}/shard_1" for name in weights} <= set(first.members("gradients"))
    assert not [name for name in first.names if "checksum" in name or name.startswith("gradient_norm")]
    (file,) = (job / "debug-output/collections/000000000").glob("worker_1_*")
    assert json.loads(file.read_bytes())["_meta"] == {"num_workers": 2}
