"""The published JSON schema: it is what the code makes, every report keeps it, and nothing else does."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support import report_samples, reports_of_jobs
from tests.support.reports_of_jobs import HOSTILE, RECORDED, judge
from trainguard.core.records import JobRecord, JobStatus
from trainguard.report.document import Report, encode_document, encode_schema, report_schema
from trainguard.report.job.build import BuiltReport, build_report, report_files

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas" / "report-2.json"
JOBS: dict[str, Callable[[Path], Path]] = {
    **{name: partial(reports_of_jobs.recorded, name) for name in RECORDED if name != "healthy"},
    "small and low": reports_of_jobs.small,
    "small": partial(reports_of_jobs.small, low=False),
    "without GPUs": reports_of_jobs.cpu_only,
    "torn": reports_of_jobs.torn,
    "hostile": reports_of_jobs.hostile,
}
SAMPLES = [
    report_samples.healthy_report,
    report_samples.bad_report,
    report_samples.state_report,
    report_samples.hostile_report,
]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(PUBLISHED.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def document(built: BuiltReport) -> Any:
    return json.loads(report_files(built, page=False)["report.json"])


def faults(validator: Draft202012Validator, found: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(found)]


def test_generated_schema_is_the_published_one() -> None:
    assert PUBLISHED.read_bytes() == encode_schema(report_schema()), (
        "renew it: python -m trainguard.report.document > docs/schemas/report-2.json"
    )


@pytest.mark.parametrize("name", JOBS)
def test_both_reports_of_a_job_follow_the_schema(validator: Draft202012Validator, name: str, tmp_path: Path) -> None:
    judged = judge(JOBS[name](tmp_path))
    for scope, built in (("state", judged.state()), ("full", judged.full())):
        found = document(built)
        assert faults(validator, found) == []
        assert found["scope"] == scope
        assert (found["timelines"] is None) == (scope == "state")


@pytest.mark.parametrize("make", SAMPLES)
def test_report_made_by_hand_follows_the_schema(validator: Draft202012Validator, make: Callable[[], Report]) -> None:
    assert faults(validator, json.loads(encode_document(make()))) == []


def test_hostile_names_are_data_in_json_and_text_on_the_page(validator: Draft202012Validator, tmp_path: Path) -> None:
    job = JobRecord(HOSTILE, HOSTILE, "profiles", HOSTILE, JobStatus.FAILED, instance_type=HOSTILE, instance_count=3)
    judged = judge(reports_of_jobs.hostile(tmp_path), job)
    found = document(judged.full())
    assert faults(validator, found) == []
    assert (found["job"]["name"], found["job"]["instance_type"]) == (HOSTILE, HOSTILE)
    page = report_files(judged.full())["report.html"].decode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_report_before_the_first_object_is_valid_and_says_so(
    validator: Draft202012Validator,
) -> None:
    job = JobRecord("bert", "arn", "profiles", "", JobStatus.IN_PROGRESS, instance_type="ml.p3.2xlarge")
    for known in (job, replace(job, instance_count=2, started_at=1.0, closing=True, instance_type=None)):
        found = document(build_report(known, [], now=2.0))
        assert faults(validator, found) == []
        assert found["verdict"]["level"] == "unknown"
        assert found["healthy"] is False


def objects_of(found: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object that is one of our types: those that are left out have names of their own."""
    if isinstance(found, dict):
        yield path, found
        for name, each in found.items():
            if name not in {"counters", "parameters", "details", "reasons"}:
                yield from objects_of(each, f"{path}.{name}")
    elif isinstance(found, list) and found:
        yield from objects_of(found[0], f"{path}[]")


def trimmed(found: Any) -> Any:
    """Keep one item of each list: the types stay, and validation is quick."""
    if isinstance(found, dict):
        return {name: trimmed(each) for name, each in found.items()}
    return [trimmed(each) for each in found[:1]] if isinstance(found, list) else found


def test_extra_or_missing_field_is_refused(
    validator: Draft202012Validator,
) -> None:
    found = trimmed(json.loads(encode_document(report_samples.bad_report())))
    places = list(objects_of(found))
    assert {"$", "$.verdict", "$.rules[]", "$.job.initialization", "$.timelines.nodes[].gpus[].utilization"} <= {
        path for path, _ in places
    }
    for path, each in places:
        each["typo"] = 1
        assert faults(validator, found) != [], f"{path}: one more"
        del each["typo"]
        if not each:
            continue
        name, value = next(iter(each.items()))
        del each[name]
        assert faults(validator, found) != [], f"{path}.{name}: missing"
        each[name] = value
    assert faults(validator, found) == []


def test_schema_has_the_descriptions_of_all_fields() -> None:
    types = report_schema()["$defs"]
    assert types["JobSummary"]["properties"]["steps"]["description"] == (
        "How many steps its training processes took, all together."
    )
    assert "Share, 0 to 1" in types["NodeCoverage"]["properties"]["share"]["description"]
    for name, described in types.items():
        assert described["description"], name
        assert "-----" not in described["description"], name
