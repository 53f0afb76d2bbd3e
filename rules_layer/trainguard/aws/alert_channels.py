"""The channels of alerts: a topic for mail, queues and functions, one for chats, and the event bus.

The bus has a finding as it is, and for a webhook the body that the stack's rule posts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.alert import ReadyAlert
from trainguard.stack.actions.marks import Channel
from trainguard.stack.actions.webhook import WEBHOOK_EVENT, WebhookService, webhook_event

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef


EVENT_SOURCE = "trainguard"
EVENT_TYPE = "TrainGuard Finding"


@dataclass(frozen=True, slots=True)
class AlertChannels:
    """The topics, by ARN, and the account's default bus; ``webhook`` is the service behind that of ``stack``."""

    sns: "SNSClient"
    events: "EventBridgeClient"
    alerts: str
    chat: str
    webhook: WebhookService = "json"
    stack: str = ""

    def send(self, channel: Channel, alert: ReadyAlert) -> None:
        if channel is Channel.BUS:
            put_event(self.events, EVENT_TYPE, msgspec.json.encode(alert.document))
        elif channel is Channel.WEBHOOK:
            put_event(self.events, WEBHOOK_EVENT, msgspec.json.encode(webhook_event(self.webhook, self.stack, alert)))
        elif channel is Channel.MAIL:
            publish(self.sns, self.alerts, alert.document, alert.attributes, mail=(alert.subject, alert.text))
        else:
            publish(self.sns, self.chat, alert.chat, alert.attributes)


def put_event(events: "EventBridgeClient", detail_type: str, detail: bytes, bus: str = "default") -> None:
    """Put an event of TrainGuard on a bus, by name or ARN; raises PortUnavailableError where it is refused."""
    entry: PutEventsRequestEntryTypeDef = {
        "Source": EVENT_SOURCE,
        "DetailType": detail_type,
        "Detail": detail.decode(),
        "EventBusName": bus,
    }
    with translated("EventBridge", "PutEvents"):
        answer = events.put_events(Entries=[entry])
    if answer["FailedEntryCount"]:
        (refused,) = answer["Entries"]
        raise PortUnavailableError("EventBridge", "PutEvents", f"{refused['ErrorCode']}: {refused['ErrorMessage']}")


def publish(
    sns: "SNSClient",
    topic: str,
    document: Mapping[str, Any],
    attributes: Mapping[str, str],
    mail: tuple[str, str] | None = None,
) -> None:
    """Publish a document, which chats read as it is; with ``mail``, subject and text, people get these."""
    named: dict[str, MessageAttributeValueTypeDef] = {
        name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
    }
    with translated("SNS", "Publish"):
        if mail is None:
            sns.publish(TopicArn=topic, Message=_json(document), MessageAttributes=named)
            return
        subject, text = mail
        machines = dict.fromkeys(("sqs", "lambda", "http", "https"), _json(document))
        sns.publish(
            TopicArn=topic,
            Subject=subject,
            MessageStructure="json",
            Message=_json({"default": text, "email": text, **machines}),
            MessageAttributes=named,
        )


def _json(document: Mapping[str, Any]) -> str:
    return msgspec.json.encode(document).decode()
