"""The fire path: columns of rows in RuleState; in Bookkeeping what alerts reached, and the last hour's stops."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import ItemColumns, flag, integer, map_of, moment, record_of, text
from trainguard.aws.dynamodb.bookkeeping import ALERTS, STOPS, entry_key
from trainguard.aws.dynamodb.table import OfTable, decoding, row_key
from trainguard.core.errors import StateConflictError
from trainguard.core.records import AlertKind
from trainguard.stack.actions.fire_row import Recorded
from trainguard.stack.actions.marks import AlertMark, Channel, Claim
from trainguard.stack.actions.request import FireInput, StopDecision
from trainguard.stack.actions.stop_rate_limit import Stop, take

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import AttributeValue, Item


_OF_ALERT = ("Action", "ActionAt", "AlertId")

_ANOTHER_FIRE = "(attribute_not_exists(#FireId) OR #FireId <> :fire)"
# A job that SageMaker lists later gets another ARN, and counts its episodes from the start.
_NO_NEWER_FIRE = "(attribute_not_exists(#FireEpisode) OR #FireEpisode <= :episode OR #FireJobArn <> :arn)"

_NEW = f"{_ANOTHER_FIRE} AND {_NO_NEWER_FIRE}"
_NOT_OVER = "(attribute_not_exists(#EvaluatedThrough) OR #EvaluatedThrough <= :at OR #Status = :fired)"
# A row is of this fire; it may name none where the mark failed.
_OWN = "(#FireId = :fire OR (attribute_not_exists(#FireId) AND attribute_exists(#Status)))"

_NOT_MADE = "(attribute_not_exists(#StopMade) OR #StopMade <> :true OR #StopFireId <> :fire)"


class DynamoFireRows(OfTable):
    """Writes the columns of the fire path; see `FireRows`."""

    def mark(self, fire: FireInput) -> None:
        key = row_key(fire.job, fire.rule)
        named: dict[str, AttributeValue | None] = {
            "FireId": text(fire.fire_id),
            "FireEpisode": integer(fire.entry.episode),
            "FireJobArn": text(fire.job_arn),
            **dict.fromkeys(_OF_ALERT),
        }
        fired: dict[str, AttributeValue | None] = {
            "Status": text("FIRED"),
            "DebuggerStatus": text("IssuesFound"),
            "Reason": text(fire.entry.finding.reason),
            "FiredAt": text(fire.fired_at),
        }
        values = {
            ":fire": text(fire.fire_id),
            ":episode": integer(fire.entry.episode),
            ":arn": text(fire.job_arn),
        }
        more = {":at": text(fire.fired_at), ":fired": text("FIRED")}
        if not self._table.update(key, fired | named, f"{_NEW} AND {_NOT_OVER}", values | more):
            self._table.update(key, named, _NEW, values)

    def record_decision(self, fire: FireInput, decision: StopDecision, *, now: float) -> Recorded:
        columns = {**_decided(fire, decision, now), "StopMade": None}
        values = {":fire": text(fire.fire_id), ":true": flag(True)}
        if self._table.update(row_key(fire.job, fire.rule), columns, f"{_OWN} AND {_NOT_MADE}", values):
            return "written"
        row = self._table.get(row_key(fire.job, fire.rule)) or {}
        is_own = row.get("FireId", text(fire.fire_id)) == row.get("StopFireId") == text(fire.fire_id)
        return "made before" if is_own and row.get("StopMade") == flag(True) else "overtaken"

    def record_stop(self, fire: FireInput, decision: StopDecision, *, made: bool | None, now: float) -> None:
        outcome: AttributeValue = {"NULL": True} if made is None else flag(made)
        self._write(fire, {**_decided(fire, decision, now), "StopMade": outcome})

    def record_alert(self, fire: FireInput, action: str, alert_id: str | None, *, now: float) -> None:
        columns: dict[str, AttributeValue | None] = {
            "Action": text(action),
            "ActionAt": moment(now),
        }
        if fire.entry.kind is AlertKind.FIRE:
            columns["AlertId"] = {"NULL": True} if alert_id is None else text(alert_id)
        self._write(fire, columns)

    def record_report(self, fire: FireInput, place: str) -> None:
        self._write(fire, {"ReportUri": text(place)})

    def _write(self, fire: FireInput, columns: "dict[str, AttributeValue | None]") -> None:
        self._table.update(row_key(fire.job, fire.rule), columns, _OWN, {":fire": text(fire.fire_id)})


def _decided(fire: FireInput, decision: StopDecision, now: float) -> "dict[str, AttributeValue | None]":
    return {
        "StopDecision": text(decision.decision),
        "StopWhy": text(decision.why),
        "StopAt": moment(now),
        "StopFireId": text(fire.fire_id),
    }


# As long as Step Functions knows the names of executions that have ended.
KEPT_S = 90 * 86_400

# Longer than an invocation of `send_alert` may take, and shorter than the state machine waits for one.
LEASE_S = 45


class DynamoSentAlerts(OfTable):
    """Claims on the channels of alerts, and marks of what became of them."""

    def claim(self, alert_id: str, channel: Channel, *, now: float) -> Claim:
        claimed, sent = _columns(channel)
        free = f"attribute_not_exists(#{sent}) AND (attribute_not_exists(#{claimed}) OR #{claimed} < :now)"
        columns = {
            claimed: integer(int(now) + LEASE_S),
            "ExpiresAt": integer(int(now) + KEPT_S),
        }
        if self._table.update(entry_key(ALERTS, alert_id), columns, free, {":now": integer(int(now))}):
            return "taken"
        return "sent" if sent in (self._table.get(entry_key(ALERTS, alert_id)) or {}) else "busy"

    def settle(self, alert_id: str, channel: Channel, *, sent_at: float | None) -> None:
        claimed, sent = _columns(channel)
        columns: dict[str, AttributeValue | None] = {claimed: integer(0)}
        if sent_at is not None:
            columns = {claimed: None, sent: moment(sent_at)}
        self._table.update(entry_key(ALERTS, alert_id), columns, f"attribute_not_exists(#{sent})")

    def silence(self, alert_id: str, *, why: str, execution: str, now: float) -> None:
        columns = {
            "SilencedBy": text(why),
            "SilencedAt": moment(now),
            "Execution": text(execution),
            "ExpiresAt": integer(int(now) + KEPT_S),
        }
        self._table.update(entry_key(ALERTS, alert_id), columns, "attribute_not_exists(#MailSentAt)")

    def mark(self, alert_id: str) -> AlertMark:
        return _mark(alert_id, self._table.get(entry_key(ALERTS, alert_id)) or {})

    def silenced(self) -> Iterator[AlertMark]:
        for item in self._table.partition("Purpose", ALERTS):
            if "SilencedBy" in item:
                yield _mark(item["Id"]["S"], item)


def _mark(alert_id: str, item: "Item") -> AlertMark:
    """Return the mark in an item; StateCodecError for a column of another type."""
    columns = ItemColumns(item)
    with decoding(f"Bookkeeping/{ALERTS}/{alert_id}"):
        return AlertMark(
            alert_id,
            frozenset(channel for channel in Channel if _columns(channel)[1] in item),
            silenced=columns.get("SilencedBy", attributes.TEXT_OR_NONE),
            silenced_at=columns.get("SilencedAt", attributes.TIME_OR_NONE),
            execution=columns.get("Execution", attributes.TEXT_OR_NONE),
        )


def _columns(channel: Channel) -> tuple[str, str]:
    """Return the columns of a claim and of the time at which an alert was sent."""
    return f"{channel.value.capitalize()}ClaimedUntil", f"{channel.value.capitalize()}SentAt"


_KEY = entry_key(STOPS, "last-hour")
ITEM = f"Bookkeeping/{STOPS}"
ATTEMPTS = 4
_STOPS = map_of(record_of(Stop, {"job": ("Job", attributes.TEXT), "at": ("At", attributes.TIME)}))


class DynamoStopBudget(OfTable):
    """The stops of the last hour, with fire, job and time; ``table`` may be another stack's ARN, in its Region."""

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        version = 0
        for _ in range(ATTEMPTS):
            version, stops = self._load()
            granted = take(stops, fire_id, job, now=now, limit=limit)
            if granted is None:
                return False
            if granted == stops or self._table.put_version(_KEY | {"Stops": _STOPS.write(granted)}, version):
                return True
        raise StateConflictError(ITEM, version)

    def _load(self) -> tuple[int, dict[str, Stop]]:
        item = self._table.get(_KEY)
        if item is None:
            return 0, {}
        columns = ItemColumns(item)
        with decoding(ITEM):
            return columns.get("Version", attributes.INTEGER), dict(columns.get("Stops", _STOPS))


def region_of(table: str) -> str | None:
    """Return the Region in a table's ARN; None for a mere name."""
    return table.split(":")[3] if table.startswith("arn:") else None
