"""The message for chats: the form that the service reads, short, and nothing in it that pings or links by itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.actions.test_alert import FIRE, alert_input
from trainguard.core.records import AlertKind
from trainguard.core.text import chat_escaped, chat_line
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest


def message(**fire: Any) -> Any:
    alert = compose_alert(AlertRequest(alert_input(**(FIRE | fire))), now=0.0)
    return dict(alert.chat)


@pytest.mark.parametrize("kind", AlertKind)
def test_every_kind_has_the_custom_notification_form(kind: AlertKind) -> None:
    said = message(kind=kind, severity="high", cost="about USD 12.40", advice="Prefetch.")
    assert (said["version"], said["source"]) == ("1.0", "custom")
    assert set(said) == {"version", "source", "id", "content", "metadata"}
    assert set(said["content"]) == {"textType", "title", "description", "nextSteps", "keywords"}
    assert said["content"]["textType"] == "client-markdown"
    assert set(said["metadata"]) == {"threadId", "summary", "eventType", "relatedResources", "additionalContext"}
    assert all(isinstance(each, str) and each for each in said["metadata"]["additionalContext"].values())
    assert FIRE["job"] in said["content"]["title"]
    assert FIRE["reason"] in said["content"]["description"]


def test_messages_of_one_finding_share_a_thread_with_own_ids() -> None:
    told = [message(), message(kind=AlertKind.WARNING), message(kind=AlertKind.CLEARED, alert_id="f-cleared")]
    assert {each["metadata"]["threadId"] for each in told} == {FIRE["fire_id"]}
    assert len({each["id"] for each in told}) == 3


def test_advice_and_link_become_the_next_steps() -> None:
    said = message(advice="Prefetch more.")
    assert said["content"]["nextSteps"] == ["Prefetch more.", f"Open the report: {chat_escaped(FIRE['report_link'])}"]
    assert message(report_link=None)["content"]["nextSteps"] == ["Open the report: trainguard open bert"]


def test_chat_message_of_a_pending_stop_says_how_to_avert_it() -> None:
    steps = message(kind=AlertKind.WARNING, advice="Prefetch.")["content"]["nextSteps"]
    assert steps[0].startswith("To keep it running: remove its tag trainguard:stop-on-fire from the job")
    assert steps[1] == "Prefetch."
    assert not any("To keep it running" in step for step in message()["content"]["nextSteps"])


@given(reason=st.text(max_size=5_000), job=st.text(max_size=300), advice=st.text(max_size=5_000))
def test_chat_message_stays_short_and_mentions_nobody(reason: str, job: str, advice: str) -> None:
    content = message(reason=reason, job=job, advice=advice, cost=reason)["content"]
    shown = [content["title"], content["description"], *content["nextSteps"], *content["keywords"]]
    # An escaped sign is longer than the sign.
    assert len(content["title"]) < 5 * 250
    assert all(len(each.replace("&amp;", "&")) < 5 * 3_000 for each in shown)
    assert not any("<" in each or ">" in each for each in shown)
    assert not any(f"@{name}" in each for each in shown for name in ("here", "channel", "everyone", "Amazon"))


def test_markup_and_mentions_are_shown_literally() -> None:
    assert chat_line("<!channel> @here a&b") == "&lt;!channel&gt; @\u200bhere a&amp;b"
    assert chat_line("x" * 10, 5) == "xxxx…"


def test_run_pages_become_next_steps() -> None:
    links = {"Weights & Biases": "https://wandb.ai/a/b/runs/c?x=1&y=2", "run": "https://a/@channel"}
    steps = message(run_links=links)["content"]["nextSteps"]
    assert steps[1:] == ["Run in Weights &amp; Biases: https://wandb.ai/a/b/runs/c?x=1&amp;y=2"]
