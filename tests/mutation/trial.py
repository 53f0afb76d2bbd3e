"""Runs one mutant after the other: where everything is imported already, or in a fresh process."""

from collections.abc import Callable, Mapping, Sequence

from tests.mutation.mutants import Mutant
from tests.mutation.runs import Ended, Outcome, run
from tests.mutation.warm import Warm

PATIENCE_S = 20.0
# Tests time out after so many seconds, and so many times what they took when they were mapped.
SLOWER = 10.0

_FINDINGS = {Outcome.FAILED, Outcome.BROKEN, Outcome.TIMED_OUT}


class Trial:
    """A mutant of a function runs where everything is imported; one of what runs at import, in a fresh process.

    What the function computed at import is not computed again there, so that a mutant may survive that would be found
    in a fresh process: the score is at least what is counted. A finding is one of a test that passes without it.
    """

    def __init__(self, seconds: Mapping[str, float], tests: Sequence[str]) -> None:
        self._seconds = seconds
        self._warm = _Way(Warm(tests).run, self._patience)
        self._fresh = _Way(run, self._patience)

    def of(self, mutant: Mutant, tests: Sequence[str]) -> Outcome | None:
        """Return what became of it; None when no test that passes without it reaches it."""
        outcome = None if mutant.imported else self._warm.of(mutant, tests)
        return self._fresh.of(mutant, tests) if mutant.imported or outcome is Outcome.NOT_RUN else outcome

    def _patience(self, tests: Sequence[str]) -> float:
        return PATIENCE_S + SLOWER * sum(self._seconds[test] for test in tests)


class _Way:
    """One way to run tests, and which of them pass so without any mutant, each tried once."""

    def __init__(self, way: Callable[..., Ended], patience: Callable[[Sequence[str]], float]) -> None:
        self._way = way
        self._patience = patience
        self._passed: dict[str, bool] = {}

    def of(self, mutant: Mutant, tests: Sequence[str]) -> Outcome | None:
        """Return what became of a mutant, by tests that pass without it."""
        while tests := [test for test in tests if self._passed.get(test, True)]:
            ended = self._way(tests, seconds=self._patience(tests), mutant=mutant)
            if ended.outcome not in _FINDINGS or self._pass([ended.test] if ended.test else tests):
                return ended.outcome
        return None

    def _pass(self, tests: Sequence[str]) -> bool:
        """Return whether tests pass without a mutant; those that do not are left out from now on."""
        fresh = [test for test in tests if test not in self._passed]
        if fresh and not self._passes(fresh):
            self._passed.update({test: self._passes([test]) for test in fresh})
        self._passed.update({test: True for test in fresh if test not in self._passed})
        return all(self._passed[test] for test in tests)

    def _passes(self, tests: Sequence[str]) -> bool:
        return self._way(tests, seconds=self._patience(tests)).outcome is Outcome.PASSED
