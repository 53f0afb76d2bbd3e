"""Ranks that record and stand still: what the collector sends of them names the rank and its line."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.torch.hangs.recorded import RANK
from trainguard.local.hangs import judge_hang

pytestmark = pytest.mark.torch

WORLD = 4


class Job:
    """A wrapped command that starts the ranks."""

    def __init__(self, folder: Path) -> None:
        self.output, self.spool, self._log = folder / "output", folder / "spool", folder / "log"
        self.sent = self.output / "run-1" / "hang-dumps" / "node-1"

    def start(self, kind: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINGUARD_")}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        environment |= {"TRAINGUARD_OUTPUT": str(self.output), "TRAINGUARD_SPOOL": str(self.spool)}
        environment |= {"TRAINGUARD_JOB": "run-1", "TRAINGUARD_NODE": "node-1", "WORLD_SIZE": str(WORLD)}
        script = Path(__file__).with_name("recorded.py")
        ranks = f'for rank in $(seq 0 {WORLD - 1}); do RANK=$rank "$0" "$1" "$2" & done; wait'
        wrapped = ["bash", "-c", ranks, sys.executable, str(script), kind]
        with self._log.open("w") as log:
            words = [sys.executable, "-m", "trainguard_collector", "--", *wrapped]
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def wait_for(self, count: int) -> None:
        """Wait until so many files of a standstill have been sent, and no more come."""
        found: set[Path] = set()
        for _ in range(60):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(3.0)
                raise AssertionError(f"the job has ended: {self._log.read_text()}")
            before, found = found, {each for each in self.sent.rglob("*") if each.is_file()}
            if len(found) >= count and found == before:
                return
        raise AssertionError(f"{len(found)} of {count} files came: {sorted(map(str, found))}")

    def end(self) -> None:
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "recorded.py" in " ".join(each.cmdline()):
                    each.kill()
        self.process.wait(60.0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


@pytest.mark.parametrize("kind", ["reads_a_batch", "is_stopped"])
def test_rank_that_stands_still_is_named_by_what_is_sent(kind: str, job: Job) -> None:
    job.start(kind)
    answering = WORLD - (kind == "is_stopped")
    job.wait_for(2 * answering)
    (folder,) = job.sent.iterdir()
    names = {each.name for each in folder.iterdir()}
    ranks = [rank for rank in range(WORLD) if kind != "is_stopped" or rank != RANK]
    assert names >= {f"nccl_trace_rank_{rank}.json.gz" for rank in ranks}
    assert {name.split(".")[0] for name in names} >= {f"stack_rank_{rank}" for rank in ranks}
    for place in (folder, job.output / "run-1"):
        verdict = judge_hang(str(place))
        assert verdict.culprits == [RANK]
        assert verdict.operation == "all_reduce"
    assert verdict.without_dump == ([] if kind == "reads_a_batch" else [RANK])
    assert verdict.line.endswith("recorded.py:18 reads_a_batch" if kind == "reads_a_batch" else "main")
