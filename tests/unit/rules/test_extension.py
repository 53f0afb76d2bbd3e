"""What a deployment's own rules have to be, and what happens to those that are not."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec
import pytest

from tests.support.own_rules import OwnJob, OwnJoin, OwnParameters, OwnRule, OwnState, OwnSteps
from trainguard.core.errors import RuleLoadError
from trainguard.rules import parameters
from trainguard.rules.extension import MARKER, MAX_RULES, Extension, check_rule, installed, rule_named, rules_of
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.protocol import (
    RuleParameters,
    check_clear_after,
    check_window,
    is_custom,
    packed_state,
    spec_of_rule,
)
from trainguard.rules.registry import ALL_RULES, EXTENSION, OWN_NAMES, RESERVED_NAMES, RULE_NAMES
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, SYSTEM, ParameterHelp, RuleSpec

SOURCE = """
from tests.support.own_rules import OwnRule, OwnSteps

RULES = (OwnRule(), OwnSteps())
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that modules can be imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith((MARKER, "their_rules")):
            del sys.modules[name]


def layer(site: Path, source: str) -> None:
    """Put a package and its marker there, as the layer has them."""
    package = site / "their_rules"
    package.mkdir()
    (package / "__init__.py").write_text(source, encoding="utf-8")
    (site / f"{MARKER}.py").write_text("PACKAGE = 'their_rules'\nRULES = ('OwnRule', 'OwnSteps')\n", encoding="utf-8")
    importlib.invalidate_caches()


def package(*rules: Any) -> ModuleType:
    module = ModuleType("their_rules")
    vars(module)["RULES"] = rules
    return module


def variant(base: type, **fields: Any) -> Any:
    return type("Variant", (base,), fields)()


class NoDefault(RuleParameters, frozen=True, kw_only=True):
    needed: int


class UpperCase(RuleParameters, frozen=True, kw_only=True):
    Threshold: int = 3


class Nested(RuleParameters, frozen=True, kw_only=True):
    limits: list[int] = msgspec.field(default_factory=list)


class OneOfMany(RuleParameters, frozen=True, kw_only=True):
    limit: int | list[int] = 3


class Chosen(RuleParameters, frozen=True, kw_only=True):
    mode: str | None = None
    level: Literal["low", "high"] = "low"


class InSeconds(OwnRule):
    """A rule that looks back on more than there may be, at the interval of most jobs."""

    def window_points(self, parameters: OwnParameters, interval_s: float) -> int:
        del parameters
        return round(1_300.0 / interval_s)


class NeedsMore(msgspec.Struct):
    minutes: int


class TooLarge(msgspec.Struct):
    notes: str = "x" * 5_000


# It is stored, and cannot be read back.
WRONG_DEFAULT = msgspec.defstruct("WrongDefault", [("minutes", int, "many")])


class Unstorable(msgspec.Struct):
    held: Any = msgspec.field(default_factory=object)


def test_built_in_rules_alone_are_loaded_without_a_package() -> None:
    assert Extension() == EXTENSION == installed(RESERVED_NAMES)
    assert RULE_NAMES == OWN_NAMES
    assert not any(is_custom(rule) for rule in ALL_RULES)
    assert is_custom(OwnRule())


def test_rules_of_a_layer_package_are_loaded_by_kind(site: Path) -> None:
    layer(site, SOURCE)
    found = installed(RESERVED_NAMES)
    assert [rule.name for rule in found.system] == ["OwnRule"]
    assert [rule.name for rule in found.framework] == ["OwnSteps"]
    assert (found.job, found.faults) == ((), {})


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import a_library_that_is_not_there", "a_library_that_is_not_there"),
        ("raise SystemExit(3)", "SystemExit in their_rules/__init__.py:1: 3"),
        ("1 / 0", "ZeroDivisionError"),
        ("RULES = (", "SyntaxError"),
        ("RULES = ()", "a tuple of 1 to 8 rules"),
    ],
)
def test_rules_of_a_broken_package_say_so_and_others_run(
    site: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    layer(site, source)
    found = installed(RESERVED_NAMES)
    assert set(found.faults) == {"OwnRule", "OwnSteps"}
    assert told in str(found.faults["OwnRule"])
    monkeypatch.setattr(parameters, "EXTENSION", found)
    resolved, faults = parameters.resolve_parameters({"OwnRule_threshold": "7", "ownsteps_threshold": "8"})
    assert set(faults) == {"OwnRule", "OwnSteps"}
    assert set(resolved) >= set(OWN_NAMES)
    assert told in str(faults["OwnSteps"].given_by("somebody"))


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([OwnRule()], "expected a tuple"),
        ((), "expected a tuple"),
        (tuple(OwnRule() for _ in range(MAX_RULES + 1)), "expected a tuple"),
        ((OwnRule(), OwnRule()), "no other rule"),
        ((OwnRule(), variant(OwnSteps, name="ownrule")), "no other rule"),
        ((variant(OwnRule, name="lowgpuutilization"),), "TrainGuard's own LowGPUUtilization"),
        ((variant(OwnRule, name="ProfilerReport"),), "TrainGuard's own ProfilerReport"),
        ((OwnRule,), "expected an instance"),
    ],
)
def test_package_with_conflicting_rules_is_refused(rules: Any, told: str) -> None:
    module = ModuleType("their_rules")
    vars(module)["RULES"] = rules
    with pytest.raises(RuleLoadError, match=told):
        rules_of(module, RESERVED_NAMES)


