"""The sampler of a script that starts it itself."""

import atexit
import multiprocessing
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from trainguard_collector.autostart import MARK, command_line
from trainguard_collector.names import identify, is_first_process_of_node, launched_by
from trainguard_collector.settings import read_settings
from trainguard_collector.spawn import end, say, spawn
from trainguard_collector.torchrun import with_torchrun

_FINISH_S = 25.0


def start(output: Optional[str] = None, *, interval_ms: Optional[int] = None, job: Optional[str] = None) -> bool:
    """Start the sampler of this node; whether it was started here.

    Does nothing on repeated calls, in processes that this one starts (data loaders' workers), in all but a node's first
    process, and without an output. It raises nothing: what is wrong is one line on standard error.

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


def _start(output: Optional[str], interval_ms: Optional[int], job: Optional[str], delay_s: float) -> bool:
    if MARK in os.environ or multiprocessing.parent_process() is not None:
        return False
    if not is_first_process_of_node(os.environ):
        return False
    known = with_torchrun(os.environ, command_line())
    environment = {**known, "TRAINGUARD_JOB": job} if job else known
    settings = read_settings(
        environment, identify(environment, launcher=launched_by(environment)), output=output, interval_ms=interval_ms
    )
    if settings is None:
        return False
    os.environ[MARK] = str(os.getpid())  # before the sampler starts: it is a Python process, too
    try:
        sampler = spawn(replace(settings, delay_s=delay_s))
    except BaseException:
        del os.environ[MARK]
        raise
    atexit.register(_finish, sampler, os.getpid())
    return True


def _finish(sampler: "subprocess.Popen[bytes]", owner: int) -> None:
    """Let the sampler send what is left; a forked process that ends is not the one that is observed."""
    if os.getpid() != owner:
        return
    has_failed = getattr(sys, "last_value", None) is not None
    say(sampler, "exit 1" if has_failed else "exit 0")
    with suppress(subprocess.TimeoutExpired):
        sampler.wait(_FINISH_S)
        return
    end(sampler)
