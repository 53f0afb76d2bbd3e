"""Tuning jobs in the table of jobs: one item each, under a key that no training job's name can be.

Each training job writes its own entry of a map, so that those that run at once do not displace each other.
"""

from typing import TYPE_CHECKING

from trainguard.adapters.attribute_values import Columns, integer, present, text, text_or_none
from trainguard.adapters.dynamodb_table import Expression, Table, decoding
from trainguard.adapters.immutable import frozen_mapping
from trainguard.finding import Severity
from trainguard.records import MOST_TUNED_JOBS, JobStatus, TunedJob, TuningJobRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.adapters.attribute_values import Item

TUNING_JOB = "tuning-job/"
"""Begins the keys; names of training jobs have no slash."""

_JOBS = {"#jobs": "Jobs"}
_EXPIRES = {"#expires": "ExpiresAt"}
_MOST: "Item" = {":most": integer(MOST_TUNED_JOBS)}
_NOTHING: "Item" = {":none": {"M": {}}}
_NO_ROOM = "size(#jobs) >= :most AND attribute_not_exists(#jobs.#job)"
_HAS_ROOM = "attribute_exists(#jobs) AND (size(#jobs) < :most OR attribute_exists(#jobs.#job))"
_NOT_FINISHED = "(attribute_not_exists(#jobs.#job) OR #jobs.#job.#finished = :no)"


class DynamoTuningJobs:
    """Store of the tuning jobs' items in the table of jobs."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def load(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item (strongly consistent), or None."""
        item = self._table.get(_key(name))
        if item is None:
            return None
        columns = Columns(item)
        with decoding(f"Jobs/{TUNING_JOB}{name}"):
            return TuningJobRecord(
                name=name,
                jobs=frozen_mapping({job: _told(entry) for job, entry in columns.nested("Jobs").items()}),
                more="More" in columns,
                expires_at=columns.integer_or_none("ExpiresAt"),
            )

    def tell(self, name: str, job: str, told: TunedJob, expires_at: int) -> None:
        """Write one job's entry. An item that is not there is begun first: an entry needs a map to be in."""
        if self._write(name, job, told, expires_at):
            return
        begin = Expression("SET #jobs = :none, #expires = :expires", _JOBS | _EXPIRES, _expires(expires_at) | _NOTHING)
        self._table.update(_key(name), begin, Expression("attribute_not_exists(#jobs)"))
        if self._write(name, job, told, expires_at):
            return
        more = Expression(
            "SET #more = :yes, #expires = :expires",
            _JOBS | _EXPIRES | {"#job": job, "#more": "More"},
            _expires(expires_at) | _MOST | {":yes": {"BOOL": True}},
        )
        self._table.update(_key(name), more, Expression(_NO_ROOM))

    def _write(self, name: str, job: str, told: TunedJob, expires_at: int) -> bool:
        """Write the entry if the item is there, has room, and does not have the job as finished already."""
        update = Expression(
            "SET #jobs.#job = :entry, #expires = :expires",
            _JOBS | _EXPIRES | {"#job": job},
            _expires(expires_at) | {":entry": _entry(told)},
        )
        condition = Expression(_HAS_ROOM, values=_MOST)
        if not told.finished:
            guard = Expression(f" AND {_NOT_FINISHED}", {"#finished": "Finished"}, {":no": {"BOOL": False}})
            condition = condition.joined(guard)
        return self._table.update(_key(name), update, condition)


def _key(name: str) -> "Item":
    return {"TrainingJobName": text(f"{TUNING_JOB}{name}")}


def _expires(at: int) -> "Item":
    return {":expires": integer(at)}


def _entry(told: TunedJob) -> "AttributeValue":
    columns: dict[str, AttributeValue | None] = {
        "Status": text(told.status),
        "Finished": {"BOOL": told.finished},
        "Findings": integer(told.findings),
        "Rule": text_or_none(told.rule),
        "Severity": text_or_none(told.severity),
    }
    return {"M": present(columns)}


def _told(entry: Columns) -> TunedJob:
    return TunedJob(
        status=entry.made("Status", JobStatus),
        finished=entry.flag("Finished"),
        findings=entry.integer("Findings"),
        rule=entry.text_or_none("Rule"),
        severity=entry.made_or_none("Severity", Severity),
    )