def test_maximum_number_of_rules_is_accepted() -> None:
    rules = [variant(OwnRule, name=f"Own{number}") for number in range(MAX_RULES)]
    assert rules_of(package(*rules), RESERVED_NAMES) == tuple(rules)
    assert rules_of(package(rules[0]), RESERVED_NAMES) == (rules[0],)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (object(), "type is 'object'"),
        (variant(OwnRule, name="Two Words"), "name is 'Two Words'"),
        (variant(OwnRule, name="With_underscore"), "name is 'With_underscore'"),
        (variant(OwnRule, name="x" * 64), "at most 40"),
        (variant(OwnRule, name=7), "name is 7"),
        (variant(OwnRule, parameters_type=OwnState), "a subclass of RuleParameters"),
        (variant(OwnRule, parameters_type=7), "a subclass of RuleParameters"),
        (variant(OwnRule, parameters_type=OneOfMany), "parameter limit"),
        (variant(OwnRule, parameters_type=NoDefault), "a default for each parameter"),
        (variant(OwnRule, parameters_type=UpperCase), "in lower case"),
        (variant(OwnRule, parameters_type=Nested), "parameter limits"),
        (variant(OwnRule, state_type=dict), "a subclass of msgspec.Struct"),
        (variant(OwnRule, state_type=7), "a subclass of msgspec.Struct"),
        (variant(OwnRule, state_type=NeedsMore), "a default for each field"),
        (variant(OwnRule, state_type=WRONG_DEFAULT), "Expected `int`.*which decodes"),
        (variant(OwnRule, state_type=TooLarge), "at most 4,096"),
        (variant(OwnRule, state_type=Unstorable), "what msgspec can encode"),
        (variant(OwnJoin, state_type=None), "a subclass of msgspec.Struct"),
        (OwnRule(clear=lambda: "soon"), "clear_after_s is 'soon'"),
        (OwnRule(clear=lambda: float("inf")), "clear_after_s is inf"),
        (OwnRule(window=lambda: 2_501), "window_points is 2501"),
        (OwnRule(window=lambda: 1 // 0), "ZeroDivisionError"),
        (InSeconds(), "window_points is 2600"),
        (type("Nameless", (OwnRule,), {"name": None})(), "Nameless: name is None"),
        (OwnRule, "OwnRule: type is 'ABCMeta'"),
    ],
)
def test_protocol_violation_names_what_and_why(rule: Any, told: str) -> None:
    with pytest.raises(RuleLoadError, match=told):
        check_rule(rule)


@pytest.mark.parametrize(
    ("check", "value", "told"),
    [
        (check_clear_after, 0, 0.0),
        (check_clear_after, 0.5, 0.5),
        (check_clear_after, -0.5, None),
        (check_clear_after, True, None),
        (check_clear_after, float("nan"), None),
        (check_window, 0, 0),
        (check_window, 1, 1),
        (check_window, 2_500, 2_500),
        (check_window, -1, None),
        (check_window, 2_501, None),
        (check_window, True, None),
        (check_window, 2.0, None),
    ],
)
def test_times_and_points_of_a_rule_are_bounded_numbers(
    check: Callable[[str, Any], float], value: Any, told: float | None
) -> None:
    if told is None:
        with pytest.raises(RuleLoadError, match="expected a"):
            check("OwnRule", value)
        return
    assert check("OwnRule", value) == told
    assert isinstance(check("OwnRule", value), type(told))


@pytest.mark.parametrize(("length", "taken"), [(4_093, True), (4_094, False)])
def test_only_a_state_above_the_cap_is_refused(length: int, taken: bool) -> None:
    if taken:
        assert packed_state("OwnRule", "x" * length) == msgspec.msgpack.encode("x" * length)
        return
    with pytest.raises(RuleLoadError, match="4,097 bytes"):
        packed_state("OwnRule", "x" * length)


