"""Bookkeeping in DynamoDB, apart from what people read: by `Purpose`, which IAM admits roles to, and `Id`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import (
    ItemColumns,
    Layout,
    fields_of,
    flag,
    integer,
    map_of,
    member,
    record_of,
    text,
)
from trainguard.aws.dynamodb.table import OfTable, decoding
from trainguard.core.finding import Severity
from trainguard.core.records import MOST_TUNED_JOBS, JobStatus, TunedJob, TuningJobRecord

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import Item

# What alerts reached, an entry each; stops of the last hour; names met in an hour, an entry each.
ALERTS, STOPS, MET_JOBS = "alerts", "stops", "met-jobs"
# A tuning job's name follows; a cluster's name follows: what its agent is asked, and what it answers.
TUNING_JOB, REQUESTS, AGENTS = "tuning-job/", "requests/", "agents/"

KEPT_S = 86_400
_JOBS = "jobs"

_NO_ROOM = "size(#Jobs) >= :most AND attribute_not_exists(#Jobs.#job)"
_HAS_ROOM = "attribute_exists(#Jobs) AND (size(#Jobs) < :most OR attribute_exists(#Jobs.#job))"
_NOT_FINISHED = "(attribute_not_exists(#Jobs.#job) OR #Jobs.#job.#Finished = :no)"


def entry_key(purpose: str, name: str) -> "Item":
    return {"Purpose": text(purpose), "Id": text(name)}


class DynamoBookkeeping(OfTable):
    """See `Bookkeeping`."""

    def admit(self, at: float, most: int) -> bool:
        return self._table.update(
            entry_key(MET_JOBS, datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H")),
            "ADD #Met :one SET #ExpiresAt = :expires",
            "attribute_not_exists(#Met) OR #Met < :most",
            {":one": integer(1), ":expires": integer(int(at) + KEPT_S), ":most": integer(most)},
        )

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        item = self._table.get(_tuning_key(name))
        if item is None:
            return None
        columns = ItemColumns(item)
        with decoding(f"Bookkeeping/{TUNING_JOB}{name}"):
            return TuningJobRecord(name=name, more="More" in columns, **fields_of(columns, _TUNING_JOB))

    def upsert_tuned_job(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        """Write one job's entry; a missing item is begun first: an entry needs a map to be in."""
        if self._write_tuned(name, job, tuned, expires_at):
            return
        values: Item = {":expires": integer(expires_at)}
        begin = "SET #Jobs = :none, #ExpiresAt = :expires"
        self._table.update(_tuning_key(name), begin, "attribute_not_exists(#Jobs)", {**values, ":none": {"M": {}}})
        if self._write_tuned(name, job, tuned, expires_at):
            return
        values |= {":most": integer(MOST_TUNED_JOBS), ":yes": flag(True)}
        full = "SET #More = :yes, #ExpiresAt = :expires"
        self._table.update(_tuning_key(name), full, _NO_ROOM, values, {"#job": job})

    def _write_tuned(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> bool:
        """Write the entry if the item is there, has room, and does not have the job as finished already."""
        values: Item = {
            ":entry": _TUNED_JOB.write(tuned),
            ":expires": integer(expires_at),
            ":most": integer(MOST_TUNED_JOBS),
        }
        condition = _HAS_ROOM
        if not tuned.finished:
            condition += f" AND {_NOT_FINISHED}"
            values[":no"] = flag(False)
        change = "SET #Jobs.#job = :entry, #ExpiresAt = :expires"
        return self._table.update(_tuning_key(name), change, condition, values, {"#job": job})


def _tuning_key(name: str) -> "Item":
    return entry_key(TUNING_JOB + name, _JOBS)


_TUNED_JOB = record_of(
    TunedJob,
    {
        "status": ("Status", member(JobStatus)),
        "finished": ("Finished", attributes.FLAG),
        "findings": ("Findings", attributes.INTEGER),
        "rule": ("Rule", attributes.TEXT_OR_NONE),
        "severity": ("Severity", member(Severity).unless(None)),
    },
)
_TUNING_JOB: Layout = {"jobs": ("Jobs", map_of(_TUNED_JOB)), "expires_at": ("ExpiresAt", attributes.INTEGER_OR_NONE)}
