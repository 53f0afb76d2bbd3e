"""RuleState in DynamoDB: the table that a person reads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import (
    ItemColumns,
    Layout,
    fields_of,
    integer,
    member,
    moment,
    present,
    text,
    written,
)
from trainguard.aws.dynamodb.stored_form import FACT_COLUMN, FINDING, fact_columns, stored_row
from trainguard.aws.dynamodb.table import OfTable, decoding, row_key
from trainguard.core.finding import Finding, Patience
from trainguard.core.records import RuleRow, Status, StopRecord

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import AttributeValue, Item

# Rows that have fired, by status and time: people ask it what fires now.
BY_STATUS_INDEX = "ByStatus"
# None of them changes with each evaluation, as a reason does: that would write the index each time.
BY_STATUS_COLUMNS = ("Severity", "Kind", "Action")

# A space sorts before every rule's name, and ``<rule>$`` after ``<rule>#<node>`` and before other rules.
_BEFORE_ALL, _AFTER_NODES = " ", "$"


class DynamoRuleStates(OfTable):
    """Store of RuleState rows."""

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further, or as far and final where this is not.

        Columns of the fire path stay; FiredAt is written and never removed. An earlier registration's columns go.
        Columns of old facts go in a write of their own: only the write itself shows which were there.
        """
        for row in rows:
            key, columns = row_key(row.job, row.target), _columns(stored_row(row))
            values = _condition_values(row)
            before = self._table.changed(key, columns, f"{_same_registration(row)} AND ({_not_further(row)})", values)
            if before is None and row.generation:
                left = dict.fromkeys(_OF_FIRES) if row.times_fired == 0 else {}
                earlier = {":generation": values[":generation"]}
                before = self._table.changed(key, left | columns, _IS_EARLIER, earlier)
            gone = [name for name in before or () if name.startswith(FACT_COLUMN) and name not in columns]
            if gone:
                is_still = "attribute_not_exists(#EvaluatedThrough)"
                if row.evaluated_through is not None:
                    is_still = "#EvaluatedThrough = :through"
                self._table.update(key, dict.fromkeys(gone), f"{_same_registration(row)} AND {is_still}", values)

    def of_job(self, job: str) -> list[RuleRow]:
        return [row_of_item(job, item) for item in self._table.partition("TrainingJobName", job)]

    def of_whole_job(self, job: str) -> list[RuleRow]:
        rows = []
        after = _BEFORE_ALL
        while item := self._table.first_after("TrainingJobName", job, "RuleTarget", after):
            row = row_of_item(job, item)
            if row.node is None:
                rows.append(row)
            after = row.rule + _AFTER_NODES
        return rows

    def load(self, job: str, target: str) -> RuleRow | None:
        item = self._table.get(row_key(job, target))
        return None if item is None else row_of_item(job, item)


# The stored row is of an earlier registration, or there is none.
_IS_EARLIER = "attribute_not_exists(#Generation) OR #Generation < :generation"


def _condition_values(row: RuleRow) -> "Item":
    values = {":generation": integer(row.generation)} if row.generation else {}
    return values | ({} if row.evaluated_through is None else {":through": moment(row.evaluated_through)})


def _same_registration(row: RuleRow) -> str:
    return "#Generation = :generation" if row.generation else "attribute_not_exists(#Generation)"


def _not_further(row: RuleRow) -> str:
    if row.evaluated_through is None:
        return "attribute_not_exists(#EvaluatedThrough)"
    if row.expires_at is not None:
        return "attribute_not_exists(#EvaluatedThrough) OR #EvaluatedThrough <= :through"
    return (
        "attribute_not_exists(#EvaluatedThrough) OR #EvaluatedThrough < :through"
        " OR (#EvaluatedThrough = :through AND attribute_not_exists(#ExpiresAt))"
    )


def _columns(row: RuleRow) -> "dict[str, AttributeValue | None]":
    progress = row.progress
    fired = {} if row.fired_at is None else {"FiredAt": moment(row.fired_at)}
    return {
        **written(row, _ROW),
        "DebuggerStatus": text(row.debugger_status),
        **written(row.finding, _ROW_FINDING),
        **fact_columns(row.finding.facts),
        **(dict.fromkeys(_OF_PROGRESS) if progress is None else written(progress, _PROGRESS)),
        "Patience": None if progress is None else text(progress.words),
        **fired,
    }


