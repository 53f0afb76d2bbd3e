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
from trainguard.core.errors import RuleLoadError
from trainguard.testing import SyntheticJob, assert_boundary, assert_delivery_makes_no_difference, check_package

PACKAGE = Path(trainguard.__file__).parent
ROOT = Path(__file__).parents[3]


def at(value: float) -> SyntheticJob:
    return SyntheticJob(minutes=5).with_series("cpu", value)


def test_threshold_is_quiet_on_it_and_fires_beyond() -> None:
    assert_boundary(HotCpu(), at, quiet_at=80.0, fires_at=80.1)
    assert_boundary(HotCpu(), at, quiet_at=20.0, fires_at=20.1, parameters={"threshold": 20})


@pytest.mark.parametrize(
    ("quiet_at", "fires_at", "told"), [(80.1, 81.0, "at 80.1: HotCpu fired"), (79.0, 80.0, "at 80: HotCpu did not")]
)
def test_other_threshold_fails_the_check_at_the_value(quiet_at: float, fires_at: float, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        assert_boundary(HotCpu(), at, quiet_at=quiet_at, fires_at=fires_at)


def test_pure_rule_is_unaffected_by_late_and_repeated_messages() -> None:
    job = SyntheticJob(nodes=2, minutes=12).with_series("cpu", 95.0, node="algo-1", start_s=100.0, end_s=300.0)
    assert_delivery_makes_no_difference(HotCpu(), job).assert_fired(node="algo-1", times=1)


def test_rule_dependent_on_delivery_shows_both_answers() -> None:
    with pytest.raises(AssertionError, match=r"LargestBatch says .* when messages are late \(seed \d\), and else "):
        assert_delivery_makes_no_difference(LargestBatch(), SyntheticJob(minutes=12), {"threshold": 50})


def test_package_check_names_its_rules_or_its_fault() -> None:
    assert check_package(example_rules) == ("HostMemory",)
    empty = ModuleType("empty")
    with pytest.raises(RuleLoadError, match="a tuple of 1 to 8 rules"):
        check_package(empty)


def test_example_of_the_kit_prints_what_is_documented() -> None:
    result = doctest.testmod(testing)
    assert (result.attempted, result.failed) == (5, 0)


def imports(file: Path) -> set[str]:
    """Return the names of the modules that a file imports."""
    return imported(file.read_text("utf-8"))


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_deployed_code_does_not_import_the_kit() -> None:
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "lambdas").rglob("*.py"), *(ROOT / "infra").rglob("*.py")]
    outside = [file for file in sources if PACKAGE / "testing" not in file.parents]
    assert len(outside) > 300
    may = [source for source in (file.read_text("utf-8") for file in outside) if "testing" in source]
    assert not [source for source in may if any(each.startswith("trainguard.testing") for each in imported(source))]


def test_kit_imports_no_test_runner() -> None:
    kit = list((PACKAGE / "testing").glob("*.py"))
    assert len(kit) >= 5
    assert not [file for file in kit if any(each.partition(".")[0] in {"pytest", "tests"} for each in imports(file))]


def test_everything_the_kit_offers_exists() -> None:
    module = importlib.import_module("trainguard.testing")
    assert all(hasattr(module, name) for name in module.__all__)
    assert sorted(module.__all__) == module.__all__
