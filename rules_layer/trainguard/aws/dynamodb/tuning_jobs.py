"""Tuning jobs in the table of jobs; each training job writes its own entry of a map, so none displaces another."""

from typing import TYPE_CHECKING

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import Columns, fields_of, flag, integer, map_of, member, record_of, text
from trainguard.aws.dynamodb.table import Table, decoding
from trainguard.core.finding import Severity
from trainguard.core.records import MOST_TUNED_JOBS, JobStatus, TunedJob, TuningJobRecord

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import Item

TUNING_JOB = "tuning-job/"
"""Names of training jobs have no slash."""

_NO_ROOM = "size(#Jobs) >= :most AND attribute_not_exists(#Jobs.#job)"
_HAS_ROOM = "attribute_exists(#Jobs) AND (size(#Jobs) < :most OR attribute_exists(#Jobs.#job))"
_NOT_FINISHED = "(attribute_not_exists(#Jobs.#job) OR #Jobs.#job.#Finished = :no)"
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


class DynamoTuningJobs:
    """Store of the tuning jobs' items in the table of jobs, as a part of `DynamoJobs`."""

    _table: Table

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        item = self._table.get(_key(name))
        if item is None:
            return None
        columns = Columns(item)
        with decoding(f"Jobs/{TUNING_JOB}{name}"):
            return TuningJobRecord(
                name=name,
                more="More" in columns,
                **fields_of(
                    columns,
                    {
                        "jobs": ("Jobs", map_of(_TUNED_JOB)),
                        "expires_at": ("ExpiresAt", attributes.INTEGER_OR_NONE),
                    },
                ),
            )

    def upsert_tuned_job(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        """Write one job's entry; a missing item is begun first: an entry needs a map to be in."""
        if self._write(name, job, tuned, expires_at):
            return
        values = {":expires": integer(expires_at)}
        key = _key(name)
        begin = "SET #Jobs = :none, #ExpiresAt = :expires"
        self._table.update(key, begin, "attribute_not_exists(#Jobs)", {**values, ":none": {"M": {}}})
        if self._write(name, job, tuned, expires_at):
            return
        values |= {":most": integer(MOST_TUNED_JOBS), ":yes": flag(True)}
        self._table.update(key, "SET #More = :yes, #ExpiresAt = :expires", _NO_ROOM, values, {"#job": job})

    def _write(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> bool:
        """Write the entry if the item is there, has room, and does not have the job as finished already."""
        values = {
            ":entry": _TUNED_JOB.write(tuned),
            ":expires": integer(expires_at),
            ":most": integer(MOST_TUNED_JOBS),
        }
        condition = _HAS_ROOM
        if not tuned.finished:
            condition += f" AND {_NOT_FINISHED}"
            values[":no"] = flag(False)
        key = _key(name)
        return self._table.update(
            key, "SET #Jobs.#job = :entry, #ExpiresAt = :expires", condition, values, {"#job": job}
        )


def _key(name: str) -> "Item":
    return {"TrainingJobName": text(f"{TUNING_JOB}{name}")}
