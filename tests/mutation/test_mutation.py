"""Mutants change code alone, one place at a time, and a process with the plugin runs the mutant."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mutation.mutants import count_of, mutant_of
from tests.mutation.plugin import FILE, SOURCE

CODE = '''
def double(value: int = 1) -> int:
    """Return it twice, at most 10."""
    if value > 5 and value:
        raise ValueError(f"{value + 1} is too much")
    return value * 2
'''
CEILING = Path("rules_layer/trainguard/actions/ceiling.py")


def test_given_a_function_when_mutated_then_each_change_is_one_and_no_text_or_error_changes(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    found = [mutant_of(file, number) for number in range(count_of(file))]
    assert sorted(each.what for each in found) == [
        "and for or: value > 5 and value",
        "another comparison: value > 5",
        "another number: 1",
        "another number: 2",
        "another number: 5",
        "another operator: value * 2",
        "nothing returned: return value * 2",
        "the other branch: if value > 5 and value:",
    ]
    assert all("is too much" in each.source and "at most 10" in each.source for each in found)
    assert len({each.source for each in found}) == len(found)


def test_given_a_mutant_when_a_process_has_the_plugin_then_it_imports_the_mutant(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("HOUR_S = 1.0\n")
    run = "import tests.mutation.plugin; from trainguard.actions import ceiling; print(ceiling.HOUR_S)"
    environment = {**os.environ, FILE: str(CEILING), SOURCE: str(source)}
    done = subprocess.run([sys.executable, "-c", run], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"
