"""The checks of more than one run, and how far the kit stays from what is deployed."""

import ast
import doctest
import importlib
from pathlib import Path
from types import ModuleType

import example_rules
import pytest

import trainguard
from tests.unit.testing.rules import HotCpu, LargestBatch
from trainguard import testing
from trainguard.errors import RuleLoadError
from trainguard.testing import SyntheticJob, assert_boundary, assert_delivery_makes_no_difference, check_package

PACKAGE = Path(trainguard.__file__).parent
ROOT = Path(__file__).parents[3]


def at(value: float) -> SyntheticJob:
    return SyntheticJob(minutes=5).with_series("cpu", value)


def test_given_a_threshold_when_checked_then_it_is_quiet_on_it_and_fires_beyond() -> None:
    assert_boundary(HotCpu(), at, quiet_at=80.0, fires_at=80.1)
    assert_boundary(HotCpu(), at, quiet_at=20.0, fires_at=20.1, parameters={"threshold": 20})


@pytest.mark.parametrize(
    ("quiet_at", "fires_at", "told"), [(80.1, 81.0, "at 80.1: HotCpu fired"), (79.0, 80.0, "at 80: HotCpu did not")]
)
def test_given_another_threshold_when_checked_then_the_check_fails_at_the_value(
    quiet_at: float, fires_at: float, told: str
) -> None:
    with pytest.raises(AssertionError, match=told):
        assert_boundary(HotCpu(), at, quiet_at=quiet_at, fires_at=fires_at)


def test_given_a_pure_rule_when_messages_are_late_and_come_twice_then_it_says_the_same() -> None:
    job = SyntheticJob(nodes=2, minutes=12).with_series("cpu", 95.0, node="algo-1", start_s=100.0, end_s=300.0)
    assert_delivery_makes_no_difference(HotCpu(), job).assert_fired(node="algo-1", times=1)


def test_given_a_rule_that_depends_on_delivery_when_checked_then_both_answers_are_shown() -> None:
    with pytest.raises(AssertionError, match=r"LargestBatch says .* when messages are late \(seed \d\), and else "):
        assert_delivery_makes_no_difference(LargestBatch(), SyntheticJob(minutes=12), {"threshold": 50})


def test_given_a_package_when_checked_then_its_rules_are_named_or_what_is_wrong_is() -> None:
    assert check_package(example_rules) == ("HostMemory",)
    empty = ModuleType("empty")
    with pytest.raises(RuleLoadError, match="a tuple of 1 to 8 rules"):
        check_package(empty)


def test_given_the_kits_own_example_when_run_then_it_says_what_is_written() -> None:
    result = doctest.testmod(testing)
    assert (result.attempted, result.failed) == (5, 0)


def imports(file: Path) -> set[str]:
    """Return the names of the modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_given_what_is_deployed_when_its_imports_are_read_then_none_is_of_the_kit() -> None:
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "lambdas").rglob("*.py"), *(ROOT / "infra").rglob("*.py")]
    outside = [file for file in sources if PACKAGE / "testing" not in file.parents]
    assert len(outside) > 300
    assert not [file for file in outside if any(each.startswith("trainguard.testing") for each in imports(file))]


def test_given_the_kit_when_its_imports_are_read_then_it_needs_no_test_runner() -> None:
    kit = list((PACKAGE / "testing").glob("*.py"))
    assert len(kit) > 5
    assert not [file for file in kit if any(each.partition(".")[0] in {"pytest", "tests"} for each in imports(file))]


def test_given_all_that_the_kit_offers_when_looked_for_then_it_is_there() -> None:
    module = importlib.import_module("trainguard.testing")
    assert all(hasattr(module, name) for name in module.__all__)
    assert sorted(module.__all__) == module.__all__
