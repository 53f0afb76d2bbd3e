"""An alert reaches each channel once, whatever becomes of the others, and goes out bare where it cannot be composed."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.memory import MemoryJournal
from trainguard.aws.alert_channels import AlertChannels
from trainguard.core.brakes import Brake, Braked, BrakeList, new_brake
from trainguard.core.errors import PortUnavailableError
from trainguard.core.text import chat_escaped
from trainguard.core.timestamps import epoch_of
from trainguard.stack.actions.alert import ReadyAlert
from trainguard.stack.actions.marks import Channel, Claim
from trainguard.stack.actions.send_alert import AlertSender, AlertUnsentError
from trainguard.stack.actions.webhook import webhook_event

NOW = epoch_of("2026-07-14T10:00:00.000Z")
CALL: dict[str, Any] = json.loads((Path(__file__).parents[3] / "events" / "send_alert.json").read_text("utf-8"))
FIRE = CALL["fire"]
ALL = [Channel.BUS, Channel.MAIL, Channel.CHAT]
QUIET = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "start": "00:00", "end": "23:59", "timezone": "UTC"}


@dataclass
class Network:
    """Channels and claims, of which some are down or taken by another invocation."""

    down: set[Channel] = field(default_factory=set)
    busy: set[Channel] = field(default_factory=set)
    claims_fail: bool = False
    sent: list[Channel] = field(default_factory=list)
    alerts: list[ReadyAlert] = field(default_factory=list)
    settled: set[tuple[str, Channel]] = field(default_factory=set)
    brakes: tuple[Brake, ...] = ()
    silenced: list[tuple[str, str]] = field(default_factory=list)

    def send(self, channel: Channel, alert: ReadyAlert) -> None:
        if channel in self.down:
            raise PortUnavailableError("SNS", "Publish", "it is down")
        self.sent.append(channel)
        self.alerts.append(alert)

    def claim(self, alert_id: str, channel: Channel, *, now: float) -> Claim:
        assert now == NOW
        if self.claims_fail:
            raise PortUnavailableError("DynamoDB", "UpdateItem", "it is down")
        if channel in self.busy:
            return "busy"
        return "sent" if (alert_id, channel) in self.settled else "taken"

    def settle(self, alert_id: str, channel: Channel, *, sent_at: float | None) -> None:
        if self.claims_fail:
            raise PortUnavailableError("DynamoDB", "UpdateItem", "it is down")
        if sent_at is not None:
            self.settled.add((alert_id, channel))

    def silence(self, alert_id: str, *, why: str, execution: str, now: float) -> None:
        assert now == NOW
        if self.claims_fail:
            raise PortUnavailableError("DynamoDB", "UpdateItem", "it is down")
        self.silenced.append((alert_id, execution))
        assert why == self.brakes[0].words


def send(network: Network, journal: MemoryJournal | None = None, /, **call: Any) -> dict[str, Any]:
    brakes = BrakeList(network.brakes)
    sender = AlertSender(network, network, journal or MemoryJournal(), lambda: brakes)
    return sender.send(CALL | {"execution": "first"} | call, now=NOW)


def about(**fire: Any) -> dict[str, Any]:
    return {**FIRE, **fire}


def policy(**alerts: Any) -> dict[str, Any]:
    return {"alerts": {"staged": [], "muted": [], "quiet_hours": []} | alerts}


def test_fire_goes_out_on_every_channel_once() -> None:
    network = Network()
    answer = send(network)
    assert network.sent == ALL
    assert (answer["sent"], answer["unsent"], answer["faults"], answer["waitUntil"]) == (True, [], [], None)
    assert answer["outcome"]["alertId"] == FIRE["alertId"]
    assert answer["outcome"]["action"].startswith("Training job stopped: ")
    assert send(network) == answer
    assert network.sent == ALL


@pytest.mark.parametrize("channel", ALL)
def test_channel_that_is_down_holds_up_no_other(channel: Channel) -> None:
    network = Network(down={channel})
    answer = send(network)
    assert network.sent == [each for each in ALL if each is not channel]
    assert answer["unsent"] == [f"{channel}: SNS.Publish failed: it is down"]
    assert answer["sent"] is (channel is Channel.BUS)
    assert (answer["outcome"]["alertId"] is None) is (channel is Channel.MAIL)
    network.down.clear()
    assert send(network, due=True, last=True)["unsent"] == []
    assert sorted(network.sent) == sorted(ALL)


def test_alert_that_the_chat_lacks_says_so_in_the_row() -> None:
    outcome = send(Network(down={Channel.CHAT}))["outcome"]
    assert outcome["action"].startswith("Training job stopped: ")
    assert outcome["action"].endswith(" No alert in the chat (chat: SNS.Publish failed: it is down).")


REFUSED = {"decision": {"decision": "refused", "why": "no tag"}, "stop": {"made": False}}


def brake(what: Braked = Braked.ALERTS, **more: Any) -> Brake:
    return new_brake("b-1", what, by="arn:aws:sts::1:assumed-role/Ops/ada", why="a storm", now=NOW - 60.0, **more)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("scope", [{}, {"job": FIRE["job"]}, {"rule": FIRE["rule"]}, {"until": NOW + 1.0}])
def test_brake_silences_an_alert_and_loses_nothing(scope: dict[str, Any], bare: bool) -> None:
    network = Network(brakes=(brake(**scope),))
    answer = send(network, **REFUSED, fire=about(firedAt="never") if bare else FIRE)
    assert (network.sent, answer["sent"], answer["unsent"]) == ([Channel.BUS], False, [])
    assert network.silenced == [(FIRE["alertId"], "first")]
    assert answer["outcome"]["alertId"] is None
    until = "2026-07-14T10:00:01.000Z" if "until" in scope else "it is released"
    assert answer["outcome"]["action"].startswith(f"silenced by brake b-1 of ada until {until}: a storm")
    assert bare or network.alerts[0].document["withheld"].startswith("silenced by brake b-1")
    network.brakes = ()
    assert send(network, **REFUSED)["sent"]
    assert network.sent == ALL


@pytest.mark.parametrize(
    "other",
    [
        brake(job="other"),
        brake(rule="Other"),
        brake(Braked.STOPS),
        brake(Braked.EVALUATION),
        msgspec.structs.replace(brake(), until="2026-07-14T10:00:00.000Z"),
    ],
)
def test_brake_of_another_kind_job_or_time_silences_nothing(other: Brake) -> None:
    assert send(Network(brakes=(other,)), **REFUSED)["sent"]


def test_alert_of_a_stop_is_sent_in_spite_of_a_brake() -> None:
    network = Network(brakes=(brake(),))
    assert send(network)["sent"]
    assert network.silenced == []


def test_alert_whose_silence_cannot_be_noted_is_tried_again() -> None:
    network = Network(brakes=(brake(),), claims_fail=True)
    with pytest.raises(PortUnavailableError):
        send(network, **REFUSED)
    assert network.sent == []


def test_alert_that_nothing_could_send_later_is_not_silenced() -> None:
    assert send(Network(brakes=(brake(),)), **REFUSED, execution=None)["sent"]


def test_failed_mail_and_its_stop_stand_in_the_row() -> None:
    outcome = send(Network(down={Channel.MAIL}))["outcome"]
    assert outcome["action"].startswith("alert failed (mail: SNS.Publish")
    assert outcome["action"].endswith("; training job stopped: yes")


def test_channel_in_use_by_another_invocation_is_not_used() -> None:
    network = Network(busy={Channel.MAIL})
    assert send(network)["unsent"] == ["mail: another invocation is sending it"]
    assert network.sent == [Channel.BUS, Channel.CHAT]


def test_unsent_alert_fails_the_last_call() -> None:
    with pytest.raises(AlertUnsentError, match=r"mail: SNS\.Publish failed"):
        send(Network(down={Channel.MAIL}), due=True, last=True)


def test_alert_goes_out_where_no_claim_can_be_made() -> None:
    network = Network(claims_fail=True)
    answer = send(network)
    assert (network.sent, answer["sent"], answer["unsent"]) == (ALL, True, [])
    assert len(answer["faults"]) == 2 * len(ALL)


def test_quiet_hours_let_the_bus_hear_at_once_and_people_later() -> None:
    network = Network()
    quiet = {
        "fire": about(severity="low", policy=policy(quiet_hours=[QUIET])),
        "decision": {"decision": "refused"},
        "stop": {"made": False},
    }
    answer = send(network, **quiet)
    assert (network.sent, answer["sent"], answer["waitUntil"]) == ([Channel.BUS], False, "2026-07-14T23:59:00.000Z")
    assert answer["outcome"]["action"].startswith("alert waits until 2026-07-14T23:59:00.000Z")
    assert answer["outcome"]["alertId"] is None
    assert send(network, **quiet, due=True)["sent"] is True
    assert network.sent == ALL


def test_staged_rule_is_heard_on_the_bus_alone() -> None:
    network = Network()
    answer = send(network, fire=about(policy=policy(staged=["all"])))
    assert (network.sent, answer["sent"], answer["unsent"]) == ([Channel.BUS], False, [])
    assert answer["outcome"] == {"action": "staged: nobody paged", "alertId": None}


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("proof", [{"jobArn": "unknown:canary"}, {"canary": True}])
def test_canary_reaches_no_chat_and_ignores_brakes(proof: dict[str, Any], bare: bool) -> None:
    job = "trainguard-canary-20260714-060000-0123456789ab"
    network = Network(brakes=(brake(),))
    send(network, execution="e", fire=about(job=job, **proof, **({"policy": 1} if bare else {})))
    assert network.sent == [Channel.BUS, Channel.MAIL]
    assert network.alerts[0].attributes["Kind"] == "canary"


def test_warning_that_cannot_be_composed_is_not_sent() -> None:
    network = Network()
    with pytest.raises(Exception, match="policy"):
        send(network, fire=about(kind="warning", policy=1))
    assert network.sent == []


def test_late_alert_tells_the_stop_that_its_input_has() -> None:
    network = Network()
    resend = {"of": "one", "attempt": 1, "decision": {"decision": "stop", "stop": True}, "stop": {"made": None}}
    send(network, fire=about(resend=resend), decision={}, stop={"made": False})
    assert network.alerts[0].attributes["Stopped"] == "unknown"


@pytest.mark.parametrize(("due", "counted"), [(False, 1), (True, 0)])
def test_stop_is_counted_by_the_first_call(due: bool, counted: int) -> None:
    journal = MemoryJournal()
    send(Network(), journal, due=due)
    assert [entry.what for entry in journal.entries] == ["stops_made"] * counted


def bare(network: Network | None = None, **call: Any) -> ReadyAlert:
    """Return the alert of a call whose policy cannot be read."""
    network = network or Network()
    fire = call.pop("fire", FIRE)
    send(network, **call, fire={**fire, "episode": "none"})
    return network.alerts[0]


@pytest.mark.parametrize(
    ("made", "said", "value"), [(True, "yes", "true"), (False, "no", "false"), (None, "unknown", "unknown")]
)
def test_bare_alert_says_the_truth_about_the_stop(made: bool | None, said: str, value: str) -> None:
    alert = bare(stop={"made": made, "error": None})
    assert FIRE["reason"] in alert.text
    assert f"\nTraining job stopped: {said}\n" in alert.text
    assert f"\nReport: {FIRE['reportPage']}\nOpen it in the console: {FIRE['reportLink']}\n" in alert.text
    assert alert.text.endswith(f"\nOr with a link: trainguard open {FIRE['job']}")
    assert alert.attributes == {
        "AlertId": FIRE["alertId"],
        "Job": FIRE["job"],
        "Rule": FIRE["rule"],
        "Kind": "fire",
        "Severity": FIRE["severity"],
        "Stopped": value,
    }
    assert (alert.document["stopMade"], alert.document["fireId"]) == (made, FIRE["fireId"])


def test_bare_alert_names_its_fault_and_is_sent_everywhere() -> None:
    network = Network()
    answer = send(network, fire=about(episode="none"))
    assert network.sent == ALL
    assert answer["faults"][0].startswith("ComposeAlert: ValidationError in ")
    assert answer["outcome"] == {
        "action": "alert sent without its details; training job stopped",
        "alertId": FIRE["alertId"],
    }


@pytest.mark.parametrize(
    ("alerts", "kind", "stop", "sent"),
    [
        ({"staged": ["LowGPUUtilization"]}, "fire", False, False),
        ({"staged": ["all"]}, "fire", True, False),
        ({"staged": ["CPUBottleneck"], "muted": ["CPUBottleneck"]}, "fire", False, True),
        ({"muted": ["LowGPUUtilization"]}, "fire", False, False),
        ({"muted": ["all"]}, "fire", True, True),
        ({"staged": ["all"], "muted": ["all"]}, "notice", False, True),
        (None, "fire", False, True),
    ],
)
def test_bare_alert_obeys_staged_and_muted_rules(alerts: Any, kind: str, stop: bool, sent: bool) -> None:
    network = Network()
    fire = about(kind=kind, policy=None if alerts is None else policy(**alerts))
    bare(network, fire=fire, decision={"stop": stop}, stop={"made": False, "error": "denied"})
    assert network.sent == (ALL if sent else [Channel.BUS])
    assert ("\nStopping it failed: denied\n" in network.alerts[0].text) is stop


def test_bare_alert_mentions_nobody_in_chats() -> None:
    alert = bare(fire=about(node="<!channel>", reason="@here <https://evil|a&b> " + "x" * 9_000))
    content = alert.chat["content"]
    assert content["title"] == chat_escaped(f"TrainGuard: {FIRE['rule']} fired on {FIRE['job']}")
    assert not {"<", "@h"} & {content["description"][:1], content["description"][1:3]}
    assert "<!channel>" not in content["description"]
    assert len(content["description"]) < 3_000
    assert len(alert.subject) < 100


def test_bare_alert_of_a_later_notification_has_its_kind() -> None:
    alert = bare(fire=about(kind="cleared", alertId="3f1c-cleared", severity=None))
    assert alert.subject == f"TrainGuard: {FIRE['rule']} (cleared) on {FIRE['job']}"[:99]
    assert (alert.attributes["Kind"], alert.attributes["Severity"]) == ("cleared", "unknown")


class Services:
    """SNS and EventBridge, which note what they are given."""

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused
        self.messages: list[dict[str, Any]] = []
        self.entries: list[dict[str, Any]] = []

    def publish(self, **message: Any) -> None:
        self.messages.append(message)

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803  # AWS's name.
        self.entries += Entries
        return {"FailedEntryCount": self.refused, "Entries": [{"ErrorCode": "Throttled", "ErrorMessage": "later"}]}


def deliver(services: Services) -> ReadyAlert:
    alert = bare()
    channels = AlertChannels(services, services, "arn:alerts", "arn:chat", "slack", "Lab")  # type: ignore[arg-type]
    for channel in Channel:
        channels.send(channel, alert)
    return alert


def test_channels_get_the_forms_that_they_read() -> None:
    services = Services()
    alert = deliver(services)
    mail, chat = services.messages
    assert (mail["TopicArn"], mail["Subject"], mail["MessageStructure"]) == ("arn:alerts", alert.subject, "json")
    body = json.loads(mail["Message"])
    assert body["default"] == body["email"] == alert.text
    assert json.loads(body["sqs"]) == json.loads(body["lambda"]) == json.loads(body["https"]) == alert.document
    assert (chat["TopicArn"], json.loads(chat["Message"])) == ("arn:chat", alert.chat)
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in alert.attributes.items()}
    assert mail["MessageAttributes"] == chat["MessageAttributes"] == attributes
    entry, posted = services.entries
    assert (entry["Source"], entry["DetailType"]) == ("trainguard", "TrainGuard Finding")
    assert json.loads(entry["Detail"]) == alert.document
    assert (posted["Source"], posted["DetailType"]) == ("trainguard", "TrainGuard Webhook")
    assert json.loads(posted["Detail"]) == webhook_event("slack", "Lab", alert)


def test_event_that_the_bus_refuses_is_an_error() -> None:
    with pytest.raises(PortUnavailableError, match="Throttled: later"):
        deliver(Services(refused=1))
