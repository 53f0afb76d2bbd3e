"""The channels of alerts: a topic for mail, queues, functions and web hooks, one for chats, and the event bus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.alert import Alert
from trainguard.stack.actions.send_alert import Channel

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef


EVENT_SOURCE = "trainguard"
EVENT_TYPE = "TrainGuard Finding"


@dataclass(frozen=True, slots=True)
class AlertChannels:
    """The topics, by ARN, and the account's default bus."""

    sns: "SNSClient"
    events: "EventBridgeClient"
    alerts: str
    chat: str

    def send(self, channel: Channel, alert: Alert) -> None:
        if channel is Channel.BUS:
            self._put(alert)
            return
        with translated("SNS", "Publish"):
            if channel is Channel.MAIL:
                self.sns.publish(
                    TopicArn=self.alerts,
                    Subject=alert.subject,
                    MessageStructure="json",
                    Message=by_protocol(alert.text, _document(alert)),
                    MessageAttributes=_attributes(alert),
                )
            else:
                # Chats read the message as it is.
                message = msgspec.json.encode(alert.chat).decode()
                self.sns.publish(TopicArn=self.chat, Message=message, MessageAttributes=_attributes(alert))

    def _put(self, alert: Alert) -> None:
        entry: PutEventsRequestEntryTypeDef = {
            "Source": EVENT_SOURCE,
            "DetailType": EVENT_TYPE,
            "Detail": _document(alert),
        }
        with translated("EventBridge", "PutEvents"):
            answer = self.events.put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            (refused,) = answer["Entries"]
            raise PortUnavailableError("EventBridge", "PutEvents", f"{refused['ErrorCode']}: {refused['ErrorMessage']}")


def _document(alert: Alert) -> str:
    return msgspec.json.encode(alert.document).decode()


def by_protocol(text: str, document: str) -> str:
    """Return a message of SNS: the text for people, the document for machines."""
    machines = dict.fromkeys(("sqs", "lambda", "http", "https"), document)
    return msgspec.json.encode({"default": text, "email": text, **machines}).decode()


def _attributes(alert: Alert) -> "dict[str, MessageAttributeValueTypeDef]":
    return {name: {"DataType": "String", "StringValue": value} for name, value in alert.attributes.items()}
