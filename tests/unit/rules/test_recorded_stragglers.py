"""Timelines that ranks of gloo recorded: with a planted sleep of 150 ms a step of one rank, or of each in turn.

Made by `tests.torch.stragglers.ranks` on a busy machine: 4 ranks, 30 steps with 100 ms of work each.
"""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.repeated_steps import straggler_of
from trainguard.core.records import Status
from trainguard.rules.rule_result import RuleResult

FOLDER = Path(__file__).parents[2] / "data" / "stragglers"


def said_of(name: str) -> RuleResult:
    files = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return straggler_of({(key.split("/")[0], key.split("/")[1]): text.encode() for key, text in files.items()})


def test_rank_late_in_backward_of_ddp_is_named_with_its_cost() -> None:
    said = said_of("backward-ddp-rank2")
    facts = {each.name: each.value for each in said.facts}
    assert (said.status, facts["rank"], facts["late_in"]) == (Status.FIRED, "node-0-rank2", "backward")
    assert facts["own_work"] - facts["own_work_of_peers"] == pytest.approx(0.15, rel=0.1)  # type: ignore[operator]


def test_ranks_of_which_each_is_late_in_turn_are_uneven() -> None:
    assert said_of("turns-by_hand-rank0").kind == "uneven"
