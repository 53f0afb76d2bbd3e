"""plan_report, digest_profile and build_report as they are deployed, with the inputs that the state machines give."""

import json
from typing import Any

import msgspec
import pytest
from moto.s3.models import FakeKey, S3Backend

from tests.functional.deployment import (
    BUCKET,
    JOB,
    PREFIX,
    Deployment,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from tests.functional.recorded_items import evaluated_once
from trainguard.core.errors import ReportRunError, UnknownJobError
from trainguard.rules.registry import RULE_NAMES

REPORT = f"{PREFIX}{JOB}/rule-output/TrainGuardReport/"
PAGE_URI = f"s3://{BUCKET}/{REPORT}report.html"
MANAGED_FIELDS = ["RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters"]
RULES = sorted(RULE_NAMES)
# By then the recorded job has fired.
FIRES_AT = 1_784_022_181

A_MINUTE_LEFT = 60_000
TIME_ENOUGH = (900_000,)

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def evaluated(deployment: Deployment) -> Deployment:
    """Return a deployment that has evaluated the recorded job up to its fire."""
    evaluated_once(deployment, [each for each in recorded_objects() if each.appears_at < FIRES_AT])
    return deployment


def end(deployment: Deployment) -> None:
    """Let the job end, and be evaluated to its end."""
    deployment.set_status("Completed")
    evaluate = deployment.function("evaluate_objects")
    evaluate(event("sqs_training_job_end"))
    evaluate(deployment.tasks())


def body(deployment: Deployment, key: str) -> Any:
    return json.loads(deployment.world.objects.get(BUCKET, key, 10_000_000))


def parts(deployment: Deployment) -> list[str]:
    place = f"{REPORT}parts/"
    return [listed.key.removeprefix(place) for listed in deployment.world.objects.list(BUCKET, place, "")]


def test_fire_report_has_the_five_managed_fields_per_rule(
    evaluated: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = S3Backend.put_object

    def put_object(self: S3Backend, bucket_name: str, key_name: str, *rest: Any, **named: Any) -> FakeKey:
        written.append(key_name)
        return put(self, bucket_name, key_name, *rest, **named)

    monkeypatch.setattr(S3Backend, "put_object", put_object)
    answer = evaluated.function("build_report")(event("build_report_fire"))
    assert answer.value == {"reportUri": PAGE_URI, "files": 16}
    assert answer.value["reportUri"] == event("build_report_fire")["reportPage"]
    managed = [f"{REPORT}profiler-reports/{rule}.json" for rule in RULES]
    assert sorted(written) == sorted([*managed, f"{REPORT}report.html", f"{REPORT}report.json"])
    assert written[-2:] == [f"{REPORT}report.html", f"{REPORT}report.json"]
    for rule in RULES:
        assert list(body(evaluated, f"{REPORT}profiler-reports/{rule}.json")) == MANAGED_FIELDS
    fired = body(evaluated, f"{REPORT}profiler-reports/LowGPUUtilization.json")
    assert (fired["RuleTriggered"], fired["Violations"] > 0, fired["Datapoints"] > 0) == (1, True, True)
    assert "threshold_p95:70" in fired["RuleParameters"]
    document = body(evaluated, f"{REPORT}report.json")
    assert (document["job"]["name"], document["final"], document["healthy"]) == (JOB, False, False)
    assert [finding["rule"] for finding in document["findings"]] == ["Dataloader", "LowGPUUtilization"]
    assert set(document["fired"]) == {"Dataloader", "LowGPUUtilization"}
    finding = document["findings"][0]
    assert finding["advice"]
    assert 0.0 < finding["lost"] < document["cost"]["spent"]
    assert "us-east-1" in document["cost"]["note"]


def test_fire_report_has_an_html_page_beside_it(evaluated: Deployment) -> None:
    evaluated.function("build_report")(event("build_report_fire"))
    held = evaluated.clients.s3.get_object(Bucket=BUCKET, Key=f"{REPORT}report.html")
    assert held["ContentType"] == "text/html; charset=utf-8"
    assert JOB.encode() in held["Body"].read()


def test_full_report_of_a_running_job_has_the_time_lines_so_far(
    evaluated: Deployment,
) -> None:
    planned = evaluated.function("plan_report")(event("plan_report")).value
    assert (planned["count"], planned["bucket"]) == (2, BUCKET)
    assert parts(evaluated) == [f"{event('plan_report')['run']}/items.json"]
    assert body(evaluated, planned["key"]) == planned["items"]
    digest = evaluated.function("digest_profile")
    for item in planned["items"]:
        read = digest(item, remaining_ms=TIME_ENOUGH).value
        assert read == {**item, "after": read["after"], "part": 1, "more": False}
    answer = evaluated.function("build_report")(event("build_report_full"))
    assert answer.value == {"reportUri": PAGE_URI, "files": 16}
    document = body(evaluated, f"{REPORT}report.json")
    assert (document["scope"], document["final"]) == ("full", False)
    assert [len(node["gpus"]) for node in document["timelines"]["nodes"]] == [4, 4]
    assert document["timelines"]["left_out"] == []
    assert len(parts(evaluated)) == 3
    assert evaluated.function("build_report")(event("build_report_drop")).value == {"dropped": 3}
    assert parts(evaluated) == []
    assert body(evaluated, f"{REPORT}report.json") == document


def test_recorded_item_matches_plan_report(evaluated: Deployment) -> None:
    (first, _) = evaluated.function("plan_report")(event("plan_report")).value["items"]
    recorded = event("digest_profile")
    assert {**first, "axis": recorded["axis"], "until": recorded["until"]} == recorded


def test_expired_item_reads_nothing_and_leaves_nothing(
    evaluated: Deployment,
) -> None:
    (item, _) = evaluated.function("plan_report")(event("plan_report")).value["items"]
    late = {**item, "until": item["until"] - 20 * 3_600}
    assert evaluated.function("digest_profile")(late, remaining_ms=TIME_ENOUGH).value == {**late, "more": False}
    assert parts(evaluated) == [f"{event('plan_report')['run']}/items.json"]


def test_digest_without_time_resumes_and_leaves_a_part_per_call(
    evaluated: Deployment,
) -> None:
    (item, _) = evaluated.function("plan_report")(event("plan_report")).value["items"]
    digest = evaluated.function("digest_profile")
    looks = [A_MINUTE_LEFT + 1] * 9 + [A_MINUTE_LEFT]
    calls = 0
    while item["more"]:
        item = digest(item, remaining_ms=looks).value
        calls += 1
    assert calls > 2
    assert item["part"] == calls
    assert len(parts(evaluated)) == 1 + calls


def test_final_report_replaces_the_first(
    evaluated: Deployment,
) -> None:
    evaluated.function("build_report")(event("build_report_fire"))
    end(evaluated)
    planned = evaluated.function("plan_report")(event("plan_report")).value
    for item in planned["items"]:
        evaluated.function("digest_profile")(item, remaining_ms=TIME_ENOUGH)
    assert evaluated.function("build_report")(event("build_report_full")).value["reportUri"] == PAGE_URI
    document = body(evaluated, f"{REPORT}report.json")
    assert (document["final"], document["scope"]) == (True, "full")


def test_late_fire_does_not_replace_the_full_report(
    evaluated: Deployment,
) -> None:
    end(evaluated)
    evaluated.clients.s3.put_object(Bucket=BUCKET, Key=f"{REPORT}report.json", Body=b'{"scope": "full"}')
    answer = evaluated.function("build_report")(event("build_report_fire"))
    assert answer.value == {"reportUri": PAGE_URI, "files": 0}
    assert body(evaluated, f"{REPORT}report.json") == {"scope": "full"}


def test_unplannable_report_is_built_from_state(evaluated: Deployment) -> None:
    end(evaluated)
    assert evaluated.function("build_report")(event("build_report_state")).value["files"] == 16
    assert body(evaluated, f"{REPORT}report.json")["scope"] == "state"


def test_objects_of_a_report_are_no_profile(evaluated: Deployment) -> None:
    evaluated.function("plan_report")(event("plan_report"))
    evaluated.function("build_report")(event("build_report_fire"))
    keys = [listed.key for listed in evaluated.world.objects.list(BUCKET, REPORT, "")]
    answer = evaluated.function("evaluate_objects")(ringing([object_message(key, at=1_784_022_200) for key in keys]))
    assert answer.metrics == {"ForeignKeys": len(keys)}


@pytest.mark.parametrize(
    ("function", "given"),
    [("plan_report", "plan_report"), *(("build_report", f"build_report_{kind}") for kind in ("full", "drop", "state"))],
)
def test_unknown_job_error_names_it(deployment: Deployment, function: str, given: str) -> None:
    with pytest.raises(UnknownJobError, match=JOB):
        deployment.function(function)(event(given))


def test_run_that_is_no_execution_writes_nothing(evaluated: Deployment) -> None:
    with pytest.raises(ReportRunError, match="expected the name of an execution"):
        evaluated.function("plan_report")(event("plan_report") | {"run": "../other"})
    assert parts(evaluated) == []


def test_invalid_item_is_refused(deployment: Deployment) -> None:
    with pytest.raises(msgspec.ValidationError, match="axis"):
        deployment.function("digest_profile")({**event("digest_profile"), "axis": None})
