"""Ranks of gloo that stand still are named by the dumps that torch itself writes."""

from pathlib import Path

import pytest

from tests.torch.hangs.ranks import Hang, run
from trainguard.local.hangs import judge_hang

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("kind", ["killed", "stopped", "slow_loader", "left_early", "other_operation", "other_group"])
def test_the_rank_that_holds_up_gloo_is_named(kind: str, tmp_path: Path) -> None:
    hang = Hang(kind, 4, (3,), step=2, layers=2, as_json=kind < "m", with_stacks=kind == "slow_loader")
    run(hang, tmp_path)
    verdict = judge_hang(str(tmp_path))
    assert verdict.culprits == [3]
    assert verdict.line.endswith("_slow_loader") == (kind == "slow_loader")
