"""From an object's key to an evaluator, and from a failure to a dead letter."""

import re
from typing import Any

import pytest

from infra.constructs.ingest import rule_id
from tests.infra.template import Template
from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import ProfileRoot, parse_job_file_key
from trainguard.engine.installed import FAMILIES
from trainguard.formats.profile.keys import parse_key

# Rules of complexity 9 were accepted by EventBridge and those of 12 refused (`InvalidEventPatternException`).
MOST_COMPLEX = 9

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
    "my-job/profiler-output/framework/tensorflow/detailed_profiling/2026010112/000000010/algo-1.trace.json.gz",
    "my-job/rule-output/ProfilerReport-1/profiler-output/profiler-reports/LowGPUUtilization.json",
]
LOOK_ALIKES = [
    "my-job/rule-output/ProfilerReport-1/profiler-output/system/incremental/2026010112/1767268800.algo-1.json",
    "rule-output/ProfilerReport-1/profiler-output/system/incremental/2026010112/1767268800.algo-1.json",
]


def matches(pattern: Any, value: Any) -> bool:
    """Say whether EventBridge would match: objects by field, lists by any entry, text by ``*`` or its end."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(matches(part, value.get(name)) for name, part in pattern.items())
    return any(_entry_matches(entry, value) for entry in pattern)


def _entry_matches(entry: Any, value: Any) -> bool:
    if not isinstance(entry, dict):
        return bool(entry == value)
    if set(entry) == {"suffix"}:
        return isinstance(value, str) and value.endswith(entry["suffix"])
    assert set(entry) == {"wildcard"}
    expression = ".*".join(re.escape(part) for part in entry["wildcard"].split("*"))
    return re.fullmatch(expression, value, flags=re.DOTALL) is not None


def complexity(wildcards: list[str]) -> int:
    """Return how many beginnings of wildcards match one text at once, at most: what EventBridge's matcher counts."""
    letters = set("".join(wildcards)) - {"*"} | {"\0"}
    waiting = [tuple(frozenset({0}) for _ in wildcards)]
    known, most = set(waiting), 0
    while waiting:
        reached = waiting.pop()
        for letter in letters:
            following = tuple(map(_after, wildcards, reached, [letter] * len(wildcards)))
            most = max(most, sum(map(_beginnings, wildcards, following)))
            if following not in known:
                known.add(following)
                waiting.append(following)
    return most


def _after(wildcard: str, reached: frozenset[int], letter: str) -> frozenset[int]:
    """Return the lengths of the beginnings that match a text with ``letter`` behind it."""
    found = {length for length in reached if wildcard[:length].endswith("*")}
    for length in reached:
        rest = wildcard[length : length + 2]
        if rest[:1] in {letter, "*"}:
            found.add(length + 1)
        if rest == f"*{letter}":
            found.add(length + 2)
    return frozenset(found)


def _beginnings(wildcard: str, reached: frozenset[int]) -> int:
    """Count beginnings, with those whose next character is a ``*`` that stands for nothing."""
    with_nothing = {length + 1 for length in reached if length and wildcard[length : length + 1] == "*"}
    return len((reached | with_nothing) - {0})


def object_created(key: str, bucket: str = "{StorageProfiles}") -> dict[str, Any]:
    return {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}, "reason": "PutObject"},
    }


@pytest.fixture(scope="module")
def rule(template: Template) -> Any:
    """Return the rule on new objects of profiles."""
    return template.one("AWS::Events::Rule", "IngestProfileObjectCreated")


@pytest.fixture(scope="module")
def rules(template: Template) -> list[Any]:
    """Return all rules on new objects: one a family, and that of job files."""
    families = [template.one("AWS::Events::Rule", f"Ingest{rule_id(family)}") for family in FAMILIES]
    return [*families, template.one("AWS::Events::Rule", "IngestJobFileCreated")]


@pytest.mark.parametrize("key", PROFILE_KEYS)
def test_created_profile_object_sends_a_message(rule: Any, key: str) -> None:
    assert matches(rule["EventPattern"], object_created(key))


@pytest.mark.parametrize("key", [*PROFILE_KEYS, *JOB_FILES])
def test_exactly_one_rule_sends_a_message_per_object(rules: list[Any], key: str) -> None:
    assert sum(matches(rule["EventPattern"], object_created(key)) for rule in rules) == 1


@pytest.mark.parametrize("key", JOB_FILES)
def test_file_of_an_outside_job_names_its_place(key: str) -> None:
    assert parse_job_file_key(key) == JOB_FILES[key]


