"""A recorded run whose steps are far apart: a stall where the GPUs do nothing, and none where they work on."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainguard.local.api import analyze

START = 1_767_225_600
EPOCH_ENDS = {600: 1, 1_200: 2, 1_800: 3, 5_700: 4, 6_300: 5, 6_900: 6}
MAPPING = {
    "name": "run",
    "time": {"column": "ts", "unit": "s"},
    "series": {"u": "gpu0/GPUUtilization"},
    "step": "epoch",
    "scalars": {"train_loss": "train_loss"},
}


def judged(place: Path, use: float) -> Any:
    """Return the document of a run whose fourth epoch takes 65 min, with the GPU at ``use`` per cent in it."""
    rows = ["ts,u,epoch,train_loss"]
    for second in range(0, 7_200, 15):
        epoch = EPOCH_ENDS.get(second)
        busy = use if 1_860 < second < 5_640 else 94
        rows.append(f"{START + second},{busy},{epoch or ''},{2.0 / epoch if epoch else ''}")
    (place / "samples.csv").write_text("\n".join(rows))
    (place / "samples.mapping.json").write_text(json.dumps(MAPPING))
    return analyze(str(place)).document


@pytest.mark.parametrize(("use", "episodes"), [(94.0, 0), (0.0, 1)])
def test_steps_far_apart_are_a_stall_if_the_gpus_are_idle(tmp_path: Path, use: float, episodes: int) -> None:
    document = judged(tmp_path, use)
    rule = next(each for each in document.rules if each.rule == "training/StalledTrainingRule")
    assert rule.times_fired == episodes
    assert document.healthy is not bool(episodes)
    assert ("worked on" in rule.reason) is not bool(episodes)
