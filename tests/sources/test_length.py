"""How long a run will be: steps as they are named, else epochs by the steps that these take."""

from pathlib import Path
from typing import Any

import pytest

from trainguard.formats.runs.length import named_steps, total_steps
from trainguard.formats.runs.mlflow.stores import read_run_folder
from trainguard.formats.tensors.scalars.rows import Recording

FRACTIONS = [(step, step / 50.0) for step in range(1, 121, 10)]
WITHIN = [(step, float(step // 50)) for step in range(0, 121, 10)]
AT_ENDS_FROM_0 = [(epoch, float(epoch)) for epoch in range(4)]
AT_ENDS_FROM_1 = [(50 * epoch, float(epoch)) for epoch in range(1, 4)]


@pytest.mark.parametrize(
    ("given", "logged", "total"),
    [
        ({"max_steps": 400, "epochs": 3}, FRACTIONS, 400),
        ({"max_steps": -1, "num_train_epochs": 3.0}, FRACTIONS, 150),
        ({"max_epochs": 3}, WITHIN, 150),
        ({"epochs": 10}, AT_ENDS_FROM_0, 9),
        ({"epochs": 10}, AT_ENDS_FROM_1, 500),
        ({"epochs": 10}, AT_ENDS_FROM_1[:1], None),
        ({"epochs": 10}, [(5, 1.0), (5, 2.0)], None),
        ({"epochs": 2}, AT_ENDS_FROM_1, None),
        ({"epochs": 10}, [], None),
        ({"epochs": 0}, WITHIN, None),
        ({"epochs": True}, WITHIN, None),
        ({"epochs": [3]}, WITHIN, None),
        ({}, WITHIN, None),
    ],
)
def test_length_of_a_run(given: dict[str, Any], logged: list[tuple[int, float]], total: int | None) -> None:
    rows = [Recording(step, 0.0, {"train/epoch": epoch, "loss": 1.0}) for step, epoch in logged]
    assert total_steps(given, rows) == total


@pytest.mark.parametrize(
    ("name", "value", "steps"),
    [
        ("--max-train-steps", "500", 500),
        ("trainer.max_steps", ' "500" ', 500),
        ("args/total_steps", 5e2, 500),
        ("max_steps", 1.5, None),
        ("max_steps", "0", None),
        ("max_steps", "9" * 40, None),
        ("max_steps", float("nan"), None),
        ("warmup_steps", 5, None),
    ],
)
def test_steps_by_the_names_that_trainers_use(name: str, value: object, steps: int | None) -> None:
    assert named_steps({name: value}) == steps


def test_parameters_of_mlflow_say_how_long_a_run_is(tmp_path: Path) -> None:
    for name in ("metrics", "params"):
        (tmp_path / name).mkdir()
    (tmp_path / "meta.yaml").write_text("run_id: abc\nstatus: 1\n")
    (tmp_path / "metrics" / "loss").write_text("1700000000000 1.0 0\n")
    (tmp_path / "params" / "max_steps").write_text("700")
    (tmp_path / "params" / "epochs").symlink_to("/etc/passwd")
    assert read_run_folder(tmp_path).total_steps == 700
