"""Bucket, tables and logs: encrypted, kept, limited and forgotten in time."""

import pytest

from tests.infra.template import Template

TABLES = {
    "StorageJobs": {"TrainingJobName": "HASH"},
    "StorageRuleState": {"TrainingJobName": "HASH", "RuleTarget": "RANGE"},
    "StorageBookkeeping": {"Purpose": "HASH", "Id": "RANGE"},
    "StorageNodeState": {"TrainingJobName": "HASH", "NodeKind": "RANGE"},
}


@pytest.mark.parametrize("name", TABLES)
def test_table_has_its_keys_and_is_safe_for_data_and_bills(template: Template, name: str) -> None:
    table = template.one("AWS::DynamoDB::Table", name)
    assert {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]} == TABLES[name]
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["OnDemandThroughput"] == {"MaxWriteRequestUnits": 2000}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ExpiresAt", "Enabled": True}
    assert table["DeletionProtectionEnabled"] is True
    assert "StreamSpecification" not in table


def test_jobs_table_has_a_sparse_index_of_active_jobs(template: Template) -> None:
    (index,) = template.one("AWS::DynamoDB::Table", "StorageJobs")["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "ActiveJobs"
    assert [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]] == [
        ("Active", "HASH"),
        ("TrainingJobName", "RANGE"),
    ]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert index["OnDemandThroughput"] == {"MaxWriteRequestUnits": 2000}


def test_rows_have_an_index_of_what_fires_by_status_and_time(template: Template) -> None:
    (index,) = template.one("AWS::DynamoDB::Table", "StorageRuleState")["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["Status", "FiredAt"]
    assert "Reason" not in index["Projection"]["NonKeyAttributes"], "it changes with each evaluation"
    assert index["OnDemandThroughput"] == {"MaxWriteRequestUnits": 2000}


def test_bucket_is_private_encrypted_and_expires(template: Template) -> None:
    bucket = template.one("AWS::S3::Bucket", "StorageProfiles")
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"] == [
        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    ]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    to_queue = {"Event": "s3:ObjectCreated:*", "Queue": "{IngestDoorbells.Arn}"}
    assert bucket["NotificationConfiguration"] == {"QueueConfigurations": [to_queue]}
    (expiry,) = bucket["LifecycleConfiguration"]["Rules"]
    assert expiry["ExpirationInDays"] == 30
    assert expiry["Status"] == "Enabled"
    assert "VersioningConfiguration" not in bucket


@pytest.mark.parametrize(
    "policy",
    [
        "StorageProfilesPolicy",
        "IngestDoorbellsPolicy",
        "IngestDoorbellDeadLettersPolicy",
        "IngestEventDeadLettersPolicy",
        "ActionsAlertsPolicy",
        "MonitoringOperationsPolicy",
    ],
)
def test_plain_http_is_refused_by_buckets_queues_and_topics(template: Template, policy: str) -> None:
    refusals = [
        statement
        for name, statement, _ in template.resource_policy_statements()
        if name == policy and statement.effect == "Deny"
    ]
    assert [refusal.condition for refusal in refusals] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_data_outlives_the_stack_by_default(template: Template) -> None:
    keep = {"AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"}
    policies = {resource.name: resource.deletion_policy for resource in template.resources if resource.type in keep}
    assert set(policies.values()) == {"RetainExceptOnCreate"}, "a first deployment that fails must leave nothing"
    assert len(policies) == 24


# Of functions that log stops and brakes.
AUDITED = ("ActionsDecideStopLogs", "ActionsStopJobLogs", "EvaluationSchedulerLogs")


def test_given_the_log_groups_when_read_then_each_forgets(template: Template) -> None:
    groups = template.of_type("AWS::Logs::LogGroup")
    kept = {name: group.properties["RetentionInDays"] for name, group in groups.items()}
    audited = {name for name, days in kept.items() if days != 30}
    assert {name: kept[name] for name in audited} == dict.fromkeys(AUDITED, 400)
    assert len(kept) == 19


@pytest.mark.parametrize("topic", ["ActionsAlerts", "ActionsChat"])
def test_alert_topic_names_the_free_key_like_sns(template: Template, topic: str) -> None:
    """By the alias's ARN the key would not be found in an account that never encrypted a topic."""
    assert template.one("AWS::SNS::Topic", topic)["KmsMasterKeyId"] == "alias/aws/sns"


def test_cloudwatch_can_publish_to_the_alarm_topic(template: Template) -> None:
    topic = template.one("AWS::SNS::Topic", "MonitoringOperations")
    assert "KmsMasterKeyId" not in topic, "CloudWatch may not use the key that AWS manages for SNS"
    allowed = [
        (principal, statement.actions)
        for name, statement, principal in template.resource_policy_statements()
        if name == "MonitoringOperationsPolicy" and statement.effect == "Allow"
    ]
    services = ("cloudwatch.amazonaws.com", "events.amazonaws.com", "events.amazonaws.com")
    assert allowed == [({"Service": each}, ("sns:Publish",)) for each in services]
