"""A rank of gloo that is late in a part of its steps is named with what that costs, though all end together."""

from pathlib import Path

import pytest

from tests.support.repeated_steps import straggler_of
from tests.torch.stragglers.__main__ import is_right
from tests.torch.stragglers.ranks import Training, run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("place", "way"),
    [("backward", "ddp"), ("forward", "fsdp"), ("optimizer", "by_hand"), ("data_wait", "ddp"), ("turns", "ddp")],
)
def test_the_late_rank_is_named_with_its_part_and_cost(place: str, way: str, tmp_path: Path) -> None:
    training = Training(place, way, world=3, rank=1, late_ms=150, work_ms=100, seed=5, steps=30)
    ((files, late_ms),) = run([training], tmp_path)
    said = straggler_of(files)
    # Few steps beside other tests; the trial holds the cost within 10 %.
    assert is_right(training, said, late_ms, within=0.25), said.reason
