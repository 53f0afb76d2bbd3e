"""The sampler of a script that starts it itself, and how that script ends.

Nothing else has the code of ``sys.exit`` in time. So it raises an exception of ours: destroyed with no frame of Python
below, it has ended the process; where a frame goes on, somebody has caught it.
"""

import atexit
import functools
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
from types import SimpleNamespace
from typing import Any, NoReturn, Optional

from trainguard_collector.hangs.variables import set_variables, take_back
from trainguard_collector.names import command_line, identify, is_first_process_of_node, job_name, with_torchrun
from trainguard_collector.settings import Settings, read_settings
from trainguard_collector.spawn import MARK, NODE_SETTINGS, end, finish, spawn

# The newest call that was not caught: which exception it raised, and its code.
_noted = SimpleNamespace(is_watching=False, raised=None, code=0)


class Exit(SystemExit):
    """What ``sys.exit`` raises; no frame of this module may hold it, else nobody could tell when it was caught."""

    def __init__(self, status: Any) -> None:
        super().__init__(status)
        # The exit code that a process has for it: 0 for None, 1 for a text.
        code = 0 if status is None else int(status) & 0xFF if isinstance(status, int) else 1
        _noted.raised, _noted.code = id(self), code

    def __del__(self) -> None:
        try:
            sys._getframe(1)
        except ValueError:
            return
        if _noted.raised == id(self):
            _noted.raised, _noted.code = None, 0


def watch_exit() -> None:
    """Take note of the codes that ``sys.exit`` is given from here on."""
    if _noted.is_watching:
        return
    _noted.is_watching = True

    @functools.wraps(sys.exit)
    def exit_noted(status: Any = None, /) -> NoReturn:
        raise Exit(status)

    sys.exit = exit_noted


_FINISH_S = 25.0


def start(output: Optional[str] = None, *, interval_ms: Optional[int] = None, job: Optional[str] = None) -> bool:
    """Start the sampler of this node; whether it was started here. It raises nothing: a fault is one line on stderr.

    Does nothing in processes that this one starts, in all but a node's first process, and without an output. A running
    sampler ignores other arguments, with a line on standard error; one of ``TRAINGUARD_OUTPUT`` alone that still waits
    takes them. ``output`` is ``s3://bucket/prefix`` or a folder, ``interval_ms`` 100, 200, 500, 1000, 5000 or 60000;
    defaults are of the environment, else 500 ms.
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
        self.variables: dict[str, str] = {}

    def finish(self) -> None:
        """Let the sampler send what is left; a forked process that ends is not the observed one."""
        if os.getpid() != self.owner:
            return
        has_failed = getattr(sys, "last_value", None) is not None
        finish(self.sampler, f"exit {1 if has_failed else _noted.code}", _FINISH_S)


_running: "list[_Running]" = []


def _start(output: Optional[str], interval_ms: Optional[int], job: Optional[str], delay_s: float) -> bool:
    is_first = is_first_process_of_node(os.environ)
    if multiprocessing.parent_process() is not None or (MARK in os.environ and not is_first):
        return False
    waiting = next((each for each in _running if each.owner == os.getpid() and not delay_s), None)
    if MARK in os.environ and (waiting is None or time.monotonic() >= waiting.waits_until):
        note_ignored(running_settings(os.environ), output, interval_ms, job)
        return False
    known = with_torchrun(os.environ, command_line())
    environment = {**known, "TRAINGUARD_JOB": job} if job else known
    settings = read_settings(environment, identify(environment), output=output, interval_ms=interval_ms)
    if settings is None:
        return False
    if not is_first:  # a rank beside it has the sampler
        set_variables(os.environ, settings)
        return False
    if waiting is not None:  # the sampler that the variable has started has written nothing yet
        end(waiting.sampler)
        take_back(os.environ, waiting.variables)
        waiting.variables = set_variables(os.environ, settings)
        waiting.sampler, waiting.waits_until = spawn(settings), 0.0
        return True
    os.environ[MARK] = str(os.getpid())  # before the sampler starts: it is a Python process, too
    try:
        running = _Running(spawn(replace(settings, delay_s=delay_s)), delay_s)
    except BaseException:
        del os.environ[MARK]
        raise
    running.variables = set_variables(os.environ, settings)
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
