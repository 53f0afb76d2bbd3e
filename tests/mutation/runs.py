"""Runs tests in a process of their own, with a mutant in the place of a module's source or without one."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from tests.mutation.in_place import NotInPlaceError, replace
from tests.mutation.mutants import Mutant
from tests.mutation.plugin import put

_POLL_S = 0.02
_LONGEST_NAME = 4_096
_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
# The exit code of a process in which a test file could not be imported, or a conftest.py.
BROKEN_IMPORT = 100


# That of one whose tests never ran.
_ENDED = 101

# That of one in which a mutant could not take the place of functions.
_NOT_IN_PLACE = 102


class Outcome(Enum):
    """What came of a run."""

    NOT_RUN = "not run"
    PASSED = "passed"
    FAILED = "found"
    BROKEN = "broke an import"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended; ``test`` is the one that failed, None where none did."""

    outcome: Outcome
    test: str | None = None


class NoResultError(Exception):
    """The tests gave no result: they do not exist, or pytest failed itself."""


class _Noted:
    """A plugin of pytest that notes whether a test file could not be imported, and the test that failed."""

    def __init__(self) -> None:
        self.is_broken = False
        self.failed: str | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file."""
        self.is_broken = self.is_broken or report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def run(tests: Sequence[str], *, seconds: float, mutant: Mutant | None = None, imported: bool = False) -> Ended:
    """Run tests until the first one fails, for so many seconds at most.

    Where the package is ``imported``, the mutant takes the place of functions, else of the module.

    Raises
    ------
    NoResultError
        When pytest neither passed nor failed a test.
    """
    failed, theirs = os.pipe()
    try:
        code = _in_a_child(lambda: _pytest(tests, mutant, theirs, imported=imported), seconds)
        os.close(theirs)
        test = os.read(failed, _LONGEST_NAME + 1).decode().strip() or None
    finally:
        os.close(failed)
    if code is None:
        return Ended(Outcome.TIMED_OUT)
    known = {0: Outcome.PASSED, 1: Outcome.FAILED, BROKEN_IMPORT: Outcome.BROKEN, _NOT_IN_PLACE: Outcome.NOT_RUN}
    if code not in known:
        raise NoResultError(f"pytest ended with {code} for {', '.join(tests[:3])}")
    return Ended(known[code], test)


def _pytest(tests: Sequence[str], mutant: Mutant | None, failed: int, *, imported: bool) -> int:
    if mutant is not None and imported:
        try:
            replace(mutant)
        except NotInPlaceError:
            return _NOT_IN_PLACE
    elif mutant is not None:
        put(mutant.file, mutant.source)
    noted = _Noted()
    # What tests print, and where they fail, is of no interest.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = int(pytest.main([*_OPTIONS, *tests], plugins=[noted]))
    os.write(failed, (noted.failed or "").encode()[:_LONGEST_NAME] + b"\n")
    usage = code == pytest.ExitCode.USAGE_ERROR and mutant is not None  # a conftest.py that imports the mutant
    return BROKEN_IMPORT if noted.is_broken or usage else code


def _in_a_child(function: Callable[[], int], seconds: float) -> int | None:
    """Return the exit code that a forked process has; None where it took too long and was ended, with its children."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = _ENDED
        try:
            code = function()
        finally:
            sys.stdout.flush()
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
