"""Losses and metrics of a loop without torch: a run of debug-output that the rules of training health read."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_folder import steps_of
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder

Record = Callable[..., Recorder]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    named = {"OUTPUT": tmp_path / "output", "SPOOL": tmp_path / "spool", "JOB": "run-1", "NODE": "node-1"}
    for name, value in named.items():
        monkeypatch.setenv(f"TRAINGUARD_{name}", str(value))
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    started: list[Recorder] = []

    def make(**options: Any) -> Recorder:
        started.append(Recorder(with_sampler=False, **options))
        return started[-1]

    yield make
    for each in started:
        each.close()


def saved(tmp_path: Path) -> dict[int, dict[str, float]]:
    """Send what was handed over; return the numbers of each step by name."""
    outgoing = Outgoing(objects_folder(str(tmp_path / "spool"), "run-1", "node-1"), "run-1", "node-1")
    outgoing.prepare(final=True)
    assert (outgoing.faults, outgoing.streams - {"framework"}) == ({}, {"training"})
    for key, path in outgoing.ready():
        target = tmp_path / "output" / key
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    folder = tmp_path / "output/run-1/debug-output"
    (folder / "training_job_end.ts").touch()
    return {
        step.step: {name: step.value(name).item() for group in ("losses", "metrics") for name in step.members(group)}
        for step in steps_of(folder)
    }


class Later:
    """A number that a device computes: it is asked for only when it is there, as an array of JAX."""

    def __init__(self, value: float) -> None:
        self.value, self.ready, self.read = value, False, 0

    def is_ready(self) -> bool:
        return self.ready

    def __float__(self) -> float:
        assert self.ready
        self.read += 1
        return self.value


def test_losses_are_saved_every_few_steps_without_torch(record: Record, tmp_path: Path) -> None:
    recorder = record(scalars_every=10)
    for number in range(25):
        with recorder.step():
            recorder.loss(math.nan if number == 20 else 1.0 / (number + 1))
            recorder.metric("accuracy", number / 100)
        if number == 13:
            recorder.metric("val_accuracy", 0.5)
    recorder.close()
    assert recorder.faults.newest == {}
    steps = saved(tmp_path)
    assert list(steps) == [0, 10, 20]
    assert steps[10] == pytest.approx({"losses/loss": 1.0 / 11.0, "metrics/accuracy": 0.1})
    assert math.isnan(steps[20]["losses/loss"])
    assert steps[20]["metrics/val_accuracy"] == 0.5


def test_number_on_a_device_is_read_once_available(record: Record, tmp_path: Path) -> None:
    recorder, value = record(scalars_every=2), Later(0.25)
    for number in range(4):
        value.ready = number == 3
        with recorder.step():
            recorder.loss(value if number == 0 else 1.0)
            assert value.read == (1 if number == 3 else 0)
    recorder.close()
    assert saved(tmp_path)[0] == {"losses/loss": 0.25}


def test_unusable_step_count_does_not_stop_training(record: Record) -> None:
    recorder = record(scalars_every=0)
    with recorder.step():
        recorder.loss(1.0)
    assert "scalars_every is 0" in recorder.faults.newest["loss"]
