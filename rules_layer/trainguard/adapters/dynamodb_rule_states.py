"""RuleState in DynamoDB: the table that a person reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainguard.adapters.attribute_values import (
    Columns,
    integer,
    integer_or_none,
    integers,
    number_or_none,
    scalar,
    text,
    text_or_none,
)
from trainguard.adapters.dynamodb_table import Expression, Table, assignments, decoding
from trainguard.adapters.facts import FACT_COLUMN, fact_columns
from trainguard.adapters.findings import finding_columns, finding_of_columns
from trainguard.adapters.stored_form import stored_row
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.finding import Progress
from trainguard.records import RuleRow, Status, StopRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.adapters.attribute_values import Item

_NAMES = {"cost": "CostLost"}
_THROUGH = {"#through": "EvaluatedThrough"}
_GENERATION = {"#generation": "Generation"}
_OF_FIRES = (
    "FireEpisode",
    "FireId",
    "FireJobArn",
    "FiredAt",
    "Action",
    "ActionAt",
    "AlertId",
    "ReportUri",
    "StopDecision",
    "StopWhy",
    "StopAt",
    "StopFireId",
    "StopMade",
)
"""What the fire path writes."""

_OF_PROGRESS = (
    "Patience",
    "PatienceSeen",
    "PatienceNeeded",
    "PatienceCounts",
    "Streak",
    "WindowPoints",
    "WindowFrom",
    "WindowTo",
)
_BEFORE_ALL, _AFTER_NODES = " ", "$"
"""A space sorts before every rule's name, and ``<rule>$`` after ``<rule>#<node>`` and before other rules."""


class DynamoRuleStates:
    """Store of RuleState rows.

    Parameters
    ----------
    client : DynamoDBClient
        Low-level client.
    table : str
        Name of the table.
    """

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further, or as far and final where this is not.

        Columns of the fire path are left as they are. FiredAt is written and never removed: the fire path may have
        written it first. What is left of an earlier registration goes, also what came of its fires. Columns of facts
        that the row has no more go in a write of their own: only the write itself shows which were there.
        """
        for row in rows:
            key, columns = _key(row.job, row.target), _columns(stored_row(row))
            before = self._table.changed(key, assignments(columns), _may_replace(row))
            if before is None and row.generation:
                left = dict.fromkeys(_OF_FIRES) if row.times_fired == 0 else {}
                before = self._table.changed(key, assignments(left | columns), _is_earlier(row))
            gone = [name for name in before or () if name.startswith(FACT_COLUMN) and name not in columns]
            if gone:
                self._table.update(key, assignments(dict.fromkeys(gone)), _is_still(row))

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key (strongly consistent)."""
        return [_row(job, item) for item in self._table.partition("TrainingJobName", job)]

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return those rows of a job that are of no node, ordered by sort key (strongly consistent).

        Each is asked for alone, and the next one after all targets that a node of its rule could have: a job of 128
        nodes has a hundred times as many rows of nodes.
        """
        rows = []
        after = _BEFORE_ALL
        while item := self._table.first_after("TrainingJobName", job, "RuleTarget", after):
            row = _row(job, item)
            if row.node is None:
                rows.append(row)
            after = row.rule + _AFTER_NODES
        return rows

    def load(self, job: str, target: str) -> RuleRow | None:
        """Return one row (strongly consistent), or None."""
        item = self._table.get(_key(job, target))
        return None if item is None else _row(job, item)


def _is_earlier(row: RuleRow) -> Expression:
    """Return the condition that the stored row is of an earlier registration, or that there is none."""
    return Expression(
        "attribute_not_exists(#generation) OR #generation < :generation",
        _GENERATION,
        {":generation": integer(row.generation)},
    )


def _is_still(row: RuleRow) -> Expression:
    """Return the condition that nobody has written the row since: who has, sees himself what is left of before."""
    texts = {} if row.evaluated_through is None else {":through": text(iso_from_epoch(row.evaluated_through))}
    same = "#through = :through" if texts else "attribute_not_exists(#through)"
    return _of_registration(row).joined(Expression(same, _THROUGH, texts))


def _may_replace(row: RuleRow) -> Expression:
    further = _not_further(row)
    return _of_registration(row).joined(replace(further, text=f"({further.text})"))


def _of_registration(row: RuleRow) -> Expression:
    if row.generation:
        return Expression("#generation = :generation AND ", _GENERATION, {":generation": integer(row.generation)})
    return Expression("attribute_not_exists(#generation) AND ", _GENERATION)


def _not_further(row: RuleRow) -> Expression:
    if row.evaluated_through is None:
        return Expression("attribute_not_exists(#through)", _THROUGH)
    # The text has a fixed width, so DynamoDB's comparison of strings is a comparison of times.
    watermark_s = {":through": text(iso_from_epoch(row.evaluated_through))}
    if row.expires_at is not None:
        return Expression("attribute_not_exists(#through) OR #through <= :through", _THROUGH, watermark_s)
    return Expression(
        "attribute_not_exists(#through) OR #through < :through"
        " OR (#through = :through AND attribute_not_exists(#expires))",
        {**_THROUGH, "#expires": "ExpiresAt"},
        watermark_s,
    )


def _key(job: str, target: str) -> "Item":
    return {"TrainingJobName": text(job), "RuleTarget": text(target)}


def _columns(row: RuleRow) -> "dict[str, AttributeValue | None]":
    columns: dict[str, AttributeValue | None] = {
        "Status": text(row.status),
        "DebuggerStatus": text(row.debugger_status),
        **finding_columns(row.finding, _NAMES),
        **fact_columns(row.finding.facts),
        "Quantity": text_or_none(row.quantity),
        "Unit": text_or_none(row.unit),
        "Worst": text_or_none(row.worst),
        "DataPoints": integer(row.data_points),
        **_progress_columns(row.progress),
        "AffectedPercent": number_or_none(row.affected_percent),
        "WastedPercent": number_or_none(row.wasted_percent),
        "Violations": integer(row.violations),
        "TimesFired": integer(row.times_fired),
        "EvaluatedThrough": None if row.evaluated_through is None else text(iso_from_epoch(row.evaluated_through)),
        "Counters": integers(row.counters),
        "Parameters": {"M": {name: scalar(value) for name, value in row.parameters.items()}},
        "ExpiresAt": integer_or_none(row.expires_at),
        "Generation": integer_or_none(row.generation or None),
        "EarlierEpisodes": integer_or_none(row.earlier_episodes or None),
    }
    if row.fired_at is not None:
        columns["FiredAt"] = text(iso_from_epoch(row.fired_at))
    return columns


def _progress_columns(progress: Progress | None) -> "dict[str, AttributeValue | None]":
    """Write how far the rule's patience is: ``Patience`` as people read it, and its numbers."""
    if progress is None:
        return dict.fromkeys(_OF_PROGRESS)
    start, end = progress.window_start, progress.window_end
    return {
        "Patience": text(progress.words),
        "PatienceSeen": integer(progress.seen),
        "PatienceNeeded": integer(progress.needed),
        "PatienceCounts": text(progress.counts),
        "Streak": integer_or_none(progress.streak),
        "WindowPoints": integer_or_none(progress.window_points),
        "WindowFrom": None if start is None else text(iso_from_epoch(start)),
        "WindowTo": None if end is None else text(iso_from_epoch(end)),
    }


