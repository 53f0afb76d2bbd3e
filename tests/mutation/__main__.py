"""``python -m tests.mutation [--seconds 3600] [--seed 0] [--map]``: the share of small faults that a test finds.

``--map`` runs tests once, all or those given, and notes which line each reaches, in build/mutants. Without it, mutants
are drawn by the seed, none twice, until the time is over, of all rooms or of those that begin with ``--room``:
``engine``, ``rules/training``, ``rules/hung_job``. Each runs the tests that may find it, which pass without it, for
``--most`` CPU seconds at most.
The score leaves out survivors that ``explained.toml`` gives a reason for; rc 1 when it is below ``--least`` percent.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutation.cover import Cover, Reached
from tests.mutation.explained import explained
from tests.mutation.mutants import Mutant, count_of, mutant_of
from tests.mutation.reach import Reach
from tests.mutation.runs import Outcome
from tests.mutation.trial import Trial

PACKAGE = Path("rules_layer/trainguard")
ROOMS = tuple(str(PACKAGE / room) for room in ("engine/", "rules/", "stack/actions/", "state/", "aws/dynamodb/"))
TESTS = (
    "tests/unit",
    "tests/functional",
    "tests/property",
    "tests/families",
    "tests/faults",
    "tests/answers",
    "tests/training",
)
# What the process imports before it forks: the package itself is imported with the mutant in it.
SHARED = ("numpy", "hypothesis", "boto3", "moto", "moto.dynamodb.models", "msgspec", "jinja2", "aws_lambda_powertools")

# So much CPU time of tests, without a mutant, is spent on one.
MOST_TESTS_S = 15.0

# Mutants after which the score so far is shown.
SHOWN_EACH = 50

LEAST_PERCENT = 90.0


class Score:
    """What became of the mutants that were drawn."""

    def __init__(self, reasons: Collection[str]) -> None:
        self._reasons = reasons
        self._counts: Counter[str] = Counter()

    def take(self, mutant: Mutant, outcome: Outcome | None) -> str | None:
        """Count a mutant; None stands for one that no test reaches. Return what a person needs to see of it."""
        if outcome in {Outcome.FAILED, Outcome.BROKEN}:
            self._counts[outcome.value] += 1
            return None
        what = "survived" if outcome is Outcome.PASSED else "timed out" if outcome else "reached by no test"
        if outcome is not Outcome.TIMED_OUT and mutant.name in self._reasons:
            what = "explained"
        self._counts[what] += 1
        return f"{what}: {mutant.file}:{mutant.lines.start}: {mutant.name}"

    @property
    def percent(self) -> float:
        """Return the share that tests found, of those that are not explained; a time-out is a finding."""
        found = sum(self._counts[each.value] for each in (Outcome.FAILED, Outcome.BROKEN, Outcome.TIMED_OUT))
        return 100.0 * found / max(1, self._counts.total() - self._counts["explained"])

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self._counts.most_common())
        return f"{self._counts.total()} mutants: {counts}; score {self.percent:.1f} %"


def files() -> list[Path]:
    """Return the modules that are mutated."""
    found = sorted(file for file in PACKAGE.rglob("*.py") if str(file).startswith(ROOMS) and file.name != "__init__.py")
    return [file for file in found if count_of(file)]


def drawn(seed: int, chosen: Sequence[Path]) -> Iterator[Mutant]:
    """Yield all mutants of some modules once, in an order that the seed gives."""
    places = [(file, number) for file in chosen for number in range(count_of(file))]
    random.Random(seed).shuffle(places)
    yield from (mutant_of(file, number) for file, number in places)


def _map(tests: list[str]) -> int:
    options = ["-q", "-p", "no:cacheprovider", "-m", "not thorough and not perf and not verdicts and not localstack"]
    return int(pytest.main([*options, *tests], plugins=[Cover(files())]))


def _measure(given: argparse.Namespace) -> int:
    for name in SHARED:
        import_module(name)
    known = Reached.read()
    chosen = [file for file in files() if str(file.relative_to(PACKAGE)).startswith(tuple(given.room or [""]))]
    reach, score, trial = Reach(known, files()), Score(explained()), Trial(known.seconds, TESTS)
    end = time.monotonic() + given.seconds
    for number, mutant in enumerate(drawn(given.seed, chosen), 1):
        if time.monotonic() > end:
            break
        _say(score.take(mutant, trial.of(mutant, reach.tests_of(mutant, given.most))))
        _say(None if number % SHOWN_EACH else str(score))
    _say(f"seed {given.seed}, {sum(map(count_of, chosen)):,} mutants in all. {score}")
    return int(score.percent < given.least)


def _say(line: str | None) -> None:
    if line is not None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=LEAST_PERCENT)
    parser.add_argument("--most", type=float, default=MOST_TESTS_S)
    parser.add_argument("--room", action="append", default=[])
    parser.add_argument("--map", action="store_true")
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    return _map(given.tests) if given.map else _measure(given)


if __name__ == "__main__":
    sys.exit(_main())
