"""Recorders in this process, and what the sampler makes of what they hand over."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder

Record = Callable[..., Recorder]
collect_ignore_glob = [] if find_spec("torch") else ["*test_*.py"]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    for name, value in {
        "TRAINGUARD_OUTPUT": str(tmp_path / "output"),
        "TRAINGUARD_SPOOL": str(tmp_path / "spool"),
        "TRAINGUARD_JOB": "run-1",
        "TRAINGUARD_NODE": "node-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRAINGUARD_COLLECTOR_SETTINGS", raising=False)
    started: list[Recorder] = []

    def make(**options: Any) -> Recorder:
        started.append(Recorder(with_sampler=False, **options))
        return started[-1]

    yield make
    for each in started:
        each.close()


@pytest.fixture
def send(tmp_path: Path) -> Callable[..., Path]:
    """Send what was handed over; return the job's folder, which has ended."""

    def sent(name: str = "run-1") -> Path:
        outgoing = Outgoing(objects_folder(str(tmp_path / "spool"), name, "node-1"), name, "node-1")
        outgoing.prepare(final=True)
        assert outgoing.faults == {}
        for key, path in outgoing.ready():
            target = tmp_path / "output" / key
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        job = tmp_path / "output" / name
        for folder in ("debug-output", "profiler-output/framework", "profiler-output/system"):
            (job / folder).mkdir(parents=True, exist_ok=True)
            (job / folder / "training_job_end.ts").touch()
        return job

    return sent
