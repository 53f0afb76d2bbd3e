"""The fire path's columns of RuleState, each written under its condition."""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb.attributes import flag, integer, moment, text
from trainguard.aws.dynamodb.table import Table, row_key
from trainguard.core.records import AlertKind
from trainguard.stack.actions.fire_row import Fire, Recorded
from trainguard.stack.actions.request import StopDecision

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from trainguard.aws.dynamodb.attributes import AttributeValue

_OF_ALERT = ("Action", "ActionAt", "AlertId")

_ANOTHER_FIRE = "(attribute_not_exists(#FireId) OR #FireId <> :fire)"
_NO_NEWER_FIRE = "(attribute_not_exists(#FireEpisode) OR #FireEpisode <= :episode OR #FireJobArn <> :arn)"
"""A job that SageMaker lists later gets another ARN, and counts its episodes from the start."""

_NEW = f"{_ANOTHER_FIRE} AND {_NO_NEWER_FIRE}"
_NOT_OVER = "(attribute_not_exists(#EvaluatedThrough) OR #EvaluatedThrough <= :at OR #Status = :fired)"
_OWN = "(#FireId = :fire OR (attribute_not_exists(#FireId) AND attribute_exists(#Status)))"
"""A row is of this fire; it may name none where the mark failed."""

_NOT_MADE = "(attribute_not_exists(#StopMade) OR #StopMade <> :true OR #StopFireId <> :fire)"


class DynamoFireRows:
    """Writes the columns of the fire path; see `FireRows`."""

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def mark(self, fire: Fire) -> None:
        key = row_key(fire.job, fire.rule)
        named: dict[str, AttributeValue | None] = {
            "FireId": text(fire.fire_id),
            "FireEpisode": integer(fire.episode),
            "FireJobArn": text(fire.job_arn),
            **dict.fromkeys(_OF_ALERT),
        }
        fired: dict[str, AttributeValue | None] = {
            "Status": text("FIRED"),
            "DebuggerStatus": text("IssuesFound"),
            "Reason": text(fire.reason),
            "FiredAt": text(fire.fired_at),
        }
        values = {
            ":fire": text(fire.fire_id),
            ":episode": integer(fire.episode),
            ":arn": text(fire.job_arn),
        }
        more = {":at": text(fire.fired_at), ":fired": text("FIRED")}
        if not self._table.update(key, fired | named, f"{_NEW} AND {_NOT_OVER}", values | more):
            self._table.update(key, named, _NEW, values)

    def record_decision(self, fire: Fire, decision: StopDecision, *, now: float) -> Recorded:
        columns = {**_decided(fire, decision, now), "StopMade": None}
        values = {":fire": text(fire.fire_id), ":true": flag(True)}
        if self._table.update(row_key(fire.job, fire.rule), columns, f"{_OWN} AND {_NOT_MADE}", values):
            return Recorded.WRITTEN
        row = self._table.get(row_key(fire.job, fire.rule)) or {}
        is_own = row.get("FireId", text(fire.fire_id)) == row.get("StopFireId") == text(fire.fire_id)
        return Recorded.MADE_BEFORE if is_own and row.get("StopMade") == flag(True) else Recorded.OVERTAKEN

    def record_stop(self, fire: Fire, decision: StopDecision, *, made: bool | None, now: float) -> None:
        outcome: AttributeValue = {"NULL": True} if made is None else flag(made)
        self._write(fire, {**_decided(fire, decision, now), "StopMade": outcome})

    def record_alert(self, fire: Fire, action: str, alert_id: str | None, *, now: float) -> None:
        columns: dict[str, AttributeValue | None] = {
            "Action": text(action),
            "ActionAt": moment(now),
        }
        if fire.kind is AlertKind.FIRE:
            columns["AlertId"] = {"NULL": True} if alert_id is None else text(alert_id)
        self._write(fire, columns)

    def record_report(self, fire: Fire, place: str) -> None:
        self._write(fire, {"ReportUri": text(place)})

    def _write(self, fire: Fire, columns: "dict[str, AttributeValue | None]") -> None:
        self._table.update(row_key(fire.job, fire.rule), columns, _OWN, {":fire": text(fire.fire_id)})


def _decided(fire: Fire, decision: StopDecision, now: float) -> "dict[str, AttributeValue | None]":
    return {
        "StopDecision": text(decision.decision),
        "StopWhy": text(decision.why),
        "StopAt": moment(now),
        "StopFireId": text(fire.fire_id),
    }
