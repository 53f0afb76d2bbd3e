"""What rules say about themselves, against what they do."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.support.reports_of_jobs import judge, recorded
from tests.unit.report_html.rich_job import PARAMETERS, write
from trainguard.core.records import JobRecord
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.render.details import Details
from trainguard.report.evaluated_job import EvaluatedJob, evaluate_job
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES, SPECS, spec_of
from trainguard.rules.spec import LOW_GPUS


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Sequence[EvaluatedJob]:
    """Two jobs on which every rule has something to say."""
    settings = {f"{rule}_{name}": str(value) for rule, given in PARAMETERS.items() for name, value in given.items()}
    rich = JobRecord("job", "arn:unknown", "profiles", "", instance_type="ml.p3.8xlarge", rule_settings=settings)
    of_rich = judge(write(tmp_path_factory.mktemp("rich")), rich)
    of_steps = judge(recorded("slow_steps", tmp_path_factory.mktemp("steps")))
    found = [each.evaluation for each in (of_rich, of_steps)]
    return [evaluate_job(evaluation.job, evaluation.plan, evaluation.records) for evaluation in found]


def verdicts_of(jobs: Sequence[EvaluatedJob], rule: str) -> list[Verdict]:
    return [each for job in jobs for each in (*job.by_node.get(rule, {}).values(), job.verdict_of(rule)) if each]


def parts(details: Any) -> list[Details]:
    """Return details of one node, or those of several by their names."""
    found = [details] if isinstance(details, Details) else list(details.values())
    return [each for each in found if isinstance(each, Details)]


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_details_have_the_type_of_the_spec_and_read_back(rule: str, judged: Sequence[EvaluatedJob]) -> None:
    shape = SPECS[rule].details
    assert shape is not None
    found = [part for verdict in verdicts_of(judged, rule) for part in parts(verdict.result.details)]
    assert found, "some job has details of it"
    assert all(type(part) is shape for part in found)
    for part in found:
        assert shape.read(part.plain()).plain() == part.plain()


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_spec_names_what_a_rule_measures(rule: str, judged: Sequence[EvaluatedJob]) -> None:
    spec = SPECS[rule]
    for verdict in verdicts_of(judged, rule):
        measure = spec.measure_of(verdict.result)
        assert (measure is None) is (verdict.result.measured is None)
        assert measure is None or measure in spec.measures


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
