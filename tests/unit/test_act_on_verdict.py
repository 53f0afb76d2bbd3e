"""The example that ends idle jobs, against stubs of the schedulers' own commands."""

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from act_on_verdict import main

SCRIPT = Path(__file__).parents[2] / "examples" / "act_on_verdict" / "act_on_verdict.py"
# A verdict whose time is in seconds from when it is acted on.
IDLE = {"verdict": "idle", "certainty": "high", "active": True, "generated_at": 0.0}


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """Put stubs of the commands on a path of their own; return the file of what they were called with."""
    calls = tmp_path / "calls"
    for name in ("aws", "kubectl", "scancel", "sky"):
        stub = tmp_path / name
        stub.write_text(
            f'#!/bin/sh\nfor word in {name} "$@"; do echo "$word"; done > {calls}\nexit "${{REFUSES:-0}}"\n'
        )
        stub.chmod(stub.stat().st_mode | stat.S_IEXEC)
    return calls


def written(document: object) -> str:
    """Return a document as text, its time counted from now."""
    if isinstance(document, dict) and "generated_at" in document:
        made = datetime.now(UTC) + timedelta(seconds=document["generated_at"])
        document = {**document, "generated_at": made.isoformat()}
    return document if isinstance(document, str) else json.dumps(document)


def act(folder: Path, document: object, *words: str, refuses: int = 0) -> int:
    environment = {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin", "REFUSES": str(refuses)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return main(list(words), written(document))


@pytest.mark.parametrize(
    ("scheduler", "job", "expected"),
    [
        ("batch", "a1-b2", "aws batch terminate-job --job-id a1-b2 --reason"),
        ("kubernetes", "training/bert", "kubectl --namespace training patch job bert -p"),
        ("kubernetes", "bert", "kubectl --namespace default patch job bert -p"),
        ("slurm", "4711", "scancel --signal=TERM --full 4711"),
        ("skypilot", "gpus", "sky stop --yes gpus"),
    ],
)
def test_idle_job_is_ended_by_its_scheduler(scheduler: str, job: str, expected: str, called: Path) -> None:
    assert act(called.parent, IDLE, scheduler, job) == 0
    assert " ".join(called.read_text().split("\n")).startswith(expected)
    assert act(called.parent, IDLE, scheduler, job, refuses=3) == 1


@pytest.mark.parametrize(
    "document",
    [
        {**IDLE, "certainty": "medium"},
        {**IDLE, "verdict": "wasted"},
        {**IDLE, "verdict": "unknown"},
        {**IDLE, "verdict": "a word of a later version"},
        {**IDLE, "active": False},
        {**IDLE, "generated_at": -1_800.0},
        {**IDLE, "generated_at": 1_800.0},
        {"verdict": "idle", "certainty": "high", "active": True},
        {},
        [],
        "",
        "no JSON",
    ],
)
def test_job_that_is_not_idle_is_left_alone(document: object, called: Path) -> None:
    assert act(called.parent, document, "slurm", "4711") == 0
    assert not called.exists()
    assert act(called.parent, IDLE, "slurm", "4711", "--dry-run") == 0
    assert not called.exists()


def test_script_reads_the_verdict_from_its_standard_input(called: Path) -> None:
    call = [sys.executable, str(SCRIPT), "slurm", "4711", "--dry-run"]
    done = subprocess.run(call, input=written(IDLE), text=True, check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "scancel --signal=TERM --full 4711\n")
    assert not called.exists()
