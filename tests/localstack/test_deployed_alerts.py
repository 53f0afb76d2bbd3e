"""An alert that the deployed stack could not send is sent by its operators: late, truly, once, and without a stop."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.localstack.emulator_kit import until
from tests.localstack.stack import PATIENCE_S, WEBHOOK_KEY, Job, Stack
from tests.localstack.test_deployed_stack import RULE, fire_of
from trainguard.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., tuple[int, Any]]

pytestmark = pytest.mark.localstack


@pytest.fixture
def alerts(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return `trainguard alerts` on the deployed stack: its exit code and its document."""
    for name, value in stack.emulator.environment().items():
        monkeypatch.setenv(name, value)

    def ask(*words: str) -> tuple[int, Any]:
        result = CliRunner().invoke(app, ["alerts", *words, "--json"])
        return result.exit_code, json.loads(result.stdout)

    return ask


def unsent(stack: Stack, name: str, *topics: str, allowed: bool = True, **fire: object) -> Job:
    """Return a job whose rule has fired while topics, named by their outputs, were gone."""
    job = Job(stack, "cpu_bottleneck", name, allowed=allowed)
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    with ExitStack() as gone:
        for topic in topics:
            gone.enter_context(stack.without_topic(topic))
        execution = stack.start_execution(f"{RULE}-fire-{name}", fire_of(job, f"fire-{name}", rule=RULE, **fire))
    assert execution.status == "FAILED"
    return job


def test_unsent_alert_sent_by_operators_goes_out_once_unstopped(stack: Stack, alerts: Ask) -> None:
    job = unsent(stack, "unsent", "AlertTopicArn", "ChatTopicArn")
    before = job.rows()[RULE]
    assert (before.get("AlertId"), job.stops(), job.alerts(RULE)) == (None, [None], [])

    code, listed = alerts("list", job.name)
    assert (code, [(each["state"], each["alert_id"]) for each in listed["alerts"]]) == (0, [("unsent", "fire-unsent")])
    code, sent = alerts("send", job.name)

    assert (code, [each["state"] for each in sent["alerts"]]) == (0, ["sent"])
    (alert,) = until(lambda: job.alerts(RULE), timeout_s=PATIENCE_S, what="the alert")
    row = job.rows()[RULE]
    assert (alert["alert_id"], alert["late"], alert["stop"]["made"]) == ("fire-unsent", True, True)
    assert (row["AlertId"], row["Action"]) == ("fire-unsent", f"alert sent late. {alert['action']}")
    assert {name: row[name] for name in row if name.startswith("Stop")} == {
        name: before[name] for name in before if name.startswith("Stop")
    }
    assert job.stops() == [None]
    (resent,) = [each for each in stack.executions("unsent") if each.name.startswith("resend-1-")]
    assert resent.status == "SUCCEEDED"

    assert alerts("send", job.name)[1]["alerts"] == []
    stack.await_quiet()
    assert len(job.alerts(RULE)) == 1
    assert len(stack.executions("resend-")) == len({each.name for each in stack.executions("resend-")})


def test_webhook_gets_each_alert_with_its_secret_once(stack: Stack) -> None:
    job = Job(stack, "cpu_bottleneck", "paged")
    until(job.item, timeout_s=PATIENCE_S, what="the job's item")
    fires = {kind: fire_of(job, "fire-paged", rule=RULE, kind=kind) for kind in ("fire", "cleared")}
    assert stack.posts is not None
    taken = stack.posts.taken
    for kind, fire in fires.items():
        fire["alertId"] = f"fire-paged-{kind}"
        assert stack.start_execution(f"{RULE}-{kind}-paged", fire).status == "SUCCEEDED"

    def posted() -> list[tuple[dict[str, str], Any]]:
        return [each for each in taken if each[1].get("dedup_key") == "fire-paged"]

    until(lambda: len(posted()) == 2, timeout_s=PATIENCE_S, what="both posts")
    assert {headers["Authorization"] for headers, _ in posted()} == {WEBHOOK_KEY}
    assert {body["routing_key"] for _, body in posted()} == {WEBHOOK_KEY}
    assert sorted(body["event_action"] for _, body in posted()) == ["resolve", "trigger"]
    stack.await_quiet()
    assert len(posted()) == 2
    assert WEBHOOK_KEY not in stack.emulator.client("cloudformation").get_template(StackName=stack.name)["TemplateBody"]


@pytest.mark.thorough
def test_missing_topic_is_reported_and_the_next_attempt_sends(stack: Stack, alerts: Ask) -> None:
    job = unsent(stack, "unsent-twice", "AlertTopicArn", allowed=False)
    with stack.without_topic("AlertTopicArn"):
        code, tried = alerts("send", job.name)
    (entry,) = tried["alerts"]
    assert (code, entry["state"], entry["attempts"]) == (1, "unsent", 0)
    assert entry["execution"].startswith("resend-1-")
    job.finish()

    code, sent = alerts("send", job.name)
    assert (code, [(each["state"], each["attempts"]) for each in sent["alerts"]]) == (0, [("sent", 1)])
    (alert,) = until(lambda: job.alerts(RULE), timeout_s=PATIENCE_S, what="the alert")
    assert (alert["alert_id"], alert["stop"]["decision"], job.stops()) == ("fire-unsent-twice", "refused", [])
    assert job.rows()[RULE]["AlertId"] == "fire-unsent-twice"


@pytest.mark.thorough
def test_unsent_later_notification_keeps_the_alert_id(stack: Stack, alerts: Ask) -> None:
    job = unsent(stack, "unsent-later", "ChatTopicArn", kind="cleared", alertId="fire-unsent-later-cleared")
    assert alerts("send", job.name)[0] == 0
    row = job.rows().get(RULE, {})
    assert row.get("AlertId") != "fire-unsent-later-cleared"
    stack.await_quiet()
    assert {(alert["kind"], alert["late"]) for alert in job.alerts(RULE)} == {("cleared", False)}
    assert job.stops() == []
    job.finish()
