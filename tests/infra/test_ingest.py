"""From an object's key to an evaluator, and from a failure to a dead letter."""

import re
from typing import Any

import pytest

from tests.infra.template import Template
from trainguard.errors import ForeignKeyError
from trainguard.telemetry.keys import ProfileRoot, parse_job_file_key, parse_key

PROFILE_KEYS = [
    "my-job/profiler-output/system/incremental/2026010112/1767268800.algo-1.json",
    "team/runs/my-job/profiler-output/system/incremental/2026010112/1767268800.algo-128.json",
    "my-job/profiler-output/framework/pevents/2026010112/1767268805000000_77-ip-10-0-0-1_pythontimeline.json",
    "my-job/profiler-output/framework/pevents/2026010112/1767268805000000_77-ip-10-0-0-1_model_timeline.json",
    "my-job/profiler-output/framework/tensorflow/detailed_profiling/2026010112/000000010/algo-1_1767268800000000_1767268805000000.metadata",
    "my-job/profiler-output/system/training_job_end.ts",
    "team/my-job/profiler-output/framework/training_job_end.ts",
]
JOB_FILES = {"my-job/job.json": ProfileRoot("", "my-job"), "team/my-job/job.json": ProfileRoot("team/", "my-job")}
NO_JOB_FILES = ["a/profiler-output/job.json", "profiler-output/job.json", "my-job/rule-output/job.json", "-/job.json"]
OTHER_KEYS = [
    "my-job/output/model.tar.gz",
    "my-job/debug-output/events/000000000000/000000000000_worker_0.tfevents",
    "my-job/profiler-output/system/incremental/2026010112/1767268800.algo-1.json.tmp",
    "my-job/rule-output/TrainGuardReport/report.json",
    "my-job/profiler-output/training_job_end.ts",
    "profiler-output/system/training_job_end.ts",
]
LOOK_ALIKES = [
    "my-job/rule-output/ProfilerReport-1/profiler-output/system/incremental/2026010112/1767268800.algo-1.json",
    "rule-output/ProfilerReport-1/profiler-output/system/incremental/2026010112/1767268800.algo-1.json",
]


def matches(pattern: Any, value: Any) -> bool:
    """Say whether EventBridge would match: objects by field, lists by any entry, wildcards by ``*``."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(matches(part, value.get(name)) for name, part in pattern.items())
    return any(_entry_matches(entry, value) for entry in pattern)


def _entry_matches(entry: Any, value: Any) -> bool:
    if not isinstance(entry, dict):
        return bool(entry == value)
    assert set(entry) == {"wildcard"}
    expression = ".*".join(re.escape(part) for part in entry["wildcard"].split("*"))
    return re.fullmatch(expression, value, flags=re.DOTALL) is not None


def object_created(key: str, bucket: str = "{StorageProfiles}") -> dict[str, Any]:
    return {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}, "reason": "PutObject"},
    }


@pytest.fixture(scope="module")
def rule(template: Template) -> Any:
    """Return the rule on new objects."""
    return template.one("AWS::Events::Rule", "IngestProfileObjectCreated")


@pytest.mark.parametrize("key", PROFILE_KEYS)
def test_given_a_profile_object_when_created_then_the_doorbell_rings(rule: Any, key: str) -> None:
    assert matches(rule["EventPattern"], object_created(key))


@pytest.mark.parametrize("key", JOB_FILES)
def test_given_the_file_of_a_job_outside_sagemaker_when_created_then_the_doorbell_rings(rule: Any, key: str) -> None:
    assert matches(rule["EventPattern"], object_created(key))
    assert parse_job_file_key(key) == JOB_FILES[key]


@pytest.mark.parametrize("key", [*NO_JOB_FILES, *PROFILE_KEYS, "job.json", "a/job.json.tmp", "a/" * 600 + "b/job.json"])
def test_given_a_look_alike_of_a_jobs_file_when_read_then_it_is_none(key: str) -> None:
    assert parse_job_file_key(key) is None


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_given_any_other_object_when_created_then_nothing_rings(rule: Any, key: str) -> None:
    assert not matches(rule["EventPattern"], object_created(key))


def test_given_another_bucket_or_event_when_it_comes_then_nothing_rings(rule: Any) -> None:
    event = object_created(PROFILE_KEYS[0])
    assert not matches(rule["EventPattern"], object_created(PROFILE_KEYS[0], bucket="another"))
    assert not matches(rule["EventPattern"], event | {"detail-type": "Object Deleted"})
    assert not matches(rule["EventPattern"], event | {"source": "aws.s4"})


@pytest.mark.parametrize("key", LOOK_ALIKES)
def test_given_a_look_alike_when_created_then_the_pattern_lets_it_through_and_the_code_refuses_it(
    rule: Any, key: str
) -> None:
    assert matches(rule["EventPattern"], object_created(key))
    with pytest.raises(ForeignKeyError, match="rule-output"):
        parse_key(key)


def test_given_the_patterns_when_read_then_they_keep_to_what_eventbridge_accepts(rule: Any) -> None:
    wildcards = [entry["wildcard"] for entry in rule["EventPattern"]["detail"]["object"]["key"]]
    assert not [wildcard for wildcard in wildcards if "**" in wildcard]
    assert all(wildcard.count("*") <= 2 for wildcard in wildcards)


def test_given_the_rules_when_read_then_each_target_has_a_dead_letter_queue(template: Template) -> None:
    for rule in template.of_type("AWS::Events::Rule").values():
        for target in rule.properties["Targets"]:
            assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}


def test_given_the_queues_when_read_then_all_are_encrypted_and_dead_letters_stay_for_two_weeks(
    template: Template,
) -> None:
    queues = {name: queue.properties for name, queue in template.of_type("AWS::SQS::Queue").items()}
    assert set(queues) == {"IngestDoorbells", "IngestDoorbellDeadLetters", "IngestEventDeadLetters"}
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())
    assert queues["IngestDoorbellDeadLetters"]["MessageRetentionPeriod"] == 14 * 86_400
    assert queues["IngestEventDeadLetters"]["MessageRetentionPeriod"] == 14 * 86_400
    assert queues["IngestDoorbells"]["RedrivePolicy"] == {
        "deadLetterTargetArn": "{IngestDoorbellDeadLetters.Arn}",
        "maxReceiveCount": 5,
    }
    assert not [queue for queue in queues.values() if "FifoQueue" in queue]


def test_given_the_doorbell_queue_when_read_then_it_hides_a_message_for_six_evaluations_and_the_window(
    template: Template,
) -> None:
    timeout = template.one("AWS::Lambda::Function", "EvaluationEvaluateObjectsFunction")["Timeout"]
    mapping = template.one("AWS::Lambda::EventSourceMapping", "EvaluationDoorbellsToEvaluateObjects")
    visibility = template.one("AWS::SQS::Queue", "IngestDoorbells")["VisibilityTimeout"]
    assert visibility >= 6 * timeout + mapping["MaximumBatchingWindowInSeconds"]


def test_given_the_mapping_when_read_then_batches_are_large_late_and_fail_in_part(template: Template) -> None:
    mapping = template.one("AWS::Lambda::EventSourceMapping", "EvaluationDoorbellsToEvaluateObjects")
    assert mapping["EventSourceArn"] == "{IngestDoorbells.Arn}"
    assert mapping["FunctionName"] == "{EvaluationEvaluateObjectsFunction}"
    assert mapping["BatchSize"] == 100
    assert mapping["MaximumBatchingWindowInSeconds"] == 20
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 20}
