"""weekly_digest as it is deployed, on moto: jobs and rows in the tables, messages on both topics."""

import json
from dataclasses import replace
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.sns.models import sns_backends

from tests.functional.deployment import ALERT_TOPIC, CHAT_TOPIC, Deployment
from tests.functional.offline import REGION
from tests.functional.tables import RULE_STATE
from tests.support.fleets import HOUR_S, MONDAY, found, job, report_row

TIME = {"time": "2026-11-30T08:00:00Z"}
IN_WEEK = replace(job("starved", began=MONDAY), owners={"user": "ann"})


@pytest.fixture
def topics(deployment: Deployment) -> Deployment:
    for arn in (ALERT_TOPIC, CHAT_TOPIC):
        sns_backends[DEFAULT_ACCOUNT_ID][REGION].create_topic(arn.rpartition(":")[2])
    return deployment


def sent(arn: str) -> list[tuple[str, str | None, Any]]:
    """Return message, subject and attributes of what was published on a topic."""
    topic = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics[arn]
    return [(message, subject, attributes) for _, message, subject, attributes, *_ in topic.sent_notifications]


def test_weekly_digest_is_sent_to_both_topics(topics: Deployment) -> None:
    later = job("later", began=MONDAY + 7 * 24 * HOUR_S)
    canary = "trainguard-canary-20261124-060000"
    for each in (IN_WEEK, later, replace(job(canary), arn=f"unknown:{canary}")):
        topics.world.jobs.register(each)
        topics.world.rows.publish([report_row(each, lost=60.0), found(each)])
    answer = topics.function("weekly_digest")(TIME)
    assert answer.value == {"week": "2026-11-23", "jobs": 1, "with_findings": 1}
    ((message, subject, attributes),) = sent(ALERT_TOPIC)
    assert subject == "TrainGuard: USD 22.95 wasted in the week of 2026-11-23 (TrainGuard, us-east-1)"
    assert attributes == {"Kind": {"Type": "String", "Value": "digest"}}
    forms = json.loads(message)
    assert "- starved: USD 22.95 of 38.25; LowGPUUtilization (user ann)" in forms["email"]
    assert forms["default"] == forms["email"]
    assert json.loads(forms["sqs"])["jobs"][0]["job"] == "starved"
    ((message, _, _),) = sent(CHAT_TOPIC)
    assert json.loads(message)["source"] == "custom"


def test_week_without_jobs_sends_a_short_digest(topics: Deployment) -> None:
    topics.function("weekly_digest")(TIME)
    ((message, subject, _),) = sent(ALERT_TOPIC)
    assert subject == "TrainGuard: no job ended in the week of 2026-11-23 (TrainGuard, us-east-1)"
    assert "No job ended, so nothing is known to be wasted." in json.loads(message)["email"]


def test_missing_table_sends_no_digest_and_fails_the_attempt(
    topics: Deployment,
) -> None:
    topics.world.jobs.register(IN_WEEK)
    topics.clients.dynamodb.delete_table(TableName=RULE_STATE)
    with pytest.raises(Exception, match="DynamoDB"):
        topics.function("weekly_digest")(TIME)
    assert sent(ALERT_TOPIC) == sent(CHAT_TOPIC) == []
