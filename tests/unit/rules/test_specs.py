"""What rules say about themselves, against what they do."""

import msgspec
import pytest

from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import SPECS, spec_of
from trainguard.rules.spec import LOW_GPUS


@pytest.mark.parametrize("rule", SPECS)
def test_spec_names_only_parameters_of_its_rule(rule: str) -> None:
    spec, names = SPECS[rule], PARAMETERS_TYPES[rule].__struct_fields__
    assert set(spec.parameters) | {"scan_interval_us"} == set(names)
    assert set(spec.shipped_defaults) <= set(names)
    assert {spec.managed_aliases.get(name, name) for name in spec.managed_parameters} <= set(names)
    assert set(spec.managed_aliases) <= set(spec.managed_parameters)
    msgspec.convert(dict(spec.shipped_defaults), PARAMETERS_TYPES[rule])


def test_informing_rules_have_no_findings_in_their_specs() -> None:
    assert all(rule == spec.name for rule, spec in SPECS.items())
    assert {spec.family for spec in SPECS.values()} == {"profiler"}
    for spec in SPECS.values():
        finds = spec.name != PROFILER_REPORT and not spec.informs_only
        assert (spec.text is not None) is finds or spec.informs_only
        assert bool(spec.inputs) is (spec.name != PROFILER_REPORT)
        assert not (spec.informs_only and (spec.measures or spec.explains or spec.symptom))


def test_spec_of_an_unknown_rule_has_its_own_condition() -> None:
    spec = spec_of("Unheard")
    assert (spec.name, spec.condition, spec.inputs, spec.section) == (
        "Unheard",
        "its own condition holds",
        frozenset(),
        None,
    )


def test_one_rule_alone_has_the_symptom_of_low_gpus() -> None:
    assert [rule for rule, spec in SPECS.items() if spec.symptom == LOW_GPUS] == ["LowGPUUtilization"]
