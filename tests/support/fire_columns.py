"""The columns that the fire path writes into a rule's row."""

import re
from typing import Any

from tests.support.fires import fire_of
from trainguard.aws.dynamodb.fire_path import DynamoFireRows
from trainguard.stack.actions.request import StopDecision

_FIRE = fire_of("job", "arn", "BatchSize", at=0.0)


class _Client:
    """Takes every write, and notes which columns it sets."""

    def __init__(self) -> None:
        self.columns: set[str] = set()

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Take a write."""
        names = re.findall(r"(#c\d+) = :", request["UpdateExpression"])
        self.columns |= {request["ExpressionAttributeNames"][name] for name in names}
        return {}


def fire_columns() -> set[str]:
    """Return what is set by all that the fire path records."""
    client: Any = _Client()
    rows = DynamoFireRows(client=client, table="RuleState")
    rows.mark(_FIRE)
    rows.record_decision(_FIRE, StopDecision(), now=0.0)
    rows.record_stop(_FIRE, StopDecision(), made=True, now=0.0)
    rows.record_alert(_FIRE, "sent", "a", now=0.0)
    rows.record_report(_FIRE, "s3://page")
    columns: set[str] = client.columns
    return columns
