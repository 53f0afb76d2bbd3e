"""Jobs and rows of all accounts in the central tables, which are read as those of an account are.

A job's name there is ``<account>/<region>/<job>``. Its account is one of its owners, and ``Team`` a column of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import msgspec

from trainguard.aws.dynamodb.attributes import moment, text
from trainguard.aws.dynamodb.jobs import job_item, job_of_item
from trainguard.aws.dynamodb.rule_states import row_item, row_of_item
from trainguard.aws.dynamodb.table import DynamoDBTable, decoding
from trainguard.core.records import JobRecord, RuleRow
from trainguard.core.timestamps import iso_time
from trainguard.report.fleet.facts import ACCOUNT
from trainguard.report.job_verdict import verdict_of
from trainguard.stack.organisation.statement import (
    FORGOTTEN_AFTER_S,
    MOST_BYTES,
    JobStatement,
    StatedEvent,
    StatedItem,
    fitting,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from trainguard.aws.dynamodb.attributes import Item

BY_TEAM_INDEX = "ByTeam"

_MOST_BYTES_OF_KEYS = {"TrainingJobName": 2_048, "RuleTarget": 1_024, "Team": 2_048}
_NUMBERS_BELOW = 1e125

_IS_LATER = "attribute_not_exists(#StatedAt) OR #StatedAt < :at"


def statement_of(job: JobRecord, rows: Sequence[RuleRow], *, stack: str, region: str, now: float) -> JobStatement:
    """Return what is known of a job at ``now``, epoch seconds, from before its rows were read."""
    whole = [row for row in rows if row.node is None]
    items = {row.target: _plain(row_item(row)) for row in whole}
    verdict, item = msgspec.to_builtins(verdict_of(job, rows, now=now)), _plain(job_item(job))
    room = MOST_BYTES - len(json.dumps([verdict, item]))
    taken = fitting(whole, {target: len(json.dumps(each)) for target, each in items.items()}, room)
    return JobStatement(
        stated_at=iso_time(now),
        stack=stack,
        region=region,
        job=job.job,
        verdict=verdict,
        item=item,
        rows=[items[row.target] for row in taken],
        rows_left_out=len(whole) - len(taken),
    )


class DynamoCentralTables:
    """Keeps statements in the tables ``jobs`` and ``rows``."""

    def __init__(self, *, client: "DynamoDBClient", jobs: str, rows: str) -> None:
        self._jobs, self._rows = DynamoDBTable(client=client, name=jobs), DynamoDBTable(client=client, name=rows)

    def keep(self, event: StatedEvent, *, now: float) -> bool:
        """Write each item unless one stated later is there; return whether the job's was written.

        The job's item is the last: a repetition after a failure writes what is missing. Raises StateCodecError and
        ValueError for a statement that is none of an account's tables.
        """
        at = event.stated_at(now)
        job, rows = records_of(event)
        forgotten_at = int(at + FORGOTTEN_AFTER_S) if job.expires_at is None else job.expires_at
        more = {"StatedAt": moment(at), "Stack": text(event.detail.stack)}
        if team := job.owners.get("team"):
            more["Team"] = text(team)
        items = [row_item(replace(row, expires_at=forgotten_at)) | more for row in rows]
        item = job_item(replace(job, expires_at=forgotten_at)) | more
        for each in (*items, item):
            _check_keys(each)
        for each in items:
            self._put(self._rows, each, at)
        return self._put(self._jobs, item, at)

    def _put(self, table: DynamoDBTable, item: "Item", at: float) -> bool:
        return table.put(item, _IS_LATER, {":at": moment(at)})


def _check_keys(item: "Item") -> None:
    """Raise ValueError for a key that DynamoDB takes from nobody: to try again would not help."""
    for column, most in _MOST_BYTES_OF_KEYS.items():
        size = len(item.get(column, {}).get("S", "").encode("utf-8", "surrogatepass"))
        if size > most:
            raise ValueError(f"{column} has {size:,} bytes, expected at most {most:,}")


def _check_numbers(stated: object) -> None:
    """Raise ValueError for a number that DynamoDB does not take, or that is none."""
    waiting = [stated]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            number = value.get("N")
            if isinstance(number, str) and not abs(float(number)) < _NUMBERS_BELOW:
                raise ValueError(f"a number is {number[:20]}, expected one below {_NUMBERS_BELOW:g}")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _plain(item: "Item") -> StatedItem:
    return cast("StatedItem", item)


def records_of(event: StatedEvent) -> tuple[JobRecord, list[RuleRow]]:
    """Read a statement's job and rows, under the job's name in the central tables; raises StateCodecError."""
    with decoding(event.name):
        _check_numbers([event.detail.item, event.detail.rows])
        job = job_of_item(cast("Item", event.detail.item) | {"TrainingJobName": text(event.name)})
        rows = [row_of_item(event.name, cast("Item", row)) for row in event.detail.rows]
    return replace(job, owners={**job.owners, ACCOUNT: event.account}), rows
