"""A process that has imported the package and the tests once: a mutant of a function is run there without an import."""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.runs import Ended, NoResultError, Outcome, run


class Warm:
    """Runs tests as :func:`tests.mutation.runs.run` does, in a child that forked before this process imported much."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._connection, theirs = Pipe()
        child = os.fork()
        if child == 0:
            self._connection.close()
            _serve(theirs, tests)
            os._exit(0)
        theirs.close()

    def run(self, tests: Sequence[str], *, seconds: float, mutant: Mutant | None = None) -> Ended:
        """Run tests, with a mutant in the place of functions; ``NOT_RUN`` when it is of none, or gives no result."""
        self._connection.send((list(tests), seconds, mutant))
        ended: Ended = self._connection.recv()
        return ended


def _serve(connection: Connection, tests: Sequence[str]) -> None:
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *tests])
    while True:
        try:
            asked, seconds, mutant = connection.recv()
        except EOFError:  # nobody asks any more
            sys.stdout.flush()
            return
        try:
            connection.send(run(asked, seconds=seconds, mutant=mutant, imported=True))
        except NoResultError:
            connection.send(Ended(Outcome.NOT_RUN))
