"""The sampler of a script that starts it itself."""

import atexit
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

from trainguard_collector.autostart import MARK, command_line
from trainguard_collector.exits import noted_code, watch_exit
from trainguard_collector.names import identify, is_first_process_of_node, job_name, launched_by
from trainguard_collector.settings import Settings, read_settings
from trainguard_collector.spawn import NODE_SETTINGS, end, say, spawn
from trainguard_collector.torchrun import with_torchrun

_FINISH_S = 25.0


def start(output: Optional[str] = None, *, interval_ms: Optional[int] = None, job: Optional[str] = None) -> bool:
    """Start the sampler of this node; whether it was started here.

    Does nothing in processes that this one starts (data loaders' workers), in all but a node's first process, and
    without an output. Where a sampler runs already, arguments that differ from its own have no effect, which is one
    line on standard error; one that ``TRAINGUARD_OUTPUT`` alone has started, and that still waits, takes them and
    begins at once. It raises nothing: what is wrong is one line on standard error.

    Parameters
    ----------
    output : str, optional
        ``s3://bucket/prefix`` or a folder; by default ``TRAINGUARD_OUTPUT``.
    interval_ms : int, optional
        100, 200, 500, 1000, 5000 or 60000; by default ``TRAINGUARD_INTERVAL_MS``, else 500.
    job : str, optional
        The job's name; by default ``TRAINGUARD_JOB``, else what started the job says.
    """
    return _tried(output, interval_ms, job, 0.0)


def start_later(delay_s: float) -> bool:
    """Start the sampler as `start` does; it samples from ``delay_s`` seconds on, and leaves nothing before."""
    return _tried(None, None, None, delay_s)


def _tried(output: Optional[str], interval_ms: Optional[int], job: Optional[str], delay_s: float) -> bool:
    try:
        return _start(output, interval_ms, job, delay_s)
    except Exception as fault:
        with suppress(Exception):
            sys.stderr.write(f"trainguard-collector: not started: {fault}\n")
        return False


class _Running:
    """The sampler that this process has started; ``waits_until`` (monotonic seconds) it takes no sample."""

    def __init__(self, sampler: "subprocess.Popen[bytes]", delay_s: float) -> None:
        self.owner, self.sampler, self.waits_until = os.getpid(), sampler, time.monotonic() + delay_s

    def finish(self) -> None:
        """Let the sampler send what is left; a forked process that ends is not the one that is observed."""
        if os.getpid() != self.owner:
            return
        has_failed = getattr(sys, "last_value", None) is not None
        say(self.sampler, f"exit {1 if has_failed else noted_code()}")
        with suppress(subprocess.TimeoutExpired):
            self.sampler.wait(_FINISH_S)
            return
        end(self.sampler)


_running: "list[_Running]" = []
"""The one that this process has started, at most."""


def _start(output: Optional[str], interval_ms: Optional[int], job: Optional[str], delay_s: float) -> bool:
    if multiprocessing.parent_process() is not None or not is_first_process_of_node(os.environ):
        return False
    waiting = next((each for each in _running if each.owner == os.getpid() and not delay_s), None)
    if MARK in os.environ and (waiting is None or time.monotonic() >= waiting.waits_until):
        note_ignored(running_settings(os.environ), output, interval_ms, job)
        return False
    known = with_torchrun(os.environ, command_line())
    environment = {**known, "TRAINGUARD_JOB": job} if job else known
    settings = read_settings(
        environment, identify(environment, launcher=launched_by(environment)), output=output, interval_ms=interval_ms
    )
    if settings is None:
        return False
    if waiting is not None:  # the sampler that the variable has started has written nothing yet
        end(waiting.sampler)
        waiting.sampler, waiting.waits_until = spawn(settings), 0.0
        return True
    os.environ[MARK] = str(os.getpid())  # before the sampler starts: it is a Python process, too
    try:
        running = _Running(spawn(replace(settings, delay_s=delay_s)), delay_s)
    except BaseException:
        del os.environ[MARK]
        raise
    _running.append(running)
    watch_exit()
    atexit.register(running.finish)
    return True


def running_settings(environment: Mapping[str, str]) -> Optional[Settings]:
    """Return the settings of the sampler that observes this process; None where none does."""
    text = environment.get(NODE_SETTINGS)
    if not text:
        return None
    given = json.loads(text)
    # MPI may carry a variable from one node to another.
    return Settings.from_json(given["settings"]) if given["host"] == socket.gethostname() else None


def note_ignored(
    running: Optional[Settings], output: Optional[str], interval_ms: Optional[int], job: Optional[str]
) -> None:
    """Say on standard error which arguments have no effect, because a sampler runs with others."""
    if running is None:
        return
    place = output if output is None or output.startswith("s3://") else str(Path(output).absolute())
    ignored = [
        f"{name}={given!r}"
        for name, given, differs in (
            ("output", output, place is not None and place.rstrip("/") != running.output),
            ("interval_ms", interval_ms, interval_ms is not None and interval_ms != running.interval_ms),
            ("job", job, bool(job) and job_name(job or "") != running.identity.job),
        )
        if differs
    ]
    if ignored:
        sys.stderr.write(
            f"trainguard-collector: a sampler already runs for job {running.identity.job!r}, with output "
            f"{running.output!r} and an interval of {running.interval_ms} ms: {', '.join(ignored)} has no effect\n"
        )
