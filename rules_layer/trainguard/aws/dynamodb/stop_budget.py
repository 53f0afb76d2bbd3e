"""The rate limit of stops in DynamoDB: one item of RuleState that no job can own."""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import Columns, map_of, record_of
from trainguard.aws.dynamodb.table import Table, decoding, row_key
from trainguard.core.errors import StateConflictError
from trainguard.stack.actions.stop_rate_limit import Stop, admit

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ALL_JOBS, STOPS = "*", "stops"
_KEY = row_key(ALL_JOBS, STOPS)
ITEM = f"RuleState/{ALL_JOBS}/{STOPS}"
ATTEMPTS = 4
_STOPS = map_of(record_of(Stop, {"job": ("Job", attributes.TEXT), "at": ("At", attributes.TIME)}))


class DynamoStopBudget:
    """The stops of the last hour, with fire, job and time; ``table`` may be another stack's ARN, in its Region."""

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        version = 0
        for _ in range(ATTEMPTS):
            version, stops = self._load()
            granted = admit(stops, fire_id, job, now=now, limit=limit)
            if granted is None:
                return False
            if granted == stops or self._table.put_version(_KEY | {"Stops": _STOPS.write(granted)}, version):
                return True
        raise StateConflictError(ITEM, version)

    def _load(self) -> tuple[int, dict[str, Stop]]:
        item = self._table.get(_KEY)
        if item is None:
            return 0, {}
        columns = Columns(item)
        with decoding(ITEM):
            return columns.get("Version", attributes.INTEGER), dict(columns.get("Stops", _STOPS))


def region_of(table: str) -> str | None:
    """Return the Region in a table's ARN; None for a mere name."""
    return table.split(":")[3] if table.startswith("arn:") else None
