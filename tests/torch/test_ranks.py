"""Several ranks of one job: replicas are compared by hashes of their bits, shards are recorded each for itself."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.run_folder import steps_of
from tests.torch.launch import run_ranks
from trainguard.formats.tensors.replicas import ranks_of
from trainguard.local.api import analyze
from trainguard_collector.objects import objects_folder

pytestmark = pytest.mark.torch
Send = Callable[[], Path]


def verdict(job: Path) -> str:
    found = analyze(job, time_lines=False).rules
    return dict(zip(found["rule"], found["status"], strict=True))["training/RanksOutOfSync"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "status"), [("ddp", "OK"), ("broken", "FIRED")])
def test_replicas_out_of_sync_are_found(kind: str, status: str, tmp_path: Path, send: Send) -> None:
    run_ranks("tests.torch.ranks", [kind], tmp_path, world=2)
    assert objects_folder(str(tmp_path / "spool"), "run-1", "node-1").is_dir()
    job = send()
    steps = steps_of(job / "debug-output")
    assert [step.step for step in steps] == [0, 2, 4, 6]
    assert ranks_of(steps[0]) == [0, 1]
    assert steps[0].workers == ("worker_0", "worker_1")
    assert "gradient/Sequential_0.weight" in steps[0].names
    assert verdict(job) == status
    names = sorted(path.name.split("_")[1] for path in (job / "profiler-output").rglob("*_pythontimeline.json"))
    assert names == ["rank0-node-1", "rank1-node-1"]


def test_shards_are_recorded_per_rank_and_not_compared(tmp_path: Path, send: Send) -> None:
    run_ranks("tests.torch.ranks", ["fsdp"], tmp_path, world=2)
    job = send()
    (first, *_) = steps_of(job / "debug-output")
    weights = {"Sequential_0.weight", "Sequential_2.weight"}
    assert set(first.members("weights")) == {f"{name}/shard_{rank}" for name in weights for rank in range(2)}
    assert {f"gradient/{name}/shard_1" for name in weights} <= set(first.members("gradients"))
    assert not [name for name in first.names if "replicas" in name or name.startswith("gradient_norm")]
    (file,) = (job / "debug-output/collections/000000000").glob("worker_1_*")
    assert json.loads(file.read_bytes())["_meta"] == {"num_workers": 2}
