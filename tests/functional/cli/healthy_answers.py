"""What an AWS account answers, by service and operation: the stack of the synthesised template, in good health."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.functional.cli.doctor_stack import (
    ACCOUNT,
    BUCKET,
    REGION,
    STACK,
    arn_of,
    name_of,
    named,
    outputs,
    resolved,
    template,
)
from tests.infra.access import Request, allows
from tests.infra.template import Statement

NOW = 1_784_026_800.0
NAME = "arn:aws:iam::111122223333:user/ada"
MAPPING = "0b8c4d1e-7a55-4c8e-9a0f-0d4c5b8a1e11"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0b6a1f0e-5f4c-4c53-9a9f-7d1c1f1f8d10"

Question = tuple[str, str]
Given = Mapping[str, Any]


class RefusalError(Exception):
    """An error that the account answers with."""

    def __init__(self, code: str, message: str = "no", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


Answer = Callable[[Given], dict[str, Any]]


def always(answer: dict[str, Any]) -> Answer:
    """Return one answer to whatever is asked."""
    return lambda _: answer


def healthy() -> dict[Question, Answer]:
    """Return the answers to all that is asked of a stack in good health."""
    answers: dict[Question, Answer] = {}
    for part in (_stack, _functions, _measured, _bucket, _identities, _events, _stores, _actions):
        answers |= part()
    return answers


def _stack() -> dict[Question, Answer]:
    resources = [
        {
            "LogicalResourceId": logical,
            "PhysicalResourceId": name_of(logical),
            "ResourceType": each["Type"],
            "LastUpdatedTimestamp": at(NOW),
            "ResourceStatus": "CREATE_COMPLETE",
        }
        for logical, each in template()["Resources"].items()
    ]
    stack = {
        "StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{STACK}/1",
        "StackName": STACK,
        "StackStatus": "UPDATE_COMPLETE",
        "CreationTime": at(NOW),
        "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs().items()],
    }
    identity = {"UserId": "AIDA", "Account": ACCOUNT, "Arn": NAME}
    return {
        ("sts", "GetCallerIdentity"): always(identity),
        ("cloudformation", "DescribeStacks"): always({"Stacks": [stack]}),
        ("cloudformation", "ListStacks"): always({"StackSummaries": []}),
        ("cloudformation", "ListStackResources"): always({"StackResourceSummaries": resources}),
    }


def _functions() -> dict[Question, Answer]:
    functions = named("AWS::Lambda::Function")

    def configuration(given: Given) -> dict[str, Any]:
        properties = functions[given["FunctionName"]]
        return {
            "FunctionName": given["FunctionName"],
            "Role": properties["Role"],
            "State": "Active",
            "LastUpdateStatus": "Successful",
            "Environment": properties["Environment"],
            "LoggingConfig": properties["LoggingConfig"],
            "MemorySize": properties["MemorySize"],
        }

    mapping = {
        "UUID": MAPPING,
        "State": "Enabled",
        "BatchSize": 100,
        "LastProcessingResult": "No records processed",
        "ScalingConfig": {"MaximumConcurrency": 20},
    }
    limits = {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 1000}
    return {
        ("lambda", "GetFunctionConfiguration"): configuration,
        ("lambda", "GetFunctionConcurrency"): always({}),
        ("lambda", "GetAccountSettings"): always({"AccountLimit": limits}),
        ("lambda", "ListEventSourceMappings"): always({"EventSourceMappings": [mapping]}),
    }


def _measured() -> dict[Question, Answer]:
    lambda_values = {"Invocations": [1.0] * 14, "Errors": [0.0] * 14, "AsyncEventsDropped": []}
    values = lambda_values | {"ApproximateAgeOfOldestMessage": [21.0, 700.0]}

    def data(given: Given) -> dict[str, Any]:
        (query,) = given["MetricDataQueries"]
        return {
            "MetricDataResults": [{"Id": query["Id"], "Values": values[query["MetricStat"]["Metric"]["MetricName"]]}]
        }

    def alarms(given: Given) -> dict[str, Any]:
        described = named("AWS::CloudWatch::Alarm")
        return {
            "MetricAlarms": [
                {
                    "AlarmName": name,
                    "StateValue": "OK",
                    "ActionsEnabled": True,
                    "AlarmDescription": described[name]["AlarmDescription"],
                }
                for name in given["AlarmNames"]
            ]
        }

    return {("cloudwatch", "GetMetricData"): data, ("cloudwatch", "DescribeAlarms"): alarms}


def _bucket() -> dict[Question, Answer]:
    rule = {"ID": "ExpireProfiles", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}}

    def nothing(given: Given) -> dict[str, Any]:
        raise RefusalError("404", "Not Found", 404)

    properties = named("AWS::S3::Bucket")[BUCKET]
    (deployed,) = properties["NotificationConfiguration"]["QueueConfigurations"]
    to_queue = {"QueueArn": deployed["Queue"], "Events": [deployed["Event"]]}
    return {
        ("s3", "HeadBucket"): always({"BucketRegion": REGION}),
        ("s3", "GetBucketNotificationConfiguration"): always({"QueueConfigurations": [to_queue]}),
        ("s3", "GetBucketLifecycleConfiguration"): always({"Rules": [rule]}),
        ("s3", "GetBucketEncryption"): always(encrypted("AES256")),
        ("s3", "ListObjectsV2"): always({"IsTruncated": False, "KeyCount": 0}),
        ("s3", "HeadObject"): nothing,
    }


def encrypted(algorithm: str, key: str | None = None) -> dict[str, Any]:
    """Return the answer of a bucket that encrypts so by default."""
    chosen = {"SSEAlgorithm": algorithm} | ({"KMSMasterKeyID": key} if key else {})
    rules = [{"ApplyServerSideEncryptionByDefault": chosen, "BucketKeyEnabled": False}]
    return {"ServerSideEncryptionConfiguration": {"Rules": rules}}


def _identities() -> dict[Question, Answer]:
    """Roles whose policies IAM simulates, and a key whose policy leaves its use to IAM."""
    held = {
        arn_of(logical): [
            Statement.read(statement)
            for policy in resolved(each["Properties"]["Policies"])
            for statement in policy["PolicyDocument"]["Statement"]
        ]
        for logical, each in template()["Resources"].items()
        if each["Type"] == "AWS::IAM::Role"
    }

    def simulate(given: Given) -> dict[str, Any]:
        entries = given.get("ContextEntries", ())
        context = tuple((each["ContextKeyName"], value) for each in entries for value in each["ContextKeyValues"])
        (resource,) = given["ResourceArns"]
        statements = held[given["PolicySourceArn"]]
        return {
            "EvaluationResults": [
                {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision}
                for action in given["ActionNames"]
                for decision in [_decision(statements, Request(action, resource, context))]
            ]
        }

    whole = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*"}
    return {
        ("iam", "SimulatePrincipalPolicy"): simulate,
        ("kms", "DescribeKey"): always(
            {"KeyMetadata": {"KeyId": KEY[-36:], "Arn": KEY, "KeyManager": "CUSTOMER", "KeyState": "Enabled"}}
        ),
        ("kms", "GetKeyPolicy"): always({"Policy": json.dumps({"Statement": [whole | {"Resource": "*"}]})}),
    }


def _decision(statements: list[Statement], asked: Request) -> str:
    return "allowed" if any(allows(statement, asked) for statement in statements) else "implicitDeny"


def _events() -> dict[Question, Answer]:
    rules = named("AWS::Events::Rule")

    def described(given: Given) -> dict[str, Any]:
        properties = rules[given["Name"]]
        rule = {"Name": given["Name"], "Description": properties["Description"], "State": properties["State"]}
        if "EventPattern" in properties:
            return rule | {"EventPattern": json.dumps(properties["EventPattern"])}
        return rule | {"ScheduleExpression": properties["ScheduleExpression"]}

    def targets(given: Given) -> dict[str, Any]:
        return {"Targets": [{"Id": each["Id"], "Arn": each["Arn"]} for each in rules[given["Rule"]]["Targets"]]}

    def matches(given: Given) -> dict[str, Any]:
        pattern, event = json.loads(given["EventPattern"])["detail"], json.loads(given["Event"])["detail"]
        wildcards = [each.get("wildcard") or f"*{each['suffix']}" for each in pattern["object"]["key"]]
        key = event["object"]["key"]
        is_matched = any(re.fullmatch(re.escape(each).replace(r"\*", ".*"), key) for each in wildcards)
        return {"Result": is_matched and event["bucket"]["name"] in pattern["bucket"]["name"]}

    return {
        ("events", "DescribeRule"): described,
        ("events", "ListTargetsByRule"): targets,
        ("events", "TestEventPattern"): matches,
    }


def _stores() -> dict[Question, Answer]:
    def table(given: Given) -> dict[str, Any]:
        described = {"TableName": given["TableName"], "TableStatus": "ACTIVE", "ItemCount": 1234}
        described |= {"OnDemandThroughput": {"MaxWriteRequestUnits": 2_000}}
        indices = [{"IndexName": "ActiveJobs", "IndexStatus": "ACTIVE"}]
        jobs = given["TableName"] == outputs()["JobsTable"]
        return {"Table": described | ({"GlobalSecondaryIndexes": indices} if jobs else {})}

    expiry = {"TimeToLiveStatus": "ENABLED", "AttributeName": "ExpiresAt"}
    backups = {
        "ContinuousBackupsStatus": "ENABLED",
        "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED"},
    }
    policies = {
        queue: each["PolicyDocument"] for each in named("AWS::SQS::QueuePolicy").values() for queue in each["Queues"]
    }

    def attributes(given: Given) -> dict[str, Any]:
        depths = {"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0"}
        known = depths | {"Policy": json.dumps(policies[given["QueueUrl"]])}
        return {"Attributes": {name: known[name] for name in given["AttributeNames"] if name in known}}

    return {
        ("dynamodb", "DescribeTable"): table,
        ("dynamodb", "DescribeTimeToLive"): always({"TimeToLiveDescription": expiry}),
        ("dynamodb", "DescribeContinuousBackups"): always({"ContinuousBackupsDescription": backups}),
        ("dynamodb", "GetItem"): always({}),
        ("dynamodb", "Scan"): always({"Items": [], "Count": 0}),
        ("dynamodb", "Query"): always({"Items": [], "Count": 0}),
        ("sqs", "GetQueueAttributes"): attributes,
    }


def _actions() -> dict[Question, Answer]:
    def parameter(given: Given) -> dict[str, Any]:
        if given["Name"].endswith(("stop-switch-override", "/brakes")):
            raise RefusalError("ParameterNotFound", "")
        value = "enabled" if given["Name"].endswith("stop-switch") else '{"evaluate": "all"}'
        return {"Parameter": {"Name": given["Name"], "Value": value}}

    def subscriptions(given: Given) -> dict[str, Any]:
        here = {"SubscriptionArn": f"{given['TopicArn']}:1", "Protocol": "email", "Endpoint": "ada@example.com"}
        return {"Subscriptions": [here]}

    machines = named("AWS::StepFunctions::StateMachine")

    def machine(given: Given) -> dict[str, Any]:
        return {
            "stateMachineArn": given["stateMachineArn"],
            "name": "Fire",
            "status": "ACTIVE",
            "definition": "{}",
            "roleArn": machines[given["stateMachineArn"]]["RoleArn"],
            "type": "STANDARD",
            "creationDate": at(NOW),
        }

    def unknown(given: Given) -> dict[str, Any]:
        raise RefusalError("ValidationException", "Requested resource not found.")

    return {
        ("ssm", "GetParameter"): parameter,
        ("sns", "ListSubscriptionsByTopic"): subscriptions,
        ("stepfunctions", "DescribeStateMachine"): machine,
        ("stepfunctions", "ListExecutions"): always({"executions": []}),
        ("sagemaker", "DescribeTrainingJob"): unknown,
        ("sagemaker", "ListTags"): unknown,
    }


def execution(machine: str, *, hours_ago: float) -> dict[str, Any]:
    """Return an execution as a listing shows it."""
    ended = at(NOW) - timedelta(hours=hours_ago)
    return {
        "executionArn": machine.replace(":stateMachine:", ":execution:") + ":fire-1",
        "stateMachineArn": machine,
        "name": "fire-1",
        "status": "FAILED",
        "startDate": ended - timedelta(seconds=9),
        "stopDate": ended,
    }


def at(epoch_s: float) -> datetime:
    """Return a time as the client library gives it."""
    return datetime.fromtimestamp(epoch_s, UTC)