def _progress_of(columns: Columns) -> Progress | None:
    if "PatienceSeen" not in columns:
        return None
    return Progress(
        seen=columns.integer("PatienceSeen"),
        needed=columns.integer("PatienceNeeded"),
        counts=columns.text("PatienceCounts"),
        streak=columns.integer_or_none("Streak"),
        window_points=columns.integer_or_none("WindowPoints"),
        window_start=columns.made_or_none("WindowFrom", epoch_from_iso),
        window_end=columns.made_or_none("WindowTo", epoch_from_iso),
    )


def _row(job: str, item: "Item") -> RuleRow:
    """Read a row; one that only the fire path has written so far lacks most columns."""
    columns = Columns(item)
    target = columns.text("RuleTarget")
    rule, separator, node = target.partition("#")
    with decoding(f"RuleState/{job}/{target}"):
        return RuleRow(
            job=job,
            finding=finding_of_columns(columns, rule=rule, node=node if separator else None, names=_NAMES),
            status=columns.made("Status", Status),
            quantity=columns.text_or_none("Quantity"),
            unit=columns.text_or_none("Unit"),
            worst=columns.text_or_none("Worst"),
            data_points=columns.integer_or_none("DataPoints") or 0,
            progress=_progress_of(columns),
            affected_percent=columns.real_or_none("AffectedPercent"),
            wasted_percent=columns.real_or_none("WastedPercent"),
            violations=columns.integer_or_none("Violations") or 0,
            times_fired=columns.integer_or_none("TimesFired") or 0,
            evaluated_through=columns.made_or_none("EvaluatedThrough", epoch_from_iso),
            fired_at=columns.made_or_none("FiredAt", epoch_from_iso),
            counters=columns.integers("Counters"),
            parameters=columns.scalars("Parameters"),
            expires_at=columns.integer_or_none("ExpiresAt"),
            generation=columns.integer_or_none("Generation") or 0,
            earlier_episodes=columns.integer_or_none("EarlierEpisodes") or 0,
            fire_id=columns.text_or_none("FireId"),
            action=columns.text_or_none("Action"),
            action_at=columns.made_or_none("ActionAt", epoch_from_iso),
            # NULL says that the alert of this fire failed.
            alert_id=None if "NULL" in item.get("AlertId", {}) else columns.text_or_none("AlertId"),
            report_uri=columns.text_or_none("ReportUri"),
            stop=_stop(columns),
        )


def _stop(columns: Columns) -> StopRecord | None:
    if "StopDecision" not in columns:
        return None
    return StopRecord(
        decision=columns.text("StopDecision"),
        why=columns.text_or_none("StopWhy") or "",
        at=columns.made_or_none("StopAt", epoch_from_iso),
        fire_id=columns.text_or_none("StopFireId"),
        made=columns.flag_or_none("StopMade"),
    )
