"""The function that sends alerts as it is deployed, with the inputs that the state machine gives."""

import time

import pytest

from tests.functional.deployment import (
    ALERT_TOPIC,
    BRAKES,
    CHAT_TOPIC,
    JOB,
    Deployment,
    event,
)
from tests.functional.tables import BOOKKEEPING
from trainguard.aws.dynamodb.fire_path import DynamoSentAlerts
from trainguard.core.brakes import Braked, new_brake, written_brakes
from trainguard.core.text import LONGEST_SENTENCE, mail_line
from trainguard.core.timestamps import iso_time
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.marks import Channel
from trainguard.stack.actions.request import AlertRequest

FIRES = ["send_alert", "send_alert_stop_refused", "send_alert_stop_failed"]
ALERTS = [*FIRES, "send_alert_warning", "send_alert_escalation", "send_alert_cleared"]

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def topics(deployment: Deployment) -> None:
    """Make the topics of alerts."""
    for topic in (ALERT_TOPIC, CHAT_TOPIC):
        deployment.clients.sns.create_topic(Name=topic.rpartition(":")[2])


def test_warning_whose_stop_is_past_is_not_sent(deployment: Deployment) -> None:
    answer = deployment.function("send_alert")(event("send_alert_warning"))
    assert answer.value["sent"] is False
    assert answer.metrics == {}


@pytest.mark.usefixtures("topics")
def test_silenced_alert_is_marked_and_sent_after_the_brake(deployment: Deployment) -> None:
    brake = new_brake("b-1", Braked.ALERTS, by="ada", why="a storm", now=time.time())
    ssm = deployment.clients.ssm
    ssm.put_parameter(Name=BRAKES, Value=written_brakes([brake], now=time.time()), Type="String")
    given = event("send_alert_stop_refused") | {"execution": "first"}
    answer = deployment.function("send_alert")(given)
    assert (answer.value["sent"], answer.value["unsent"]) == (False, [])
    assert answer.value["outcome"]["action"].startswith("silenced by brake b-1 of ada")
    assert answer.metrics["AlertsSilenced"] == 1
    marks = DynamoSentAlerts(client=deployment.world.dynamodb, table=BOOKKEEPING)
    (mark,) = marks.silenced()
    assert (mark.alert_id, mark.execution, mark.silenced) == (given["fire"]["alertId"], "first", brake.words)
    assert mark == marks.mark(mark.alert_id)
    assert (set(mark.sent), mark.reached_people) == ({Channel.BUS}, False)
    ssm.delete_parameter(Name=BRAKES)
    assert deployment.function("send_alert")(given).value["sent"] is True
    assert marks.mark(mark.alert_id).reached_people


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("name", ALERTS)
def test_alert_is_what_topics_and_bus_take(deployment: Deployment, name: str) -> None:
    given = event(name)
    if "warning" in name:
        given["decision"]["stopAt"] = iso_time(time.time() + 600.0)
    answer = deployment.function("send_alert")(given).value
    assert (answer["sent"], answer["unsent"], answer["faults"], answer["waitUntil"]) == (True, [], [], None)
    named = given["fire"]["alertId"] + ("-warning" if "warning" in name else "")
    assert answer["outcome"]["alertId"] == named
    claims = deployment.world.entry("alerts", named)
    assert {"BusSentAt", "MailSentAt", "ChatSentAt", "ExpiresAt"} <= set(claims)
    assert not [column for column in claims if column.endswith("ClaimedUntil")]


def test_topics_that_are_gone_are_unsent_and_claimed_anew(deployment: Deployment) -> None:
    send = deployment.function("send_alert")
    answer = send(event("send_alert")).value
    assert [each.split(":")[0] for each in answer["unsent"]] == ["mail", "chat"]
    for topic in (ALERT_TOPIC, CHAT_TOPIC):
        deployment.clients.sns.create_topic(Name=topic.rpartition(":")[2])
    assert send(event("send_alert") | {"due": True, "last": True}).value["sent"] is True


def test_claims_are_taken_once_and_again_when_they_lapse(deployment: Deployment) -> None:
    sent = DynamoSentAlerts(client=deployment.world.dynamodb, table=BOOKKEEPING)
    mail = Channel.MAIL
    assert sent.claim("a", mail, now=100.0) == "taken"
    assert sent.claim("a", mail, now=140.0) == "busy"
    assert sent.claim("a", Channel.CHAT, now=140.0) == "taken"
    assert sent.claim("a", mail, now=146.0) == "taken"
    sent.settle("a", mail, sent_at=None)
    assert sent.claim("a", mail, now=147.0) == "taken"
    sent.settle("a", mail, sent_at=148.0)
    assert sent.claim("a", mail, now=9e6) == "sent"
    assert sent.claim("b", mail, now=147.0) == "taken"


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_its_job_its_links_and_its_attributes(name: str) -> None:
    given = event(name)
    alert = compose_alert(AlertRequest.read(given), now=0.0)
    assert alert.subject.isascii()
    assert alert.subject.isprintable()
    assert len(alert.subject) < 100
    made = given.get("stop", {"made": False})["made"]
    assert (alert.document["job"], alert.document["rule"]) == (JOB, given["fire"]["rule"])
    assert alert.document["stop"]["made"] is made
    assert given["fire"]["reason"] in alert.text
    assert f"\nOpen it in the console: {given['fire']['reportLink']}\n" in alert.text
    assert f"\nOr with a link: trainguard open {JOB}\n" in alert.text
    assert alert.attributes == {
        "AlertId": alert.alert_id,
        "Job": JOB,
        "Rule": "LowGPUUtilization",
        "Kind": given["fire"]["kind"],
        "Severity": given["fire"]["severity"],
        "Stopped": "true" if made else "false",
    }


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("send_alert", "Training job stopped: "),
        ("send_alert_stop_refused", "Training job not stopped: "),
        ("send_alert_stop_failed", "Stopping the training job failed: SageMaker.AccessDeniedException"),
    ],
)
def test_text_document_and_row_agree_about_the_stop(name: str, action: str) -> None:
    alert = compose_alert(AlertRequest.read(event(name)), now=0.0)
    assert alert.action.startswith(action)
    assert mail_line(f"Action: {alert.action}", LONGEST_SENTENCE) in alert.text.split("\n")
    assert alert.document["action"] == alert.action
