"""What `trainguard doctor --job` says about recorders, by the statuses that they write at their end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from trainguard.cli.doctor.job_statuses import RecorderStatus, grade_recorders, read_statuses
from trainguard.cli.doctor.site import CheckLevel, CheckResult
from trainguard.core.layout import ProfileRoot
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder

ROOT = ProfileRoot("runs/", "bert")


def graded(*bodies: bytes) -> list[CheckResult]:
    world = MemoryWorld()
    for number, body in enumerate(bodies):
        world.objects.put("b", f"runs/bert/collector/algo-1.rank{number}.recorder.json", body, "application/json")
    world.objects.put("b", "runs/bert/collector/algo-1.status.json", b"{", "application/json")
    return list(grade_recorders(read_statuses(world.objects, "b", ROOT, RecorderStatus)))


def status(process: str = "rank0", **more: Any) -> bytes:
    return json.dumps({"format_version": 1, "node": "algo-1", "process": process, **more}).encode()


def test_lossless_recorder_is_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINGUARD_OUTPUT", str(tmp_path))
    monkeypatch.setenv("TRAINGUARD_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    with Recorder(job="bert", with_sampler=False) as recorder, recorder.step():
        pass
    outgoing = Outgoing(recorder.folder, "bert", "n")
    (written,) = (path for key, path in outgoing.ready() if key.endswith(".recorder.json"))
    (said,) = graded(written.read_bytes())
    assert (said.level, said.found) == (CheckLevel.OK, "1 recorder, nothing lost")
    (said,) = graded()
    assert (said.level, said.found) == (CheckLevel.OK, "no recorder has written its final status")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"dropped_events": 3_000},
            "3,000 events dropped, as no sampler took them or the disk was full: algo-1 rank0w2: 3,000",
        ),
        ({"dropped_objects": 2}, "2 files dropped, as the spool was full: algo-1 rank0w2: 2"),
        (
            {"skipped_tensor_steps": 1},
            "1 saved step skipped, as the device had not copied the last ones: algo-1 rank0w2: 1",
        ),
        ({"tensors_left_out": ["a", "b"]}, "full tensors of a step were too many, left out: a; b"),
        ({"errors": {"watch": "ValueError: no\nmodel"}}, "their newest errors: watch: ValueError: no model"),
    ],
)
def test_loss_is_reported_with_its_process(more: dict[str, Any], expected: str) -> None:
    (said,) = graded(status(), status("rank0w2", **more))
    assert (said.level, said.found) == (CheckLevel.WARN, expected)
    assert said.advice


def test_unreadable_status_is_named() -> None:
    (said,) = graded(b"{")
    assert said.level is CheckLevel.WARN
    assert said.found.startswith("not read: algo-1.rank0: ")