_ROW: Layout = {
    "status": ("Status", member(Status)),
    "quantity": ("Quantity", attributes.TEXT_OR_NONE),
    "unit": ("Unit", attributes.TEXT_OR_NONE),
    "worst": ("Worst", attributes.TEXT_OR_NONE),
    "data_points": ("DataPoints", attributes.TALLY),
    "affected_percent": ("AffectedPercent", attributes.NUMBER_OR_NONE),
    "wasted_percent": ("WastedPercent", attributes.NUMBER_OR_NONE),
    "violations": ("Violations", attributes.TALLY),
    "times_fired": ("TimesFired", attributes.TALLY),
    "evaluated_through": ("EvaluatedThrough", attributes.TIME_OR_NONE),
    "counters": ("Counters", attributes.INTEGERS),
    "parameters": ("Parameters", attributes.SCALARS),
    "expires_at": ("ExpiresAt", attributes.INTEGER_OR_NONE),
    "generation": ("Generation", attributes.COUNT),
    "earlier_episodes": ("EarlierEpisodes", attributes.COUNT),
}
_ROW_FINDING: Layout = {**FINDING, "cost": ("CostLost", attributes.TEXT_OR_NONE)}
_PROGRESS: Layout = {
    "seen": ("PatienceSeen", attributes.INTEGER),
    "needed": ("PatienceNeeded", attributes.INTEGER),
    "counts": ("PatienceCounts", attributes.TEXT),
    "streak": ("Streak", attributes.INTEGER_OR_NONE),
    "window_points": ("WindowPoints", attributes.INTEGER_OR_NONE),
    "window_start": ("WindowFrom", attributes.TIME_OR_NONE),
    "window_end": ("WindowTo", attributes.TIME_OR_NONE),
}
_OF_PROGRESS = tuple(name for name, _ in _PROGRESS.values())
_FIRE: Layout = {
    "fired_at": ("FiredAt", attributes.TIME_OR_NONE),
    "fire_id": ("FireId", attributes.TEXT_OR_NONE),
    "action": ("Action", attributes.TEXT_OR_NONE),
    "action_at": ("ActionAt", attributes.TIME_OR_NONE),
    "report_uri": ("ReportUri", attributes.TEXT_OR_NONE),
}
_STOP: Layout = {
    "decision": ("StopDecision", attributes.TEXT),
    "why": ("StopWhy", attributes.NAME),
    "at": ("StopAt", attributes.TIME_OR_NONE),
    "fire_id": ("StopFireId", attributes.TEXT_OR_NONE),
    "made": ("StopMade", attributes.FLAG_OR_NONE),
}


_OF_FIRES = ("FireEpisode", "FireJobArn", "AlertId", *(name for name, _ in (*_FIRE.values(), *_STOP.values())))


def row_item(row: RuleRow) -> "Item":
    """Return a row as a whole item, with the columns of the fire path."""
    columns = _columns(stored_row(row)) | written(row, _FIRE)
    if row.stop is not None:
        columns |= written(row.stop, _STOP)
    alert = {} if row.alert_id is None else {"AlertId": text(row.alert_id)}
    return row_key(row.job, row.target) | present(columns) | alert


def row_of_item(job: str, item: "Item") -> RuleRow:
    """Read a row; one that only the fire path has written so far lacks most columns. Raises StateCodecError."""
    columns = ItemColumns(item)
    target = columns.get("RuleTarget", attributes.TEXT)
    rule, separator, node = target.partition("#")
    with decoding(f"RuleState/{job}/{target}"):
        return RuleRow(
            job=job,
            finding=Finding(rule=rule, node=node if separator else None, **fields_of(columns, _ROW_FINDING)),
            progress=Patience(**fields_of(columns, _PROGRESS)) if "PatienceSeen" in columns else None,
            # NULL says that the alert of this fire failed.
            alert_id=None if "NULL" in item.get("AlertId", {}) else columns.get("AlertId", attributes.TEXT_OR_NONE),
            stop=StopRecord(**fields_of(columns, _STOP)) if "StopDecision" in columns else None,
            **fields_of(columns, {**_ROW, **_FIRE}),
        )
