"""Tuning jobs in the table of jobs; each training job writes its own entry of a map, so none displaces another."""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb.columns import (
    FLAG,
    INTEGER,
    TEXT_OR_NONE,
    Columns,
    Layout,
    fields_of,
    integer,
    member,
    member_or_none,
    present,
    text,
    written,
)
from trainguard.aws.dynamodb.stored_form import frozen_mapping
from trainguard.aws.dynamodb.table import Expression, Table, decoding
from trainguard.core.finding import Severity
from trainguard.core.records import MOST_TUNED_JOBS, JobStatus, TunedJob, TuningJobRecord

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.columns import Item

TUNING_JOB = "tuning-job/"
"""Names of training jobs have no slash."""

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
        item = self._table.get(_key(name))
        if item is None:
            return None
        columns = Columns(item)
        with decoding(f"Jobs/{TUNING_JOB}{name}"):
            return TuningJobRecord(
                name=name,
                jobs=frozen_mapping(
                    {job: TunedJob(**fields_of(entry, _TUNED_JOB)) for job, entry in columns.nested("Jobs").items()}
                ),
                more="More" in columns,
                expires_at=columns.integer_or_none("ExpiresAt"),
            )

    def upsert(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        """Write one job's entry; a missing item is begun first: an entry needs a map to be in."""
        if self._write(name, job, tuned, expires_at):
            return
        begin = Expression("SET #jobs = :none, #expires = :expires", _JOBS | _EXPIRES, _expires(expires_at) | _NOTHING)
        self._table.update(_key(name), begin, Expression("attribute_not_exists(#jobs)"))
        if self._write(name, job, tuned, expires_at):
            return
        more = Expression(
            "SET #more = :yes, #expires = :expires",
            _JOBS | _EXPIRES | {"#job": job, "#more": "More"},
            _expires(expires_at) | _MOST | {":yes": {"BOOL": True}},
        )
        self._table.update(_key(name), more, Expression(_NO_ROOM))

    def _write(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> bool:
        """Write the entry if the item is there, has room, and does not have the job as finished already."""
        update = Expression(
            "SET #jobs.#job = :entry, #expires = :expires",
            _JOBS | _EXPIRES | {"#job": job},
            _expires(expires_at) | {":entry": {"M": present(written(tuned, _TUNED_JOB))}},
        )
        condition = Expression(_HAS_ROOM, values=_MOST)
        if not tuned.finished:
            guard = Expression(f" AND {_NOT_FINISHED}", {"#finished": "Finished"}, {":no": {"BOOL": False}})
            condition = condition.joined(guard)
        return self._table.update(_key(name), update, condition)


def _key(name: str) -> "Item":
    return {"TrainingJobName": text(f"{TUNING_JOB}{name}")}


def _expires(at: int) -> "Item":
    return {":expires": integer(at)}


_TUNED_JOB: Layout = {
    "status": ("Status", member(JobStatus)),
    "finished": ("Finished", FLAG),
    "findings": ("Findings", INTEGER),
    "rule": ("Rule", TEXT_OR_NONE),
    "severity": ("Severity", member_or_none(Severity)),
}
