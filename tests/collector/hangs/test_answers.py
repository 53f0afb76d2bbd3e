"""The part of a training process: it listens after the first step, and answers with its flight recorder's dump."""

import gzip
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collector.runs import until
from trainguard_collector import Recorder
from trainguard_collector.hangs.watch import ask
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing

Torch = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own = {"OUTPUT": tmp_path / "out", "SPOOL": tmp_path / "spool", "JOB": "run-1", "NODE": "node-1"}
    for name, value in own.items():
        monkeypatch.setenv(f"TRAINGUARD_{name}", str(value))
    return objects_folder(str(tmp_path / "spool"), "run-1", "node-1")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Return a function that puts a stand-in of torch in place: rank 3 of ``world``."""

    def stand_in(backend: str, world: int = 4, **dumps: Any) -> None:
        distributed = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 3,
            get_world_size=lambda: world,
            get_backend_config=lambda: backend,
        )
        c10d = SimpleNamespace(_distributed_c10d=SimpleNamespace(**dumps))
        module = SimpleNamespace(__version__="2.5.0", distributed=distributed, _C=c10d)
        monkeypatch.setitem(sys.modules, "torch", module)

    return stand_in


def step(count: int = 1) -> Recorder:
    recorder = Recorder(with_sampler=False)
    for _ in range(count):
        with recorder.step():
            pass
    return recorder


def answers(folder: Path) -> dict[str, bytes]:
    outgoing = Outgoing(folder, "run-1", "node-1")
    outgoing.prepare(final=False)
    found = {key: path for key, path in outgoing.ready() if "hang-dumps" in key}
    return {
        key.removeprefix("run-1/hang-dumps/node-1/"): gzip.decompress(path.read_bytes()) for key, path in found.items()
    }


@pytest.mark.parametrize(
    ("backend", "dumps", "name", "body"),
    [
        ("cuda:nccl,cpu:gloo", {"_dump_nccl_trace": lambda: b"\x80."}, "nccl_trace_rank_3.gz", b"\x80."),
        ("cpu:gloo", {"_dump_fr_trace_json": lambda: b"{}"}, "nccl_trace_rank_3.json.gz", b"{}"),
        ("cpu:gloo", {"_dump_fr_trace_json": lambda: "{}"}, "nccl_trace_rank_3.json.gz", b"{}"),
    ],
    ids=["NCCL", "gloo", "gloo as text"],
)
def test_question_is_answered_by_the_dump(
    backend: str, dumps: dict[str, Any], name: str, body: bytes, torch: Torch, folder: Path
) -> None:
    torch(backend, **dumps)
    recorder = step(3)
    ask(folder / f"{os.getpid()}.ask", 1_800_000_000)
    until(lambda: any(folder.glob("*.plain")))
    assert answers(folder) == {f"2027-01-15T08-00-00Z/{name}": body}
    recorder.close()
    assert recorder.faults.newest == {}
    assert not list(folder.glob("*.ask")) + list(folder.glob("*.stacks"))


def fail() -> bytes:
    raise RuntimeError("no recorder")


@pytest.mark.parametrize(
    ("dumps", "told"),
    [
        ({"_dump_fr_trace_json": fail}, "RuntimeError: no recorder"),
        ({}, "RuntimeError: torch 2.5.0 has no dump of gloo, expected 2.7 or newer"),
        ({"_dump_fr_trace_json": lambda: b" " * (64 * 1024 * 1024 + 1)}, "ValueError: a dump has 67,108,865 bytes"),
    ],
    ids=["raises", "old torch", "too large"],
)
def test_dump_that_fails_is_told_and_the_next_one_asked(
    dumps: dict[str, Any], told: str, torch: Torch, folder: Path
) -> None:
    torch("gloo", **dumps)
    recorder = step()
    for count in (1, 2):
        ask(folder / f"{os.getpid()}.ask", 1_800_000_000)
        until(lambda wanted=count: recorder.faults.counts.get("hang dump") == wanted)  # type: ignore[misc]
    assert recorder.faults.newest["hang dump"].startswith(told)
    assert answers(folder) == {}
    recorder.close()


def test_process_without_peers_starts_no_thread(torch: Torch, folder: Path) -> None:
    threads = threading.active_count()
    torch("gloo", world=1)
    recorder = step(2)
    assert threading.active_count() == threads
    assert {path.suffix for path in folder.glob(f"{os.getpid()}.*")} == {".stacks", ".writer"}
    recorder.close()


def test_switched_off_a_recorder_prepares_nothing(torch: Torch, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINGUARD_HANGS", "0")
    torch("gloo")
    recorder = step(2)
    assert not list(folder.glob("*.ask")) + list(folder.glob("*.stacks"))
    recorder.close()


def test_checkpoint_and_evaluation_are_marked_while_open(folder: Path) -> None:
    recorder = step()
    mark = folder / f"{os.getpid()}.pause"
    with recorder.phase("evaluation"):
        assert mark.exists()
        with recorder.phase("checkpoint"), recorder.phase("forward"):
            pass
        assert mark.exists()
    assert not mark.exists()
    with recorder.phase("forward"):
        assert not mark.exists()
    recorder.close()
