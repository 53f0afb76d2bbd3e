"""Runs a command beside a sampler, as if the command had been run alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from trainguard_collector.parentage import end_with_parent
from trainguard_collector.settings import Settings
from trainguard_collector.spawn import finish, spawn

_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
    if hasattr(signal, name)
)
_OF_THE_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_MOST_RESTARTS = 3


def run(command: Sequence[str], settings: Optional[Settings]) -> int:
    """Run the command and return its exit code; ends by the signal that ended the command.

    Signals go to the command, which is killed with this process: a launcher means the command. Without settings there
    is no sampler.
    """
    received: list[int] = []
    child: list[int] = []
    for number in _PASSED_ON:
        signal.signal(number, lambda given, _frame: _pass_on(given, child, received))
    if settings is not None:
        # A sampler that is started again goes on with the same run.
        settings = replace(settings, began_at=time.time())
    sampler = _start(settings)
    try:
        process = subprocess.Popen(command, preexec_fn=end_with_parent)  # noqa: PLW1509 - one thread alone
    except OSError as fault:
        sys.stderr.write(f"trainguard-collector: {command[0]}: {fault.strerror}\n")
        code = 127 if isinstance(fault, FileNotFoundError) else 126
        _finish(sampler, f"exit {code}", settings)
        return code
    child.append(process.pid)
    for number in received:
        with suppress(OSError):
            os.kill(process.pid, number)
    status, sampler = _wait(process.pid, sampler, settings)
    child.clear()
    process.returncode = os.waitstatus_to_exitcode(status)
    is_stopped = process.returncode != 0 and bool(_STOPPING.intersection(received))
    code = process.returncode
    word = "stopped" if is_stopped else f"signal {-code}" if code < 0 else f"exit {code}"
    _finish(sampler, word, settings)
    if code < 0:
        _end_by(-code)
        return 128 - code
    return code


def _pass_on(number: int, child: "list[int]", received: "list[int]") -> None:
    received.append(number)
    if number in _OF_THE_TERMINAL and _has_terminal():
        return  # the terminal sends it to the command as well
    if child:
        with suppress(OSError):
            os.kill(child[0], number)


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _start(settings: Optional[Settings]) -> "Optional[subprocess.Popen[bytes]]":
    if settings is None:
        return None
    try:
        return spawn(settings)
    except Exception as fault:
        sys.stderr.write(f"trainguard-collector: no sampler: {fault}\n")
        return None


def _wait(
    pid: int, sampler: "Optional[subprocess.Popen[bytes]]", settings: Optional[Settings]
) -> "tuple[int, Optional[subprocess.Popen[bytes]]]":
    """Wait for the command; a sampler that was killed is started again, and other ended children are reaped."""
    restarts = 0
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status, sampler
        if sampler is not None and ended == sampler.pid:
            sampler.returncode = os.waitstatus_to_exitcode(status)
            if sampler.stdin is not None:
                sampler.stdin.close()
            restarts += 1
            was_killed = sampler.returncode != 0
            sampler = _start(settings) if was_killed and restarts <= _MOST_RESTARTS else None


def _finish(sampler: "Optional[subprocess.Popen[bytes]]", word: str, settings: Optional[Settings]) -> None:
    if sampler is not None and settings is not None:
        finish(sampler, word, settings.finish_s + 5.0)


def _end_by(number: int) -> None:
    """End by a signal; returns where that does not end a process, as for the first of a container."""
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    with suppress(Exception):
        import resource  # the command has written its core; this process has nothing to add

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr.flush()
    os.kill(os.getpid(), number)
