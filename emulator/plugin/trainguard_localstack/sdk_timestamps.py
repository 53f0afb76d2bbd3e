"""Step Functions' SDK integrations give timestamps as ISO 8601 text; LocalStack 4.9.2 leaves Python's datetimes.

A datetime cannot be handed to a Lambda function, nor parsed by JSONata.
"""

from __future__ import annotations

import datetime
from typing import Any

from localstack.services.stepfunctions.asl.component.state.state_execution.state_task.service import (
    state_task_service_aws_sdk as sdk,
)


def with_text_timestamps(value: Any) -> Any:
    """Return a copy of `value` in which each datetime is text like ``2026-01-31T23:59:59.123Z``."""
    if isinstance(value, dict):
        return {name: with_text_timestamps(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_text_timestamps(member) for member in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def install() -> None:
    normalise = sdk.StateTaskServiceAwsSdk._normalise_response

    def normalise_with_text(task: sdk.StateTaskServiceAwsSdk, response: Any, *args: Any, **kwargs: Any) -> None:
        normalise(task, response, *args, **kwargs)
        if isinstance(response, dict):
            response.update(with_text_timestamps(response))

    sdk.StateTaskServiceAwsSdk._normalise_response = normalise_with_text
