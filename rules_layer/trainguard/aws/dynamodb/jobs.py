"""Jobs in DynamoDB: one item for each training job, and one for each tuning job."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.dynamodb.columns import (
    COUNT,
    FLAG,
    INTEGER_OR_NONE,
    INTEGERS,
    NAME,
    NAMES_OR_NONE,
    NUMBER,
    SOME_NAMES,
    SOME_TEXTS,
    TEXT,
    TEXT_OR_NONE,
    TEXTS,
    TIME_OR_NONE,
    Columns,
    Kind,
    Layout,
    fields_of,
    flag,
    integer,
    integer_or_none,
    member,
    present,
    text,
    text_or_none,
    written,
)
from trainguard.aws.dynamodb.stored_form import stored_job
from trainguard.aws.dynamodb.table import Expression, Table, assignments, decoding
from trainguard.aws.dynamodb.tuning_jobs import TUNING_JOB, DynamoTuningJobs
from trainguard.core.errors import StateConflictError
from trainguard.core.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.records import OUTSIDE_ARN, JobRecord, JobStatus, TunedJob, TuningJobRecord
from trainguard.core.timestamps import iso_from_epoch

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.aws.dynamodb.columns import Item

ACTIVE_JOBS_INDEX = "ActiveJobs"
_SLOW, _FAST = "slow", "fast"
"""Values of Active. An item of a version that knew no other is polled fast until its next look."""

_EXISTS = "attribute_exists(#job)"
_NAME = {"#job": "TrainingJobName"}
MET_JOBS = "met-jobs/"
"""Begins the name of an hour's item: no job's name has a slash before an at sign."""

KEPT_S = 86_400
_STREAMS = {"#streams": "OtherStreams"}
_ONE_MORE = Expression("ADD #streams :one", _STREAMS, {":one": integer(1)})
_NO_JOBS = (TUNING_JOB, MET_JOBS)
"""Begin the names of items that are no job's: no job's name has a slash there."""


class DynamoJobs:
    """Store of Jobs items; changes of a job without an item are dropped, as half an item is worse than none."""

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)
        self._tuning_jobs = DynamoTuningJobs(self._table)

    def load(self, job: str) -> JobRecord | None:
        item = None if job.startswith(_NO_JOBS) else self._table.get(_key(job))
        return None if item is None else _record(item)

    def register(self, record: JobRecord) -> JobRecord:
        created = stored_job(record)
        if self._table.put(_item(created), Expression("attribute_not_exists(#job)", _NAME)):
            return created
        return self._stored(record.job)

    def recognise(self, record: JobRecord) -> JobRecord:
        """Replace, or create, the item of a job that SageMaker did not know; the scheduler may not put."""
        known = stored_job(record)
        condition = Expression(
            "attribute_not_exists(#job) OR begins_with(#arn, :outside)",
            {**_NAME, "#arn": "TrainingJobArn"},
            {":outside": text(OUTSIDE_ARN)},
        )
        if self._table.update(_key(record.job), assignments(_columns(known)), condition):
            return known
        return self._stored(record.job)

    def update_status(self, record: JobRecord) -> None:
        """Write the item's status as `Jobs.update_status`; None leaves times and size as they are."""
        record = stored_job(record)
        columns: dict[str, AttributeValue | None] = {
            "Status": text(record.status),
            "SecondaryStatus": text_or_none(record.secondary_status),
            "Active": _active(record),
            "Closing": flag(record.closing),
            **written(record, _ASKS),
            "JobFileFault": text_or_none(record.file_fault),
            **({"ExpiresAt": None} if record.active else {}),
        }
        same = Expression("#arn = :arn", {"#arn": "TrainingJobArn"}, {":arn": text(record.arn)})
        condition = same
        if not record.status.is_final:
            finals = {f":final{index}": text(status) for index, status in enumerate(JobStatus) if status.is_final}
            guard = f" AND NOT #status IN ({', '.join(finals)})"
            condition = condition.joined(Expression(guard, {"#status": "Status"}, finals))
        known = present(written(record, _TIMES) | {"InstanceCount": integer_or_none(record.instance_count)})
        if self._table.update(_key(record.job), assignments(columns | known), condition):
            return
        if not record.status.is_final and record.started_at is not None:
            started = {":started": text(iso_from_epoch(record.started_at))}
            later = same.joined(Expression(" AND #ended < :started", {"#ended": "EndedAt"}, started))
            later_columns = columns | known | {"EndedAt": None}
            self._table.update(_key(record.job), assignments(later_columns), later)

    def ask(self, job: str, at: float, every_s: float) -> bool:
        times = {":at": text(iso_from_epoch(at)), ":before": text(iso_from_epoch(at - every_s))}
        return self._table.update(
            _key(job),
            Expression("SET #asked = :at", {"#asked": "AskedAt"}, times),
            Expression(f"{_EXISTS} AND (attribute_not_exists(#asked) OR #asked <= :before)", _NAME),
        )

    def touch(self, job: str, last_object_at: float) -> None:
        at = text(iso_from_epoch(last_object_at))
        self._table.update(
            _key(job),
            Expression("SET #last = :last", {"#last": "LastObjectAt"}, {":last": at}),
            Expression(f"{_EXISTS} AND (attribute_not_exists(#last) OR #last < :last)", _NAME),
        )

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        unseen = " OR attribute_not_exists(#episodes.#rule)" if seen == 0 else ""
        still = Expression(f"{_EXISTS} AND (#episodes.#rule = :seen{unseen})", _NAME, {":seen": integer(seen)})
        same = Expression(" AND attribute_not_exists(#generation)", {"#generation": "Generation"})
        if generation:
            values = {":generation": integer(generation)}
            same = Expression(" AND #generation = :generation", {"#generation": "Generation"}, values)
        self._table.update(
            _key(job),
            Expression(
                "SET #episodes.#rule = :next", {"#episodes": "Episodes", "#rule": rule}, {":next": integer(seen + 1)}
            ),
            still.joined(same),
        )

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream; False, which is stored, when there are ``most``; True for a job without an item."""
        room = Expression(
            "attribute_exists(#job) AND (attribute_not_exists(#streams) OR #streams < :most)",
            {"#job": "TrainingJobName"},
            {":most": integer(most)},
        )
        if self._table.update(_key(job), _ONE_MORE, room):
            return True
        left_out = Expression("SET #left = :yes", {"#left": "StreamsLeftOut"}, {":yes": {"BOOL": True}})
        full = Expression("#streams >= :most", _STREAMS, {":most": integer(most)})
        return not self._table.update(_key(job), left_out, full)

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        self._table.update(
            _key(job),
            Expression("SET #streams = :actual", _STREAMS, {":actual": integer(actual)}),
            Expression("#streams = :seen", values={":seen": integer(seen)}),
        )

    def meet(self, at: float, most: int) -> bool:
        return self._table.update(
            _key(MET_JOBS + datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H")),
            Expression(
                "ADD #met :one SET #expires = :expires",
                {"#met": "Met", "#expires": "ExpiresAt"},
                {":one": integer(1), ":expires": integer(int(at) + KEPT_S)},
            ),
            Expression("attribute_not_exists(#met) OR #met < :most", values={":most": integer(most)}),
        )

    def active(self) -> list[str]:
        """Return the jobs that are not closed, in order; a change shows after the index has caught up."""
        return sorted([*self.polled_slowly(), *self.polled_fast()])

    def polled_fast(self) -> list[str]:
        return self._indexed(_FAST)

    def polled_slowly(self) -> list[str]:
        return self._indexed(_SLOW)

    def set_fast_polling(self, job: str, *, polled_fast: bool) -> None:
        values = {":value": text(_FAST if polled_fast else _SLOW)}
        self._table.update(
            _key(job),
            Expression("SET #active = :value", {"#active": "Active"}, values),
            Expression(
                "attribute_exists(#active) AND #active <> :value AND #closing = :no",
                {"#closing": "Closing"},
                {":no": {"BOOL": False}},
            ),
        )

    def _indexed(self, value: str) -> list[str]:
        items = self._table.partition("Active", value, index=ACTIVE_JOBS_INDEX)
        return [item["TrainingJobName"]["S"] for item in items]

    def all(self) -> Iterator[JobRecord]:
        items = self._table.items()
        return (_record(item) for item in items if not item["TrainingJobName"]["S"].startswith(_NO_JOBS))

    def upsert_tuned_job(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        self._tuning_jobs.upsert(name, job, tuned, expires_at)

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        return self._tuning_jobs.load(name)

    def _stored(self, job: str) -> JobRecord:
        """Return the item of who won a race for it."""
        stored = self.load(job)
        if stored is None:
            # It has expired in between: the caller starts over.
            raise StateConflictError(f"Jobs/{job}", 0)
        return stored


def _key(job: str) -> "Item":
    return {"TrainingJobName": text(job)}


def _item(record: JobRecord) -> "Item":
    return _key(record.job) | present(_columns(record))


def _columns(record: JobRecord) -> "dict[str, AttributeValue | None]":
    left_out = {"StreamsLeftOut": flag(True) if record.streams_left_out else None}
    policy = written(record.policy, _POLICY)
    return written(record, {**_JOB, **_TIMES, **_ASKS}) | {"Active": _active(record)} | left_out | policy


def _active(record: JobRecord) -> "AttributeValue | None":
    if not record.active:
        return None
    return text(_FAST if record.polled_fast else _SLOW)


def _policy(columns: Columns) -> JobPolicy:
    """Read the policy; an item of a job that nobody decided about has none."""
    return JobPolicy(**fields_of(columns, _POLICY)) if "Evaluated" in columns else JobPolicy()


def _document(kind: type[msgspec.Struct]) -> Kind:
    def read(columns: Columns, name: str) -> msgspec.Struct:
        try:
            return msgspec.json.decode(columns.text(name), type=kind)
        except (msgspec.DecodeError, RecursionError) as fault:
            raise ValueError(f"{name} is no {kind.__name__}: {fault}") from fault

    return Kind(lambda part: text(msgspec.json.encode(part).decode()), read)


_TIMES: Layout = {
    "created_at": ("CreatedAt", TIME_OR_NONE),
    "started_at": ("StartedAt", TIME_OR_NONE),
    "ended_at": ("EndedAt", TIME_OR_NONE),
    "expires_at": ("ExpiresAt", INTEGER_OR_NONE),
}
_ASKS: Layout = {
    "close_asks": ("CloseAsks", COUNT),
    "close_asked_at": ("CloseAskedAt", TIME_OR_NONE),
    "left_at": ("LeftAt", TIME_OR_NONE),
}
_JOB: Layout = {
    "arn": ("TrainingJobArn", TEXT),
    "bucket": ("Bucket", TEXT),
    "prefix": ("Prefix", TEXT),
    "status": ("Status", member(JobStatus)),
    "secondary_status": ("SecondaryStatus", TEXT_OR_NONE),
    "instance_type": ("InstanceType", TEXT_OR_NONE),
    "instance_count": ("InstanceCount", INTEGER_OR_NONE),
    "profiling_interval_ms": ("ProfilingIntervalMs", INTEGER_OR_NONE),
    "framework_expected": ("FrameworkExpected", FLAG),
    "rule_settings": ("RuleSettings", TEXTS),
    "stop_allowed": ("StopAllowed", FLAG),
    "episodes": ("Episodes", INTEGERS),
    "closing": ("Closing", FLAG),
    "last_object_at": ("LastObjectAt", TIME_OR_NONE),
    "tuning_job": ("TuningJob", TEXT_OR_NONE),
    "file_fault": ("JobFileFault", TEXT_OR_NONE),
    "generation": ("Generation", COUNT),
    "asked_at": ("AskedAt", TIME_OR_NONE),
    "other_streams": ("OtherStreams", COUNT),
    "training_rules": ("TrainingRules", NAMES_OR_NONE),
    "setting_sources": ("SettingSources", SOME_TEXTS),
    "setting_faults": ("ConfigurationFaults", SOME_NAMES),
    "rules_elsewhere": ("RulesElsewhere", SOME_TEXTS),
    "rule_places": ("RulePlaces", SOME_TEXTS),
    "owners": ("Owners", SOME_TEXTS),
    "run_links": ("RunLinks", SOME_TEXTS),
    "resources": ("Resources", SOME_NAMES),
}
_POLICY: Layout = {
    "evaluated": ("Evaluated", FLAG),
    "why": ("EvaluatedBecause", TEXT),
    "alerts": ("Alerts", _document(AlertPolicy)),
    "stops": ("Stops", _document(StopPolicy)),
    "source": ("Source", NAME),
    "evaluation_every_s": ("EvaluationEveryS", NUMBER),
}


def _record(item: "Item") -> JobRecord:
    columns = Columns(item)
    job = columns.text("TrainingJobName")
    with decoding(f"Jobs/{job}"):
        return JobRecord(
            job=job,
            active="Active" in columns,
            polled_fast=columns.text_or_none("Active") != _SLOW,
            policy=_policy(columns),
            streams_left_out="StreamsLeftOut" in columns,
            **fields_of(columns, {**_JOB, **_TIMES, **_ASKS}),
        )
