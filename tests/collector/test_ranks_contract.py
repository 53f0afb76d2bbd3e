"""What the recorders of several ranks write is what the rules over a job judge, on a clock that the test moves."""

from pathlib import Path
from typing import Any

import pytest

from tests.collector.test_recorder_contract import START_S, Clock
from trainguard.local.api import analyze
from trainguard_collector import layout
from trainguard_collector.metrics import Sample, encode
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder

RANKS, STEP_S, WORK_MIN, HUNG_MIN = 4, 0.5, 20, 8
LAST = round(WORK_MIN * 60 / STEP_S) - 10


def judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, early: int | None = None, slow: int | None = None
) -> dict[str, tuple[str, str]]:
    """Train until all ranks hang, ``early`` a step before the others; the others wait for ``slow`` in each step."""
    for name, value in {"OUTPUT": folder, "SPOOL": folder / "spool", "JOB": "run-1", "NODE": "node-1"}.items():
        monkeypatch.setenv(f"TRAINGUARD_{name}", str(value))
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    monkeypatch.setenv("WORLD_SIZE", str(RANKS))
    clock, made = Clock(monkeypatch), []
    for rank in range(RANKS):
        monkeypatch.setenv("RANK", str(rank))
        clock.now_ns = 10**12
        recorder = Recorder(with_sampler=False)
        clock.pass_s(0.3 * rank)
        made.append(recorder)
        for _ in range(LAST - (rank == early)):
            with recorder.step():
                with recorder.phase("forward"):
                    clock.pass_s(0.4 * STEP_S if rank == slow else 0.2 * STEP_S)
                with recorder.phase("backward"):
                    clock.pass_s(0.5 * STEP_S if rank == slow else 0.7 * STEP_S)
                with recorder.phase("optimizer"):
                    clock.pass_s(0.1 * STEP_S)
        recorder.begin_step()
    outgoing = Outgoing(objects_folder(str(folder / "spool"), "run-1", "node-1"), "run-1", "node-1")
    outgoing.prepare(final=True)
    monkeypatch.undo()
    for key, path in outgoing.ready():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        path.replace(folder / key)
    for each in made:
        each.close()
    for minute in range(WORK_MIN + HUNG_MIN):
        at = START_S + 60 * minute
        busy, watts, moves = (95.0, 400.0, 40.0) if minute < WORK_MIN else (100.0, 110.0, 0.0)
        samples = [Sample("cpu", "cpu0", "CPUUtilization", 10.0)]
        for gpu in range(RANKS):
            samples += [Sample("gpu", f"gpu{gpu}", "GPUUtilization", busy)]
            samples += [Sample("gpu", f"gpu{gpu}", "GPUMemoryUtilization", moves)]
            samples += [Sample("gpu", f"gpu{gpu}.PowerWatts", "", watts)]
        target = folder / layout.system_key("run-1", "node-1", at)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(encode(samples, "node-1", at + second) for second in range(0, 60, 5)))
    for key in (layout.end_key("run-1"), layout.stream_end_key("run-1", "framework")):
        (folder / key).write_bytes(b"")
    found: Any = analyze(folder / "run-1", time_lines=False).rules
    return dict(zip(found["rule"], zip(found["status"], found["reason"], strict=True), strict=True))


def test_ranks_hung_in_one_step_name_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = judged(tmp_path, monkeypatch)
    status, reason = rules["HungJob"]
    assert (status, "steps have stopped" in reason, "behind" in reason) == ("FIRED", True, False), reason
    assert rules["Straggler"][0] == "OK", rules["Straggler"]


def test_rank_hung_a_step_early_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = judged(tmp_path, monkeypatch, early=2, slow=3)
    status, reason = rules["HungJob"]
    assert (status, "; behind in steps: node-1-rank2." in reason) == ("FIRED", True), reason
    status, reason = rules["Straggler"]
    assert (status, "rank3" in reason) == ("FIRED", True), reason
