"""What rules state about themselves, against their verdicts on two jobs."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.reports_of_jobs import judge, recorded
from tests.unit.report_html.rich_job import PARAMETERS, write
from trainguard.core.records import JobRecord
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.render.details import Details
from trainguard.report.evaluated_job import EvaluatedJob, evaluate_job
from trainguard.rules.registry import RULE_NAMES, SPECS


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Sequence[EvaluatedJob]:
    """Two jobs on which every rule has something to say."""
    settings = {f"{rule}_{name}": str(value) for rule, given in PARAMETERS.items() for name, value in given.items()}
    rich = JobRecord("job", "arn:unknown", "profiles", "", instance_type="ml.p3.8xlarge", rule_settings=settings)
    of_rich = judge(write(tmp_path_factory.mktemp("rich")), rich)
    of_steps = judge(recorded("slow_steps", tmp_path_factory.mktemp("steps")))
    found = [each.evaluation for each in (of_rich, of_steps)]
    return [evaluate_job(evaluation.job, evaluation.plan, evaluation.records) for evaluation in found]


def verdicts_of(jobs: Sequence[EvaluatedJob], rule: str) -> list[RuleOutcome]:
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
