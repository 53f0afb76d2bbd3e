"""``python -m tests.mutation [--seconds 900] [--seed 0] [--map]``: the share of small faults that a test finds.

``--map`` runs the tests once and notes which line each reaches, in build/mutants. Without it, mutants are drawn by the
seed until the time is over; each runs the tests that reach its line, the fastest first.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.cover import MAP, Cover
from tests.mutation.mutants import Mutant, count_of, mutant_of
from tests.mutation.plugin import FILE, SOURCE

PACKAGE = Path("rules_layer/trainguard")
ROOMS = tuple(
    str(PACKAGE / room) for room in ("engine/", "families/", "rules/", "actions/", "state/", "adapters/dynamodb_")
)
TESTS = ("tests/unit", "tests/functional", "tests/property", "tests/families", "tests/faults")
MOST_TESTS_S = 60.0
"""So much time of tests, without a mutant, is spent on one."""

TIMEOUT_S = 240.0


def _files() -> list[Path]:
    found = sorted(file for file in PACKAGE.rglob("*.py") if str(file).startswith(ROOMS) and file.name != "__init__.py")
    return [file for file in found if count_of(file)]


def _map(tests: list[str]) -> int:
    options = ["-q", "-p", "no:cacheprovider", "-m", "not thorough and not perf and not verdicts and not localstack"]
    return int(pytest.main([*options, *tests], plugins=[Cover(_files())]))


def _tests_of(mutant: Mutant, known: dict[str, Any]) -> list[str]:
    """Return the tests that reach a mutant's line, the fastest first, as many as there is time for."""
    reached = known["lines"].get(f"{mutant.file.resolve()}:{mutant.line}", [])
    chosen, spent = [], 0.0
    for test in sorted(set(reached) & known["tests"].keys(), key=known["tests"].__getitem__):
        spent += known["tests"][test]
        if spent > MOST_TESTS_S:
            break
        chosen.append(test)
    return chosen


def _is_found(mutant: Mutant, tests: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source, listed = Path(folder) / "source.py", Path(folder) / "tests"
        source.write_text(mutant.source)
        listed.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin"]
        environment = {**os.environ, FILE: str(mutant.file), SOURCE: str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, f"@{listed}"], env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def _score(seconds: float, seed: int) -> int:
    known = json.loads(MAP.read_text())
    files = _files()
    rng = random.Random(seed)  # noqa: S311 - a sample
    weights = [count_of(file) for file in files]
    end, found, survivors, unreached = time.monotonic() + seconds, 0, list[Mutant](), 0
    while time.monotonic() < end:
        (file,) = rng.choices(files, weights)
        mutant = mutant_of(file, rng.randrange(count_of(file)))
        tests = _tests_of(mutant, known)
        unreached += not tests
        if tests and _is_found(mutant, tests):
            found += 1
            continue
        survivors.append(mutant)
        where = "" if tests else ", no test reaches it"
        sys.stdout.write(f"{mutant.file}:{mutant.line}: {mutant.what}{where}\n")
        sys.stdout.flush()
    total = found + len(survivors)
    share = 100.0 * found / max(total, 1)
    sys.stdout.write(
        f"{total} mutants of {sum(weights):,}, seed {seed}: {found} found, {share:.1f} %; "
        f"{len(survivors)} survived, {unreached} of them on lines that no test reaches\n"
    )
    return 0


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--map", action="store_true")
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    return _map(given.tests) if given.map else _score(given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(_main())
