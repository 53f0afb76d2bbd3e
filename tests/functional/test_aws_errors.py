"""What AWS answers, in TrainGuard's words; botocore's Stubber stands in for AWS."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from botocore.response import StreamingBody
from botocore.stub import Stubber

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.dynamodb.rule_states import DynamoRuleStates
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.sqs import SqsTaskQueue
from trainguard.aws.ssm import SsmSettingDocuments, SsmStopSwitch
from trainguard.aws.stepfunctions import StepFunctionsExecutions
from trainguard.core.errors import ObjectMissingError, PortUnavailableError, StateCodecError, StateConflictError
from trainguard.core.finding import Finding
from trainguard.core.ports import RuleConfiguration, StreamTask
from trainguard.core.records import JobRecord, JobStatus, OutboxEntry, RuleRow, Status, StreamKey, StreamRecord
from trainguard.stack.actions.stop_switch import StopSwitches

if TYPE_CHECKING:
    from botocore.client import BaseClient

KEY = StreamKey("job", "algo-1", "system")
JOB = JobRecord("job", "arn", "profiles", "")
ROW = RuleRow("job", Finding("Rule", None, ""), Status.OK)
ENTRY = OutboxEntry("a", 0, 60.0, Finding("Rule", "algo-1", "It idles."))
TASKS = [StreamTask("job", f"algo-{number}", "system", "close") for number in range(12)]
ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/job"

Act = Callable[[Clients], object]


@contextmanager
def _stubbed(client: object) -> Iterator[Stubber]:
    with Stubber(cast("BaseClient", client)) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def _nodes(clients: Clients) -> DynamoNodeStates:
    return DynamoNodeStates(client=clients.dynamodb, table="NodeState")


def _rows(clients: Clients) -> DynamoRuleStates:
    return DynamoRuleStates(client=clients.dynamodb, table="RuleState")


def _jobs(clients: Clients) -> DynamoJobs:
    return DynamoJobs(client=clients.dynamodb, table="Jobs")


def _objects(clients: Clients) -> S3ProfileObjects:
    return S3ProfileObjects(client=clients.s3)


def _executions(clients: Clients) -> StepFunctionsExecutions:
    return StepFunctionsExecutions(client=clients.stepfunctions, state_machine_arn="arn:machine")


def _records(clients: Clients) -> StepFunctionsExecutions:
    arn = "arn:aws:states:us-east-1:123456789012:stateMachine:fire"
    return StepFunctionsExecutions(client=clients.stepfunctions, state_machine_arn=arn)


def _training_jobs(clients: Clients) -> SageMakerTrainingJobs:
    return SageMakerTrainingJobs(client=lambda: clients.sagemaker)


def _tasks(clients: Clients) -> SqsTaskQueue:
    return SqsTaskQueue(client=clients.sqs, queue_url="https://queue")


def _switch(clients: Clients) -> SsmStopSwitch:
    return SsmStopSwitch(client=clients.ssm, parameter="/stop", override="/stop-override")


def _settings(clients: Clients) -> SsmSettingDocuments:
    return SsmSettingDocuments(client=lambda: clients.ssm, default="/stack/default", path="/stack/settings/")


CALLS: list[tuple[str, str, Act]] = [
    ("dynamodb", "get_item", lambda clients: _nodes(clients).load(KEY)),
    ("dynamodb", "put_item", lambda clients: _nodes(clients).save(StreamRecord(KEY))),
    ("dynamodb", "update_item", lambda clients: _nodes(clients).mark_sent(KEY, ["a"])),
    ("dynamodb", "query", lambda clients: _nodes(clients).of_job("job")),
    ("dynamodb", "update_item", lambda clients: _rows(clients).publish([ROW])),
    ("dynamodb", "query", lambda clients: _rows(clients).of_job("job")),
    ("dynamodb", "get_item", lambda clients: _jobs(clients).load("job")),
    ("dynamodb", "put_item", lambda clients: _jobs(clients).register(JOB)),
    ("dynamodb", "update_item", lambda clients: _jobs(clients).update_status(JOB)),
    ("dynamodb", "update_item", lambda clients: _jobs(clients).ask("job", 1.0, 300.0)),
    ("dynamodb", "update_item", lambda clients: _jobs(clients).touch("job", 1.0)),
    ("dynamodb", "update_item", lambda clients: _jobs(clients).raise_episode("job", "Rule", 0)),
    ("dynamodb", "query", lambda clients: _jobs(clients).active()),
    ("s3", "get_object", lambda clients: _objects(clients).get("profiles", "key", 1)),
    ("s3", "get_object", lambda clients: _objects(clients).get_range("profiles", "key", 0, 1)),
    ("s3", "get_object", lambda clients: _objects(clients).open_stream("profiles", "key")),
    ("s3", "list_objects_v2", lambda clients: list(_objects(clients).list("profiles", "", ""))),
    ("s3", "put_object", lambda clients: _objects(clients).put("profiles", "key", b"", "text/html")),
    ("stepfunctions", "start_execution", lambda clients: _executions(clients).start("name", {})),
    ("stepfunctions", "describe_execution", lambda clients: _records(clients).find("name")),
    ("stepfunctions", "list_executions", lambda clients: list(_records(clients).unsuccessful(0.0))),
    ("sagemaker", "describe_training_job", lambda clients: _training_jobs(clients).describe("job")),
    ("sqs", "send_message_batch", lambda clients: _tasks(clients).send(TASKS)),
    ("ssm", "get_parameter", lambda clients: _switch(clients).read()),
    ("ssm", "get_parameter", lambda clients: _settings(clients).read("/stack/settings/llm")),
]


@pytest.mark.parametrize(("service", "method", "act"), CALLS)
def test_an_error_of_the_service_is_the_ports_with_its_reason(
    clients: Clients, service: str, method: str, act: Act
) -> None:
    with _stubbed(getattr(clients, service)) as stubber:
        stubber.add_client_error(method, "AccessDeniedException", "the reason", 400)
        with pytest.raises(PortUnavailableError, match="failed: AccessDeniedException: the reason") as caught:
            act(clients)
    assert caught.value.operation.lower() == method.replace("_", "")


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError", "NoSuchBucket"])
@pytest.mark.parametrize("number", [0, 15], ids=["dynamodb", "s3"])
def test_an_error_of_any_code_is_the_ports_with_its_reason(clients: Clients, number: int, code: str) -> None:
    service, method, act = CALLS[number]
    with _stubbed(getattr(clients, service)) as stubber:
        stubber.add_client_error(method, code, "the reason", 400)
        with pytest.raises(PortUnavailableError, match=f"failed: {code}: the reason"):
            act(clients)


@pytest.mark.parametrize(
    "error",
    [EndpointConnectionError(endpoint_url="https://x"), ReadTimeoutError(endpoint_url="https://x")],
    ids=["no-connection", "timeout"],
)
def test_missing_response_makes_the_port_unavailable(error: Exception) -> None:
    with (
        pytest.raises(PortUnavailableError, match=rf"S3\.GetObject failed: {type(error).__name__}"),
        translated("S3", "GetObject"),
    ):
        raise error


def test_changed_stop_switch_and_override_are_seen(clients: Clients) -> None:
    with _stubbed(clients.ssm) as stubber:
        stubber.add_response("get_parameter", {"Parameter": {"Value": "enabled"}}, {"Name": "/stop"})
        stubber.add_client_error("get_parameter", "ParameterNotFound", expected_params={"Name": "/stop-override"})
        stubber.add_response("get_parameter", {"Parameter": {"Value": "dry-run"}}, {"Name": "/stop"})
        stubber.add_response("get_parameter", {"Parameter": {"Value": "disabled"}}, {"Name": "/stop-override"})
        switch = _switch(clients)
        assert [switch.read(), switch.read()] == [StopSwitches("enabled"), StopSwitches("dry-run", "disabled")]


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "ParameterVersionNotFound"])
def test_unreadable_override_makes_the_switch_unavailable(clients: Clients, code: str) -> None:
    with _stubbed(clients.ssm) as stubber:
        stubber.add_response("get_parameter", {"Parameter": {"Value": "enabled"}}, {"Name": "/stop"})
        stubber.add_client_error("get_parameter", code, "the reason", 400, expected_params={"Name": "/stop-override"})
        with pytest.raises(PortUnavailableError, match=f"{code}: the reason"):
            _switch(clients).read()


def test_own_error_passes_translation_unchanged() -> None:
    with pytest.raises(ObjectMissingError), translated("S3", "GetObject"):
        raise ObjectMissingError("profiles", "key")


def test_failed_condition_on_save_is_a_conflict(clients: Clients) -> None:
    with _stubbed(clients.dynamodb) as stubber:
        stubber.add_client_error("put_item", "ConditionalCheckFailedException", "no", 400)
        with pytest.raises(StateConflictError):
            _nodes(clients).save(StreamRecord(KEY, version=3))


def test_job_vanishing_during_registration_is_a_conflict(clients: Clients) -> None:
    with _stubbed(clients.dynamodb) as stubber:
        stubber.add_client_error("put_item", "ConditionalCheckFailedException", "no", 400)
        stubber.add_response("get_item", {})
        with pytest.raises(StateConflictError, match="Jobs/job"):
            _jobs(clients).register(JOB)


@pytest.mark.parametrize("code", ["NoSuchKey", "404"])
def test_deleted_object_is_missing(clients: Clients, code: str) -> None:
    with _stubbed(clients.s3) as stubber:
        stubber.add_client_error("get_object", code, "gone", 404)
        with pytest.raises(ObjectMissingError):
            _objects(clients).get("profiles", "key", 1)


def test_broken_stream_makes_the_port_unavailable(clients: Clients) -> None:
    body = StreamingBody(io.BytesIO(b"01"), content_length=10)
    with _stubbed(clients.s3) as stubber:
        stubber.add_response("get_object", {"Body": body}, {"Bucket": "profiles", "Key": "key"})
        with _objects(clients).open_stream("profiles", "key") as stream:
            assert stream.read(4) == b"01"
            with pytest.raises(PortUnavailableError, match=r"S3\.GetObject failed"):
                stream.read(4)


def test_starting_an_existing_execution_is_success(clients: Clients) -> None:
    with _stubbed(clients.stepfunctions) as stubber:
        stubber.add_client_error("start_execution", "ExecutionAlreadyExists", "again", 400)
        assert _executions(clients).start("name", {}) is False


@pytest.mark.parametrize("code", ["ValidationException", "ResourceNotFound"])
def test_job_unknown_to_sagemaker_is_none(clients: Clients, code: str) -> None:
    with _stubbed(clients.sagemaker) as stubber:
        stubber.add_client_error("describe_training_job", code, "Requested resource not found.", 400)
        assert _training_jobs(clients).describe("job") is None


def test_refused_queue_tasks_are_all_tried_and_named(
    clients: Clients,
) -> None:
    taken = {"Id": "0", "MessageId": "m", "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592"}
    with _stubbed(clients.sqs) as stubber:
        for refused in ("3", "1"):
            stubber.add_response(
                "send_message_batch",
                {"Successful": [taken], "Failed": [{"Id": refused, "SenderFault": False, "Code": "InternalError"}]},
            )
        with pytest.raises(PortUnavailableError) as caught:
            _tasks(clients).send(TASKS)
    assert "2 of 12 tasks not taken" in str(caught.value)
    assert "close job/algo-3#system (InternalError); close job/algo-11#system (InternalError)" in str(caught.value)


def test_item_of_another_shape_names_item_and_codec(clients: Clients) -> None:
    item = {"TrainingJobName": {"S": "job"}, "NodeKind": {"S": "algo-1#system"}, "Codec": {"N": "7"}}
    with _stubbed(clients.dynamodb) as stubber:
        stubber.add_response("get_item", {"Item": item})
        with pytest.raises(StateCodecError, match="NodeState/job/algo-1#system has Codec 7: there is no 'Version'"):
            _nodes(clients).load(KEY)


def _describe(clients: Clients, *, tag: tuple[str, str] = ("b", "2"), **members: object) -> dict[str, object]:
    """Return what the adapter makes of a description with these members, and with a second page of tags."""
    key, value = tag
    described = {
        "TrainingJobName": "job",
        "TrainingJobArn": ARN,
        "ModelArtifacts": {"S3ModelArtifacts": "s3://x"},
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Training",
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
        "StoppingCondition": {},
        "CreationTime": datetime(2026, 1, 31, 12, tzinfo=UTC),
        **members,
    }
    with _stubbed(clients.sagemaker) as stubber:
        stubber.add_response("describe_training_job", described, {"TrainingJobName": "job"})
        stubber.add_response(
            "list_tags", {"Tags": [{"Key": "a", "Value": "1"}], "NextToken": "2"}, {"ResourceArn": ARN}
        )
        stubber.add_response(
            "list_tags", {"Tags": [{"Key": key, "Value": value}]}, {"ResourceArn": ARN, "NextToken": "2"}
        )
        found = _training_jobs(clients).describe("job")
    assert found is not None
    return {name: getattr(found, name) for name in found.__slots__}


def test_description_of_a_running_job_is_complete(clients: Clients) -> None:
    found = _describe(
        clients,
        TrainingStartTime=datetime(2026, 1, 31, 12, 1, 0, 250_000, tzinfo=UTC),
        ProfilerConfig={"S3OutputPath": "s3://profiles/p/", "ProfilingIntervalInMilliseconds": 500},
    )
    assert found == {
        "job": "job",
        "platform": "sagemaker",
        "queue": None,
        "arn": ARN,
        "status": JobStatus.IN_PROGRESS,
        "secondary_status": "Training",
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 2,
        "created_at": 1_769_860_800.0,
        "started_at": 1_769_860_860.25,
        "ended_at": None,
        "profiling_interval_ms": 500,
        "framework_profiling": False,
        "tags": {"a": "1", "b": "2"},
        "profile_uri": "s3://profiles/p/",
        "profiler_rules": (),
        "debugger_rules": (),
        "tuning_job": None,
        "file_fault": None,
        "run_links": {},
        "resources": (),
        "metric_definitions": (),
        "time_limit_s": None,
        "total_steps": None,
    }


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"max_steps": "20000"}, 20_000),
        ({"--max-train-steps": '"500"', "epochs": "3"}, 500),
        ({"max_steps": "-1", "total_steps": "70"}, 70),
        ({"max_steps": "x" * 99, "epochs": "3"}, None),
        ({}, None),
    ],
)
def test_description_has_the_length_of_the_job(clients: Clients, given: dict[str, str], steps: int | None) -> None:
    limit = {"MaxRuntimeInSeconds": 86_400}
    found = _describe(clients, HyperParameters=given, StoppingCondition=limit)
    assert (found["time_limit_s"], found["total_steps"]) == (86_400.0, steps)


def test_description_has_the_name_of_the_tuning_job(clients: Clients) -> None:
    arn = "arn:aws-cn:sagemaker:cn-north-1:123456789012:hyper-parameter-tuning-job/tune-1"
    assert _describe(clients, TuningJobArn=arn)["tuning_job"] == "tune-1"


def test_description_has_rule_names_parameters_and_places(clients: Clients) -> None:
    bare = {"RuleConfigurationName": "bare", "RuleEvaluatorImage": "image"}
    told = {
        **bare,
        "RuleParameters": {"rule_to_invoke": "BatchSize"},
        "LocalPath": "/opt",
        "S3OutputPath": "s3://mine/",
    }
    found = _describe(
        clients, ProfilerRuleConfigurations=[told, bare], DebugRuleConfigurations=[{**bare, "LocalPath": "/opt"}]
    )
    assert found["profiler_rules"] == (
        RuleConfiguration("bare", "image", {"rule_to_invoke": "BatchSize"}, "s3://mine/"),
        RuleConfiguration("bare", "image"),
    )
    assert found["debugger_rules"] == (RuleConfiguration("bare", "image", {}, "/opt"),)


def test_description_of_a_finished_job_has_its_end(clients: Clients) -> None:
    found = _describe(clients, TrainingJobStatus="Stopped", TrainingEndTime=datetime(2026, 1, 31, 13, tzinfo=UTC))
    assert (found["status"], found["ended_at"]) == (JobStatus.STOPPED, 1_769_864_400.0)
    assert (found["profiling_interval_ms"], found["profile_uri"]) == (None, None)


@pytest.mark.parametrize(
    ("profiler", "expected"),
    [({}, "s3://tagged/p"), ({"DisableProfiler": True}, "s3://tagged/p"), ({"S3OutputPath": "s3://said"}, "s3://said")],
)
def test_place_by_tag_holds_without_a_profiler_place(
    clients: Clients, profiler: dict[str, object], expected: str
) -> None:
    tag = ("trainguard:profile-path", "s3://tagged/p")
    assert _describe(clients, tag=tag, ProfilerConfig=profiler)["profile_uri"] == expected


def test_status_of_a_later_api_is_unknown(clients: Clients) -> None:
    assert _describe(clients, TrainingJobStatus="Deleting")["status"] is JobStatus.UNKNOWN


@pytest.mark.parametrize(
    ("kinds", "expected"), [(("ml.a", "ml.a"), ("ml.a", 5)), (("ml.a", "ml.b"), (None, 5))], ids=["same", "mixed"]
)
def test_instances_of_instance_groups_are_summed(
    clients: Clients, kinds: tuple[str, str], expected: tuple[str | None, int]
) -> None:
    groups = [
        {"InstanceType": kind, "InstanceCount": count, "InstanceGroupName": f"group-{count}"}
        for kind, count in zip(kinds, (2, 3), strict=True)
    ]
    found = _describe(clients, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1})
    assert (found["instance_type"], found["instance_count"]) == expected


@pytest.mark.parametrize(
    ("profiler", "expected"),
    [
        ({"ProfilingParameters": {"DetailedProfilingConfig": '{"StartStep": 5}'}}, True),
        ({"ProfilingParameters": {"PythonProfilingConfig": "{}", "LocalPath": "/opt"}}, True),
        ({"ProfilingParameters": {"DataloaderProfilingConfig": " "}}, False),
        ({"ProfilingParameters": {"LocalPath": "/opt", "FileOpenFailThreshold": "50"}}, False),
        ({"ProfilingParameters": {"HorovodProfilingConfig": "{}"}, "DisableProfiler": True}, False),
        ({"ProfilingParameters": {}}, False),
        ({}, False),
    ],
)
def test_profiler_configuration_says_if_framework_events_come(
    clients: Clients, profiler: dict[str, object], expected: bool
) -> None:
    found = _describe(clients, ProfilerConfig={"S3OutputPath": "s3://profiles/", **profiler})
    assert found["framework_profiling"] is expected
