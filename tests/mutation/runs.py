"""Runs tests in a process of their own, with a mutant in the place of a module's source or without one."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from pathlib import Path

import pytest

from tests.mutation.in_place import NotInPlaceError, replace
from tests.mutation.mutants import Mutant
from tests.mutation.plugin import put

_POLL_S = 0.02
_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
BROKEN_IMPORT = 100
"""The exit code of a process in which a test file could not be imported, or a conftest.py."""


_ENDED = 101
"""That of one whose tests never ran."""

_NOT_IN_PLACE = 102
"""That of one in which a mutant could not take the place of functions."""


class Outcome(Enum):
    """What came of a run."""

    NOT_RUN = "not run"
    PASSED = "passed"
    FAILED = "found"
    BROKEN = "broke an import"
    TIMED_OUT = "timed out"


class NoResultError(Exception):
    """The tests gave no result: they do not exist, or pytest failed itself."""


class _Collection:
    """A plugin of pytest that notes whether a test file could not be imported."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note it."""
        self.failed = self.failed or report.failed


def run(tests: Sequence[str], *, seconds: float, mutant: Mutant | None = None, imported: bool = False) -> Outcome:
    """Run tests until the first one fails, for so many seconds at most.

    Where the package is ``imported``, the mutant takes the place of functions, else of the module.

    Raises
    ------
    NoResultError
        When pytest neither passed nor failed a test.
    """
    code = _in_a_child(lambda: _pytest(tests, mutant, imported=imported), seconds)
    if code is None:
        return Outcome.TIMED_OUT
    known = {0: Outcome.PASSED, 1: Outcome.FAILED, BROKEN_IMPORT: Outcome.BROKEN, _NOT_IN_PLACE: Outcome.NOT_RUN}
    if code not in known:
        raise NoResultError(f"pytest ended with {code} for {', '.join(tests[:3])}")
    return known[code]


def _pytest(tests: Sequence[str], mutant: Mutant | None, *, imported: bool) -> int:
    if mutant is not None and imported:
        try:
            replace(mutant)
        except NotInPlaceError:
            return _NOT_IN_PLACE
    elif mutant is not None:
        put(mutant.file, mutant.source)
    collection = _Collection()
    # What tests print, and where they fail, is of no interest.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = int(pytest.main([*_OPTIONS, *tests], plugins=[collection]))
    usage = code == pytest.ExitCode.USAGE_ERROR and mutant is not None  # a conftest.py that imports the mutant
    return BROKEN_IMPORT if collection.failed or usage else code


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
