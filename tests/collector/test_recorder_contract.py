"""What the recorder writes is what the rules judge: whole jobs on a clock that the test moves, through `analyze`."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainguard.local.api import analyze
from trainguard_collector import layout
from trainguard_collector.metrics import Sample, encode
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder import steps
from trainguard_collector.recorder.recorder import Recorder

START_S = 1_795_248_000
CORES = 16


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 10**12
        monkeypatch.setattr("time.monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr("time.time_ns", lambda: self.now_ns - 10**12 + START_S * 10**9)
        monkeypatch.setattr(steps, "_clock", lambda: self.now_ns)

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class Loader:
    """A loader that takes its time for each batch."""

    pin_memory = True

    def __init__(self, clock: Clock, wait_s: float, workers: int, count: int) -> None:
        self.clock, self.wait_s, self.num_workers, self.count = clock, wait_s, workers, count

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.clock.pass_s(self.wait_s)
            yield number


def job(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int, wait_s: float, slow_every: int, start_up_s: float
) -> dict[str, tuple[str, str]]:
    """Train for half an hour of the test's clock; return status and reason of each rule."""
    for name, value in {"OUTPUT": folder, "SPOOL": folder / "spool", "JOB": "run-1", "NODE": "node-1"}.items():
        monkeypatch.setenv(f"TRAINGUARD_{name}", str(value))
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    clock = Clock(monkeypatch)
    made = Recorder(with_sampler=False)
    clock.pass_s(start_up_s)
    for number in made.wrap(Loader(clock, wait_s, workers, round(1_800 / (wait_s + 0.5)))):
        with made.step():
            for phase, seconds in (("forward", 0.15), ("backward", 0.25), ("optimizer", 0.1)):
                with made.phase(phase):
                    clock.pass_s(seconds)
            if slow_every and number % slow_every == 0:
                with made.phase("checkpoint"):
                    clock.pass_s(20.0)
    made.close()
    assert (made.faults.newest, made.log.dropped) == ({}, 0)
    outgoing = Outgoing(objects_folder(str(folder / "spool"), "run-1", "node-1"), "run-1", "node-1")
    outgoing.prepare(final=True)
    monkeypatch.undo()
    for key, path in outgoing.ready():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        path.replace(folder / key)
    for minute in range(START_S, START_S + int((clock.now_ns - 10**12) / 1e9), 60):
        samples = [Sample("cpu", f"cpu{core}", "CPUUtilization", 30.0) for core in range(CORES)]
        target = folder / layout.system_key("run-1", "node-1", minute)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(encode(samples, "node-1", minute + second) for second in range(0, 60, 5)))
    for key in (layout.end_key("run-1"), layout.stream_end_key("run-1", "framework")):
        (folder / key).write_bytes(b"")
    report = analyze(folder / "run-1", time_lines=False)
    assert report.notes == ()
    found: Any = report.rules
    return dict(zip(found["rule"], zip(found["status"], found["reason"], strict=True), strict=True))


def test_step_rules_judge_a_healthy_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = job(tmp_path, monkeypatch, workers=CORES, wait_s=0.005, slow_every=0, start_up_s=60.0)
    assert {name: rules[name][0] for name in ("StepOutlier", "MaxInitializationTime", "Dataloader")} == {
        "StepOutlier": "OK",
        "MaxInitializationTime": "OK",
        "Dataloader": "OK",
    }
    assert ", 60 s after the training start" in rules["MaxInitializationTime"][1]
    status, reason = rules["OverallFrameworkMetrics"]
    assert (status, "99 % of the 30 min of training loop in steps" in reason) == ("OK", True), reason


def test_step_rules_name_three_faults_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = job(tmp_path, monkeypatch, workers=2, wait_s=0.4, slow_every=50, start_up_s=1_500.0)
    for name in ("StepOutlier", "MaxInitializationTime", "Dataloader"):
        assert rules[name][0] == "FIRED", rules[name]
    assert f"node-1-{os.getpid()} TRAIN" in rules["StepOutlier"][1]
    assert "25 min" in rules["MaxInitializationTime"][1]


def test_clock_set_back_puts_no_event_before_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINGUARD_OUTPUT", str(tmp_path))
    monkeypatch.setenv("TRAINGUARD_SPOOL", str(tmp_path / "spool"))
    clock = Clock(monkeypatch)
    made = Recorder(job="run-1", with_sampler=False)
    for number in itertools.islice(made.wrap(range(10)), 10):
        with made.step():
            clock.pass_s(2.0)
        if number == 4:
            monkeypatch.setattr("time.time_ns", lambda: clock.now_ns - 10**12 + (START_S - 3_600) * 10**9)
    made.close()
    assert made.log.dropped > 0
    assert made.faults.newest == {}
