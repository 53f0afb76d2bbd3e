"""Publishes a week's digest on the topics of alerts."""

from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.alert_channels import publish
from trainguard.core.text import plain_document
from trainguard.report.fleet.weekly_digest import WeeklyDigest, chat, mail, subject

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

_LONGEST_TEXT = 1_000
_ATTRIBUTES = {"Kind": "digest"}


def publish_digest(digest: WeeklyDigest, sns: "SNSClient", *, alerts: str, chats: str) -> None:
    """Publish on both topics, chats first, so that a repeat sends no second mail; raises PortUnavailableError."""
    document = plain_document(msgspec.to_builtins(digest), _LONGEST_TEXT)
    publish(sns, chats, chat(digest), _ATTRIBUTES)
    publish(sns, alerts, document, _ATTRIBUTES, mail=(subject(digest), mail(digest)))
