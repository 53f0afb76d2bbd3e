"""Ranks that hang: what their recorders have written by then says who is behind, and names nobody who is not."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainguard.formats.profile.columns import read_framework_object
from trainguard.formats.profile.keys import FrameworkKey, parse_key
from trainguard.rules.hung_job.state import ProcessProgress, ProgressState, behind
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing

STEP_S = 0.05
RANK = """
import sys, time
from trainguard_collector import Recorder
recorder = Recorder(with_sampler=False)
time.sleep(float(sys.argv[2]))
for number in range(int(sys.argv[1]) + 1):
    with recorder.step():
        if number == int(sys.argv[1]):
            print("hangs", flush=True)
            time.sleep(600)
        time.sleep(float(sys.argv[3]))
"""
Hang = Callable[[list[int]], dict[str, ProcessProgress]]


@pytest.fixture
def hang(tmp_path: Path) -> Iterator[Hang]:
    """Return a function that runs ranks until each hangs in the step of its number, and reads what they wrote."""
    started: list[subprocess.Popen[str]] = []

    def run(steps: list[int], step_s: float = STEP_S) -> dict[str, ProcessProgress]:
        own = {"OUTPUT": tmp_path / "out", "SPOOL": tmp_path / "spool", "JOB": "run-1", "NODE": "node-1"}
        environment = {**os.environ, **{f"TRAINGUARD_{name}": str(value) for name, value in own.items()}}
        environment |= {"TRAINGUARD_AUTOSTART": "0", "WORLD_SIZE": str(len(steps))}
        environment.pop("TRAINGUARD_COLLECTOR_SETTINGS", None)
        for rank, last in enumerate(steps):
            words = [sys.executable, "-c", RANK, str(last), str(0.13 * rank), str(step_s)]
            rank_environment = {**environment, "RANK": str(rank)}
            started.append(subprocess.Popen(words, env=rank_environment, text=True, stdout=subprocess.PIPE))
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == "hangs\n"
        outgoing = Outgoing(objects_folder(str(tmp_path / "spool"), "run-1", "node-1"), "run-1", "node-1")
        outgoing.prepare(final=True)
        assert outgoing.faults == {}
        state = ProgressState()
        for key, path in outgoing.ready():
            parsed = parse_key(key)
            assert isinstance(parsed, FrameworkKey)
            process = f"{parsed.node}-{parsed.process}"
            state.fold(read_framework_object(key, path.read_bytes(), process=process, end_us=parsed.end_us))
        return state.processes

    yield run
    for each in started:
        each.send_signal(signal.SIGKILL)
        each.wait()
        if each.stdout is not None:
            each.stdout.close()


def test_ranks_hung_in_one_step_are_not_behind(hang: Hang) -> None:
    progress = hang([9, 9, 9])
    assert {name: each.number for name, each in progress.items()} == dict.fromkeys(
        ("node-1-rank0", "node-1-rank1", "node-1-rank2"), "8"
    )
    assert behind(progress) == []


def test_rank_hung_a_step_early_is_behind_alone(hang: Hang) -> None:
    assert behind(hang([9, 8, 9])) == ["node-1-rank1"]
