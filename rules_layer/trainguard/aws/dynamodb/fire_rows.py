"""The fire path's columns of RuleState, each written under its condition."""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb.columns import integer, text
from trainguard.aws.dynamodb.table import Expression, Table, assignments
from trainguard.core.records import AlertKind
from trainguard.core.timestamps import iso_from_epoch
from trainguard.stack.actions.fire_row import Fire, Recorded
from trainguard.stack.actions.request import StopDecision

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.aws.dynamodb.columns import Item

_FIRE = {"#fire": "FireId"}
_OF_ALERT = ("Action", "ActionAt", "AlertId")

_ANOTHER_FIRE = "(attribute_not_exists(#fire) OR #fire <> :fire)"
_NO_NEWER_FIRE = "(attribute_not_exists(#episode) OR #episode <= :episode OR #arn <> :arn)"
"""A job that SageMaker lists later gets another ARN, and counts its episodes from the start."""

_NOT_OVER = "(attribute_not_exists(#through) OR #through <= :at OR #status = :fired)"


class DynamoFireRows:
    """Writes the columns of the fire path; see `FireRows`."""

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def mark(self, fire: Fire) -> None:
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
        new = _is_new(fire)
        not_over = Expression(
            f" AND {_NOT_OVER}",
            {"#through": "EvaluatedThrough", "#status": "Status"},
            {":at": text(fire.fired_at), ":fired": text("FIRED")},
        )
        if not self._table.update(_key(fire), assignments(fired | named), new.joined(not_over)):
            self._table.update(_key(fire), assignments(named), new)

    def record_decision(self, fire: Fire, decision: StopDecision, *, now: float) -> Recorded:
        columns = {**_decided(fire, decision, now), "StopMade": None}
        not_made = Expression(
            " AND (attribute_not_exists(#made) OR #made <> :true OR #stopped <> :fire)",
            {"#made": "StopMade", "#stopped": "StopFireId"},
            {":true": {"BOOL": True}},
        )
        if self._table.update(_key(fire), assignments(columns), _is_of(fire).joined(not_made)):
            return Recorded.WRITTEN
        row = self._table.get(_key(fire)) or {}
        is_own = row.get("FireId", text(fire.fire_id)) == row.get("StopFireId") == text(fire.fire_id)
        return Recorded.MADE_BEFORE if is_own and row.get("StopMade") == {"BOOL": True} else Recorded.OVERTAKEN

    def record_stop(self, fire: Fire, decision: StopDecision, *, made: bool | None, now: float) -> None:
        outcome: AttributeValue = {"NULL": True} if made is None else {"BOOL": made}
        self._write(fire, {**_decided(fire, decision, now), "StopMade": outcome})

    def record_alert(self, fire: Fire, action: str, alert_id: str | None, *, now: float) -> None:
        columns: dict[str, AttributeValue | None] = {
            "Action": text(action),
            "ActionAt": text(iso_from_epoch(now)),
        }
        if fire.kind is AlertKind.FIRE:
            columns["AlertId"] = {"NULL": True} if alert_id is None else text(alert_id)
        self._write(fire, columns)

    def record_report(self, fire: Fire, place: str) -> None:
        self._write(fire, {"ReportUri": text(place)})

    def _write(self, fire: Fire, columns: "dict[str, AttributeValue | None]") -> None:
        self._table.update(_key(fire), assignments(columns), _is_of(fire))


def _is_new(fire: Fire) -> Expression:
    return Expression(
        f"{_ANOTHER_FIRE} AND {_NO_NEWER_FIRE}",
        {**_FIRE, "#episode": "FireEpisode", "#arn": "FireJobArn"},
        {":fire": text(fire.fire_id), ":episode": integer(fire.episode), ":arn": text(fire.job_arn)},
    )


def _is_of(fire: Fire) -> Expression:
    """Return the condition that a row is of this fire; it may name none where the mark failed."""
    return Expression(
        "(#fire = :fire OR (attribute_not_exists(#fire) AND attribute_exists(#status)))",
        {**_FIRE, "#status": "Status"},
        {":fire": text(fire.fire_id)},
    )


def _decided(fire: Fire, decision: StopDecision, now: float) -> "dict[str, AttributeValue | None]":
    return {
        "StopDecision": text(decision.decision),
        "StopWhy": text(decision.why),
        "StopAt": text(iso_from_epoch(now)),
        "StopFireId": text(fire.fire_id),
    }


def _key(fire: Fire) -> "Item":
    return {"TrainingJobName": text(fire.job), "RuleTarget": text(fire.rule)}
