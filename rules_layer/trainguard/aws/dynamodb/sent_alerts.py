"""Which alerts were sent on which channels: items of RuleState in a partition that no job can own.

A sender claims the channel first, for as long as the function may run. So of two senders of one alert one sends, a
repeat sends nothing, and a claim of one that died ends.
"""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb.attributes import integer, moment
from trainguard.aws.dynamodb.table import Table, row_key
from trainguard.stack.actions.send_alert import Channel, Claim

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from trainguard.aws.dynamodb.attributes import AttributeValue

ALERTS = "*alerts"
"""A job's name has no asterisk."""

KEPT_S = 90 * 86_400
"""As long as Step Functions knows the names of executions that have ended."""


class DynamoSentAlerts:
    """Claims on the channels of alerts; ``lease_s`` is longer than an invocation may take, seconds."""

    def __init__(self, *, client: "DynamoDBClient", table: str, lease_s: int) -> None:
        self._table = Table(client=client, name=table)
        self._lease_s = lease_s

    def claim(self, alert_id: str, channel: Channel, *, now: float) -> Claim:
        claimed, sent = _columns(channel)
        free = f"attribute_not_exists(#{sent}) AND (attribute_not_exists(#{claimed}) OR #{claimed} < :now)"
        columns = {
            claimed: integer(int(now) + self._lease_s),
            "ExpiresAt": integer(int(now) + KEPT_S),
        }
        if self._table.update(row_key(ALERTS, alert_id), columns, free, {":now": integer(int(now))}):
            return Claim.TAKEN
        return Claim.SENT if sent in (self._table.get(row_key(ALERTS, alert_id)) or {}) else Claim.BUSY

    def settle(self, alert_id: str, channel: Channel, *, sent_at: float | None) -> None:
        claimed, sent = _columns(channel)
        columns: dict[str, AttributeValue | None] = {claimed: integer(0)}
        if sent_at is not None:
            columns = {claimed: None, sent: moment(sent_at)}
        self._table.update(row_key(ALERTS, alert_id), columns, f"attribute_not_exists(#{sent})")


def _columns(channel: Channel) -> tuple[str, str]:
    """Return the columns of a claim and of the time at which an alert was sent."""
    return f"{channel.value.capitalize()}ClaimedUntil", f"{channel.value.capitalize()}SentAt"
