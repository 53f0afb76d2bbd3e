"""Jobs of four ranks by gloo: DDP, FSDP 1 and 2, hybrid shards and DTensors, some with one flipped bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.run_folder import steps_of
from tests.support.steps import RULES, judgement
from tests.torch.copies import FLIPPED_AT, JOBS
from tests.torch.launch import run_ranks

pytestmark = pytest.mark.torch


class Seen(NamedTuple):
    """The first finding of a job, or where there is none the newest check; ``ranks`` and ``tensors`` are named."""

    kind: str | None
    step: int
    ranks: list[Any]
    tensors: list[Any]


def seen(job: Path) -> Seen:
    rule = RULES["RanksOutOfSync"]
    state, given = rule.state_type(), rule.parameters_type()
    steps = steps_of(job / "debug-output")
    for step in steps:
        rule.observe(state, step, given)
    assert state.unusable == 0, judgement(rule, state, len(steps), given).reason
    check = state.first or state.latest
    assert check is not None
    ranks, tensors = ([fact.value for fact in check.facts if fact.name == name] for name in ("rank", "tensor"))
    return Seen(check.kind, check.step, ranks, tensors)


def flipped(kind: str, ranks: list[int], tensor: str) -> Seen:
    return Seen(kind, FLIPPED_AT, ranks, [tensor])


EXPECTED = {
    "ddp": flipped("bits differ", [2], "Sequential_0.weight"),
    "optimizer": flipped("bits differ", [3], "Sequential_0.weight/exp_avg"),
    "pair": flipped("no majority", [0, 1], "Sequential_0.weight"),
    "hybrid": flipped("no majority", [1, 3], "Sequential_0.weight"),
    "hybrid-1": flipped("no majority", [1, 3], "Sequential_1.bias"),
    "tensors": flipped("bits differ", [1], "Linear_bias"),
    "unkept": Seen(
        "not kept equal", 0, [0, 1, 2, 3], ["Sequential_0.weight", "Sequential_1.weight", "Sequential_1.bias"]
    ),
    "clean": Seen("copies equal", 10, [], []),
    "uneven": Seen("copies equal", 11, [], []),
    "leaves": Seen("copies equal", 6, [], []),
    "sharded": Seen("not compared", 6, [], []),
    "bare": Seen("not compared", 6, [], []),
}


def test_flips_are_named_and_clean_jobs_are_silent(tmp_path: Path, send: Callable[[str], Path]) -> None:
    run_ranks("tests.torch.copies", list(JOBS), tmp_path, world=4)
    assert {name: seen(send(name)) for name in EXPECTED} == EXPECTED
    collections = send("shards") / "debug-output/collections/000000000/worker_0_collections.json"
    assert json.loads(collections.read_bytes())["_meta"] == {"num_workers": 1}  # no rank waits for copies of none