@pytest.mark.parametrize(
    "rule",
    [
        OwnRule(),
        OwnSteps(),
        OwnJoin(),
        OwnJob(),
        OwnRule(window=lambda: 2_500),
        variant(OwnRule, parameters_type=Chosen),
        variant(OwnRule, name="x" * 40),
    ],
)
def test_given_a_rule_of_each_kind_when_checked_then_it_is_taken(rule: Any) -> None:
    check_rule(rule)


SPEC = RuleSpec(
    name="OwnRule",
    looks_at="each fan",
    fires_when="it stands still",
    condition="a fan stays below {threshold} %",
    parameters={"threshold": ParameterHelp("%", "a fan below it stands")},
    explains=(LOW_GPUS,),
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "Another"}, "a RuleSpec of the name 'OwnRule'"),
        ({"section": "os:system"}, "spec.section"),
        ({"parameters": {"speed": ParameterHelp("%", "its speed")}}, "parameters of the rule"),
        ({"condition": "below {speed} %"}, "spec.condition"),
        ({"condition": "below { %"}, "spec.condition"),
    ],
)
def test_rule_with_an_invalid_spec_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RuleLoadError, match=told):
        check_rule(variant(OwnRule, name="OwnRule", spec=replace(SPEC, **changes)))
    with pytest.raises(RuleLoadError, match="a RuleSpec"):
        check_rule(variant(OwnRule, spec="OwnRule"))


def test_own_spec_of_a_rule_is_used_and_gives_its_name() -> None:
    rule = type("Fans", (OwnRule,), {"spec": SPEC})()
    check_rule(rule)
    assert rule.name == "OwnRule"
    assert spec_of_rule(rule) is SPEC
    check_rule(type("SpokenOfBySelf", (type(rule),), {"name": "Blowers"})())
    with pytest.raises(RuleLoadError, match=r"spec\.section"):
        check_rule(type("Fans", (type("Base", (OwnRule,), {"spec": replace(SPEC, section="os:system")}),), {})())


def test_missing_spec_is_made_from_kind_and_first_sentence() -> None:
    said = {type(rule): spec_of_rule(rule) for rule in (OwnRule(), OwnSteps(), OwnJoin(), OwnJob())}
    assert [spec.looks_at for spec in said.values()] == [
        "each node",
        "each node's framework events",
        "each node's framework events",
        "the job",
    ]
    assert [spec.inputs for spec in said.values()] == [SYSTEM, FRAMEWORK, FRAMEWORK, frozenset()]
    assert said[OwnJob].condition == "its own condition holds (A rule over the job that fails)"
    fires = type("Fans", (OwnJob,), {"__doc__": "Fires when {a} fan stops. Then it is hot."})()
    assert (spec_of_rule(fires).fires_when, spec_of_rule(fires).condition) == ("{a} fan stops", "{{a}} fan stops")


def test_rule_derived_from_a_built_in_one_has_a_spec_of_its_name() -> None:
    stricter = type("Stricter", (LowGPUUtilization,), {"name": "Stricter", "__doc__": "Fires when a GPU is low."})()
    check_rule(stricter)
    assert (spec_of_rule(stricter).name, spec_of_rule(stricter).fires_when) == ("Stricter", "a GPU is low")


@pytest.mark.parametrize("place", ["tests.support.own_rules:OwnRule", "tests.unit.rules.test_extension:MADE"])
def test_rule_may_be_named_as_class_or_instance(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    module = ModuleType("tests.unit.rules.test_extension")
    vars(module)["MADE"] = OwnRule()
    monkeypatch.setitem(sys.modules, "tests.unit.rules.test_extension", module)
    assert rule_named(place).name == "OwnRule"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("", "expected module:Class"),
        ("OwnRule", "expected module:Class"),
        (":OwnRule", "expected module:Class"),
        ("msgspec:", "expected module:Class"),
        ("nowhere:Rule", "expected a class that can be imported"),
        ("tests.support.own_rules:Nothing", "expected a class that can be imported"),
        ("msgspec:Struct", "expected an instance of SystemRule"),
    ],
)
def test_missing_rule_at_a_path_says_what_would_be_valid(place: str, told: str) -> None:
    with pytest.raises(RuleLoadError, match=told):
        rule_named(place)


def test_resolving_one_rule_ignores_the_settings_of_others() -> None:
    resolved = parameters.parameters_of("OwnRule", OwnParameters, {"ownrule_threshold": "7", "Other_threshold": "x"})
    assert resolved == OwnParameters(threshold=7.0)
    with pytest.raises(Exception, match="a number from 0 to 100"):
        parameters.parameters_of("OwnRule", OwnParameters, {"OwnRule_threshold": "700"})
