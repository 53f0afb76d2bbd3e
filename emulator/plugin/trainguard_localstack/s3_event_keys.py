"""EventBridge events of S3 carry the object's key as it is; LocalStack 4.9.2 URL-encodes it.

On AWS only the classic notifications (to SQS, SNS and Lambda) encode keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import unquote

from localstack.services.s3.notifications import EventBridgeNotifier, S3EventNotificationContext


def install() -> None:
    payload = EventBridgeNotifier._get_event_payload

    def payload_with_plain_key(context: S3EventNotificationContext, config_id: str | None = None) -> Any:
        return payload(dataclasses.replace(context, key_name=unquote(context.key_name)), config_id)

    EventBridgeNotifier._get_event_payload = staticmethod(payload_with_plain_key)
