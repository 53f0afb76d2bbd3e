"""Names of tensors that a search with a rule's expression would take for ever in: nothing is searched, and it shows."""

import re
import time

import numpy as np
import pytest

from tests.support.steps import Run, fired, observed
from trainguard.formats.tensors.name_patterns import NamePatternError
from trainguard.report.training.layers import activations_of
from trainguard.rules.training.selection import matching


def hostile(count: int, length: int) -> Run:
    run = Run()
    values = np.array([np.nan])
    run.add(0, {f"{'relu' * (length // 4)}{number}": values for number in range(count)})
    return run


PATTERNS = [
    ".*relu.*",
    ".*",
    ".*.*relu",
    ".*?relu",
    r"relu\.*",
    "relu.*|.*conv",
    "^.*relu.*$",
    "[.*].*",
    r".*\..*",
    "(.*)",
]
NAMES = ("relu", "a/relu/b", "conv", "a\nrelu\nb", "a.b", "*", "", "reluu", "relu...")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_without_its_ends_matches_the_same_names(pattern: str) -> None:
    run = Run()
    run.add(0, dict.fromkeys(NAMES, np.zeros(1)))
    assert list(matching(run.steps[0], pattern)) == sorted(name for name in NAMES if re.search(pattern, name))


@pytest.mark.parametrize("run", [hostile(1, 200_000), hostile(3_000, 1_500)], ids=["one name", "many names"])
def test_names_that_take_too_long_are_noted_and_no_all_clear(run: Run) -> None:
    begun = time.process_time()
    with pytest.raises(NamePatternError, match="too long"):
        observed("ExplodingTensor", run, collection_names=None, tensor_regex=".*rel.*x")
    assert activations_of(run.steps[0]) == frozenset()
    assert time.process_time() - begun < 2.0


def test_all_names_of_a_large_model_are_searched() -> None:
    run = hostile(3_000, 100)
    assert fired("ExplodingTensor", run, collection_names=None, tensor_regex=".*relu.*") == [0]
