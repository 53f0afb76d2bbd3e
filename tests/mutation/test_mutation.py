"""Mutants change code alone, one place at a time; only a failing test finds one, and each has tests that reach it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import Score, drawn, files
from tests.mutation.cover import Reached
from tests.mutation.explained import explained
from tests.mutation.mutants import Mutant, count_of, mutant_of, names_of
from tests.mutation.reach import Reach
from tests.mutation.runs import Outcome

CODE = '''
LIMIT = 5


class Numbers:
    most: int = 10

    def double(self, value: int = 1) -> int:
        """Return it twice, at most 10."""
        if value > LIMIT and value:
            raise ValueError(f"{value + 1} is too much")
        return value * 2
'''
RUNS = """
import sys
from pathlib import Path
from tests.mutation.mutants import Mutant
from tests.mutation.runs import NoResultError, run

file, test = Path("rules_layer/trainguard/stack/actions/stop_rate_limit.py"), sys.argv[1]

def result(source=None, name=test):
    mutant = None if source is None else Mutant(file, "", range(1), True, frozenset(), "", source)
    try:
        return run([name], seconds=2.0 if source and "while" in source else 60.0, mutant=mutant).outcome.name
    except NoResultError:
        return "NONE"

print(result(), result(name=test + "::test_gone"), result("HOUR_S = 1.0"), result("1 / 0"),
      result("while True: pass"))
"""
WARM = """
import sys
from pathlib import Path
from tests.mutation.mutants import count_of, mutant_of
from tests.mutation.warm import Warm

file, test = Path("rules_layer/trainguard/stack/actions/stop_rate_limit.py"), sys.argv[1]
warm = Warm([test])
found = [mutant_of(file, number) for number in range(count_of(file))]
inside, outside = (next(each for each in found if each.imported is imported) for imported in (False, True))
for mutant in (None, inside, outside, None):
    print(warm.run([test], seconds=60.0, mutant=mutant).outcome.name)
print(warm.run([test + "::test_gone"], seconds=60.0).outcome.name)
"""
LIMITED = (
    "from trainguard.stack.actions.stop_rate_limit import take\n\n"
    "def test_limit(): assert len(take({}, 'a', 'job', now=0.0, limit=1)) == 1\n"
)
TEST = (
    "from trainguard.stack.actions import stop_rate_limit\n\ndef test_hour(): assert stop_rate_limit.HOUR_S == 3600.0\n"
)


def mutants_of(folder: Path) -> list[Mutant]:
    file = folder / "trainguard" / "code.py"
    file.parent.mkdir()
    file.write_text(CODE)
    return [mutant_of(file, number) for number in range(count_of(file))]


def test_mutants_are_single_changes_outside_texts_and_errors(tmp_path: Path) -> None:
    found = mutants_of(tmp_path)
    assert sorted((each.name.partition(" ")[2], each.lines.start, each.imported) for each in found) == [
        ("Numbers.double: and for or: value > LIMIT and value", 10, False),
        ("Numbers.double: another comparison: value > LIMIT", 10, False),
        ("Numbers.double: another number: 2", 12, False),
        ("Numbers.double: another operator: value * 2", 12, False),
        ("Numbers.double: nothing returned: return value * 2", 12, False),
        ("Numbers.double: the other branch: if value > LIMIT and value:", 10, False),
        ("Numbers: another number: 1", 8, True),
        ("Numbers: another number: 10", 6, True),
        ("module: another number: 5", 2, True),
    ]
    assert all("is too much" in each.source and "at most 10" in each.source for each in found)
    assert len({each.source for each in found}) == len(found)


def test_tests_of_import_time_code_reach_its_users(tmp_path: Path) -> None:
    constant, *_ = (each for each in mutants_of(tmp_path) if each.what == "another number: 5")
    seconds = {"a::limits": 2.0, "a::other": 1.0, "b::imports": 1.0, "c::nothing": 0.1}
    lines = {str(constant.file): {10: frozenset({"a::limits"}), 12: frozenset({"a::limits", "a::other"})}}
    for name, code in (("a", ""), ("b", "from trainguard.code import LIMIT"), ("c", "import trainguard")):
        (tmp_path / name).write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        reach = Reach(Reached(seconds, lines), [constant.file])
        assert reach.tests_of(constant, 10.0) == ["a::limits", "a::other", "b::imports"]
        assert reach.tests_of(constant, 2.5) == ["a::limits"]


def test_only_failure_broken_import_or_timeout_is_a_finding(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_hour.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path / "test_hour.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["PASSED", "NONE", "FAILED", "BROKEN", "TIMED_OUT"]


def test_mutant_is_found_by_its_tests_and_no_others_run(
    tmp_path: Path,
) -> None:
    file = tmp_path / "test_limit.py"
    file.write_text(LIMITED)
    done = subprocess.run([sys.executable, "-c", WARM, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PASSED", "FAILED", "NOT_RUN", "PASSED", "NOT_RUN"]


def test_survivors_with_a_reason_are_left_out_of_the_score(tmp_path: Path) -> None:
    first, second, third, *_ = mutants_of(tmp_path)
    score = Score({first.name})
    lines = [score.take(first, Outcome.PASSED), score.take(second, Outcome.FAILED), score.take(third, None)]
    assert [line and line.partition(":")[0] for line in lines] == ["explained", None, "reached by no test"]
    assert score.percent == 50.0


def test_drawn_mutants_are_unique_and_cover_each_package() -> None:
    file = Path("rules_layer/trainguard/stack/actions/stop_rate_limit.py")
    found = [mutant.source for mutant in drawn(3, [file])]
    assert len(set(found)) == len(found) == count_of(file)
    assert {"engine", "rules", "stack", "state", "aws"} <= {each.parts[2] for each in files()}


def test_explained_survivors_are_still_mutants_of_the_code() -> None:
    listed = explained()
    named = {name.partition(" ")[0] for name in listed}
    known = {name for file in files() if f"{file.parent.name}/{file.name}" in named for name in names_of(file)}
    assert listed.keys() <= known