@pytest.mark.parametrize("key", [*NO_JOB_FILES, *PROFILE_KEYS, "job.json", "a/job.json.tmp", "a/" * 600 + "b/job.json"])
def test_look_alike_of_a_job_file_is_none(key: str) -> None:
    assert parse_job_file_key(key) is None


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_other_object_matches_no_rule(rules: list[Any], key: str) -> None:
    assert not any(matches(rule["EventPattern"], object_created(key)) for rule in rules)


def test_other_bucket_or_event_sends_no_message(rule: Any) -> None:
    event = object_created(PROFILE_KEYS[0])
    assert not matches(rule["EventPattern"], object_created(PROFILE_KEYS[0], bucket="another"))
    assert not matches(rule["EventPattern"], event | {"detail-type": "Object Deleted"})
    assert not matches(rule["EventPattern"], event | {"source": "aws.s4"})


@pytest.mark.parametrize("key", LOOK_ALIKES)
def test_look_alike_passes_the_pattern_and_the_code_refuses_it(rule: Any, key: str) -> None:
    assert matches(rule["EventPattern"], object_created(key))
    with pytest.raises(UnreadableKeyError, match="rule-output"):
        parse_key(key)


def test_patterns_are_within_the_eventbridge_complexity_limit(rules: list[Any]) -> None:
    for rule in rules:
        entries = rule["EventPattern"]["detail"]["object"]["key"]
        wildcards = [entry["wildcard"] for entry in entries if "wildcard" in entry]
        assert not [wildcard for wildcard in wildcards if "**" in wildcard]
        assert complexity(wildcards) <= MOST_COMPLEX


@pytest.mark.parametrize(
    ("wildcards", "expected"),
    [
        (["*"], 1),
        (["*aa"], 3),
        (["a*bcb"], 3),
        (["*ab*ad"], 4),
        (["a*b*bb"], 5),
        (["*abc", "*abcde"], 4),
        (["a*aaa", "aa*aa"], 7),
        (["*a*a*a*a*a*a*a*a*"], 17),
    ],
)
def test_wildcard_complexity_is_that_of_the_eventbridge_matcher(wildcards: list[str], expected: int) -> None:
    assert complexity(wildcards) == expected


def test_s3_may_send_for_this_account_before_it_notifies(
    template: Template,
) -> None:
    (bucket,) = template.of_type("AWS::S3::Bucket").values()
    (allowed,) = (
        statement
        for name, statement, principal in template.resource_policy_statements()
        if name == "IngestDoorbellsPolicy" and principal == {"Service": "s3.amazonaws.com"}
    )
    assert (allowed.actions, allowed.effect) == (("sqs:SendMessage",), "Allow")
    assert allowed.condition == {"StringEquals": {"aws:SourceAccount": "{AWS::AccountId}"}}
    assert bucket.properties["NotificationConfiguration"]["QueueConfigurations"][0]["Event"] == "s3:ObjectCreated:*"


@pytest.mark.parametrize("key", [*PROFILE_KEYS, *OTHER_KEYS, *LOOK_ALIKES])
def test_bucket_notification_admits_keys_like_the_rules(rules: list[Any], key: str) -> None:
    assert FAMILIES.admits(key) is any(matches(rule["EventPattern"], object_created(key)) for rule in rules)


def test_each_rule_target_has_a_dead_letter_queue(template: Template) -> None:
    for rule in template.of_type("AWS::Events::Rule").values():
        for target in rule.properties["Targets"]:
            assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}


def test_queues_are_encrypted_and_dead_letters_kept_two_weeks(
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


def test_message_visibility_covers_six_evaluations_and_window(
    template: Template,
) -> None:
    timeout = template.one("AWS::Lambda::Function", "EvaluationEvaluateObjectsFunction")["Timeout"]
    mapping = template.one("AWS::Lambda::EventSourceMapping", "EvaluationDoorbellsToEvaluateObjects")
    visibility = template.one("AWS::SQS::Queue", "IngestDoorbells")["VisibilityTimeout"]
    assert visibility >= 6 * timeout + mapping["MaximumBatchingWindowInSeconds"]


def test_event_mapping_has_large_late_batches_that_fail_in_part(template: Template) -> None:
    mapping = template.one("AWS::Lambda::EventSourceMapping", "EvaluationDoorbellsToEvaluateObjects")
    assert mapping["EventSourceArn"] == "{IngestDoorbells.Arn}"
    assert mapping["FunctionName"] == "{EvaluationEvaluateObjectsLive}"
    assert mapping["BatchSize"] == 100
    assert mapping["MaximumBatchingWindowInSeconds"] == 20
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 20}
