"""Commands under the collector, for tests that look at its processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil


class Runs:
    """Starts commands under the collector; whatever is left of them is ended after the test."""

    def __init__(self, folder: Path) -> None:
        self.output, self.spool = folder / "output", folder / "spool"
        self.environment = {
            **os.environ,
            "TRAINGUARD_OUTPUT": str(self.output),
            "TRAINGUARD_AUTOSTART": "0",
            "TRAINGUARD_SPOOL": str(self.spool),
            "TRAINGUARD_INTERVAL_MS": "100",
            "TRAINGUARD_JOB": "run-1",
            "TRAINGUARD_NODE": "node-1",
        }
        self.started: list[subprocess.Popen[str]] = []

    @property
    def executable(self) -> str:
        return sys.executable

    def python(self, *arguments: str) -> "subprocess.Popen[str]":
        return self._start([sys.executable, *arguments])

    def shell(self, script: str) -> "subprocess.Popen[str]":
        return self._start(["bash", "-c", script])

    def _start(self, command: list[str]) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=self.environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        self.started.append(process)
        return process

    def wrap(self, *command: str) -> "subprocess.Popen[str]":
        return self.python("-m", "trainguard_collector", "--", *command)

    def sampler(self, process: "subprocess.Popen[str]") -> psutil.Process:
        def found() -> list[psutil.Process]:
            children = psutil.Process(process.pid).children()
            return [child for child in children if "trainguard_collector.process" in " ".join(child.cmdline())]

        until(lambda: bool(found()))
        return found()[0]

    @property
    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.output / "run-1/collector/node-1.status.json").read_bytes())
        return found

    @property
    def job_status(self) -> str:
        found: str = json.loads((self.output / "run-1/job.json").read_bytes())["status"]
        return found


def until(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("did not come true within 15 s")


def is_running(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
