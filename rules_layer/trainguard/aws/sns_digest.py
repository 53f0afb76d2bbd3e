"""Publishes a week's digest on the topics of alerts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.alert_channels import by_protocol
from trainguard.aws.aws_errors import translated
from trainguard.core.text import plain_document
from trainguard.report.fleet.weekly_digest import WeeklyDigest, chat, mail, subject

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef

DIGEST_KIND = "digest"
_LONGEST_TEXT = 1_000


@dataclass(frozen=True, slots=True)
class SnsDigests:
    """The topics of alerts: ``alerts`` for mail, queues and functions, ``chat`` for chats."""

    client: "SNSClient"
    alerts: str
    chat: str

    def publish(self, digest: WeeklyDigest) -> None:
        """Publish on both topics, chats first, so that a repeat sends no second mail; raises PortUnavailableError."""
        attributes: dict[str, MessageAttributeValueTypeDef] = {
            "Kind": {"DataType": "String", "StringValue": DIGEST_KIND}
        }
        document = msgspec.json.encode(plain_document(msgspec.to_builtins(digest), _LONGEST_TEXT)).decode()
        with translated("SNS", "Publish"):
            notification = msgspec.json.encode(chat(digest)).decode()
            self.client.publish(TopicArn=self.chat, Message=notification, MessageAttributes=attributes)
            self.client.publish(
                TopicArn=self.alerts,
                Subject=subject(digest),
                MessageStructure="json",
                Message=by_protocol(mail(digest), document),
                MessageAttributes=attributes,
            )
