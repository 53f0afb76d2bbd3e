"""Jobs in DynamoDB: one item for each training job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from trainguard.aws.dynamodb import attributes
from trainguard.aws.dynamodb.attributes import (
    AttributeType,
    ItemColumns,
    Layout,
    fields_of,
    flag,
    integer,
    member,
    moment,
    present,
    text,
    written,
)
from trainguard.aws.dynamodb.stored_form import stored_job
from trainguard.aws.dynamodb.table import OfTable, decoding
from trainguard.core.errors import StateConflictError
from trainguard.core.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.core.records import OUTSIDE_ARN, JobRecord, JobStatus

if TYPE_CHECKING:
    from trainguard.aws.dynamodb.attributes import AttributeValue, Item


ACTIVE_JOBS_INDEX = "ActiveJobs"
# Values of Active. An item of a version that knew no other is polled fast until its next reconciliation.
_SLOW, _FAST = "slow", "fast"

_EXISTS = "attribute_exists(#TrainingJobName)"
# Begin the names of items that versions before 1.0 kept here: no job's name has a slash there.
_MOVED = ("tuning-job/", "met-jobs/")


class DynamoJobs(OfTable):
    """Store of Jobs items; changes of a job without an item are dropped, as half an item is worse than none."""

    def load(self, job: str) -> JobRecord | None:
        item = self._table.get(_key(job))
        return None if item is None else job_of_item(item)

    def register(self, record: JobRecord) -> JobRecord:
        created = stored_job(record)
        if self._table.put(job_item(created), "attribute_not_exists(#TrainingJobName)"):
            return created
        return self._stored(record.job)

    def adopt(self, record: JobRecord) -> JobRecord:
        """Replace, or create, the item of a job that SageMaker did not know; the scheduler may not put."""
        known = stored_job(record)
        condition = "attribute_not_exists(#TrainingJobName) OR begins_with(#TrainingJobArn, :outside)"
        if self._table.update(_key(record.job), _columns(known), condition, {":outside": text(OUTSIDE_ARN)}):
            return known
        return self._stored(record.job)

    def update_status(self, record: JobRecord) -> None:
        """Write the item's status as `Jobs.update_status`; None leaves times and size as they are."""
        record = stored_job(record)
        columns: dict[str, AttributeValue | None] = {
            **written(record, {name: _JOB[name] for name in ("status", "secondary_status", "closing", "file_fault")}),
            **written(record, _ASKS),
            "Active": _active(record),
            **({"ExpiresAt": None} if record.active else {}),
            **present(written(record, {**_TIMES, "instance_count": _JOB["instance_count"]})),
        }
        same = "#TrainingJobArn = :arn"
        condition, values = same, {":arn": text(record.arn)}
        if not record.status.is_final:
            finals = {f":final{index}": text(status) for index, status in enumerate(JobStatus) if status.is_final}
            condition, values = f"{same} AND NOT #Status IN ({', '.join(finals)})", values | finals
        if self._table.update(_key(record.job), columns, condition, values):
            return
        if not record.status.is_final and record.started_at is not None:
            values = {":arn": text(record.arn), ":started": moment(record.started_at)}
            self._table.update(_key(record.job), columns | {"EndedAt": None}, f"{same} AND #EndedAt < :started", values)

    def ask(self, job: str, at: float, every_s: float) -> bool:
        return self._table.update(
            _key(job),
            "SET #AskedAt = :at",
            f"{_EXISTS} AND (attribute_not_exists(#AskedAt) OR #AskedAt <= :before)",
            {":at": moment(at), ":before": moment(at - every_s)},
        )

    def touch(self, job: str, last_object_at: float) -> None:
        self._table.update(
            _key(job),
            "SET #LastObjectAt = :last",
            f"{_EXISTS} AND (attribute_not_exists(#LastObjectAt) OR #LastObjectAt < :last)",
            {":last": moment(last_object_at)},
        )

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        unseen = " OR attribute_not_exists(#Episodes.#rule)" if seen == 0 else ""
        same = "#Generation = :generation" if generation else "attribute_not_exists(#Generation)"
        values = {":seen": integer(seen), ":next": integer(seen + 1)}
        self._table.update(
            _key(job),
            "SET #Episodes.#rule = :next",
            f"{_EXISTS} AND (#Episodes.#rule = :seen{unseen}) AND {same}",
            values | ({":generation": integer(generation)} if generation else {}),
            {"#rule": rule},
        )

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream; False, which is stored, when there are ``most``; True for a job without an item."""
        limit = {":most": integer(most)}
        room = f"{_EXISTS} AND (attribute_not_exists(#OtherStreams) OR #OtherStreams < :most)"
        if self._table.update(_key(job), "ADD #OtherStreams :one", room, {**limit, ":one": integer(1)}):
            return True
        left_out, full = {"StreamsLeftOut": flag(True)}, "#OtherStreams >= :most"
        return not self._table.update(_key(job), left_out, full, limit)

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        columns = {"OtherStreams": integer(actual)}
        self._table.update(_key(job), columns, "#OtherStreams = :seen", {":seen": integer(seen)})

    def active(self) -> list[str]:
        """Return the jobs that are not closed, in order; a change shows after the index has caught up."""
        return sorted([*self.polled_slowly(), *self.polled_fast()])

    def polled_fast(self) -> list[str]:
        return self._indexed(_FAST)

    def polled_slowly(self) -> list[str]:
        return self._indexed(_SLOW)

    def set_fast_polling(self, job: str, *, polled_fast: bool) -> None:
        self._table.update(
            _key(job),
            "SET #Active = :value",
            "attribute_exists(#Active) AND #Active <> :value AND #Closing = :no",
            {":value": text(_FAST if polled_fast else _SLOW), ":no": flag(False)},
        )

    def set_braked(self, job: str, why: str | None) -> None:
        columns = {"Braked": None if why is None else text(why)}
        self._table.update(_key(job), columns, "attribute_exists(#TrainingJobName)")

    def set_outlook(self, job: str, words: str) -> None:
        self._table.update(_key(job), {"Outlook": text(words)}, _EXISTS)

    def _indexed(self, value: str) -> list[str]:
        items = self._table.partition("Active", value, index=ACTIVE_JOBS_INDEX)
        return [item["TrainingJobName"]["S"] for item in items]

    def all(self) -> Iterator[JobRecord]:
        items = self._table.items()
        return (job_of_item(item) for item in items if not item["TrainingJobName"]["S"].startswith(_MOVED))

    def _stored(self, job: str) -> JobRecord:
        """Return the item of who won a race for it."""
        stored = self.load(job)
        if stored is None:
            # It has expired in between: the caller starts over.
            raise StateConflictError(f"Jobs/{job}", 0)
        return stored


def _key(job: str) -> "Item":
    return {"TrainingJobName": text(job)}


def job_item(record: JobRecord) -> "Item":
    return _key(record.job) | present(_columns(record))


def _columns(record: JobRecord) -> "dict[str, AttributeValue | None]":
    flags = {"StreamsLeftOut": record.streams_left_out, "Canary": record.canary}
    marks = {name: flag(True) if given else None for name, given in flags.items()}
    policy = written(record.policy, _POLICY)
    return written(record, {**_JOB, **_TIMES, **_ASKS}) | {"Active": _active(record)} | marks | policy


def _active(record: JobRecord) -> "AttributeValue | None":
    if not record.active:
        return None
    return text(_FAST if record.polled_fast else _SLOW)


def _document(kind: type[msgspec.Struct]) -> AttributeType:
    def read(value: "AttributeValue") -> msgspec.Struct:
        try:
            return msgspec.json.decode(value["S"], type=kind)
        except (msgspec.DecodeError, RecursionError) as fault:
            raise ValueError(f"no {kind.__name__}: {fault}") from fault

    return AttributeType(lambda part: text(msgspec.json.encode(part).decode()), read)


_TIMES: Layout = {
    "created_at": ("CreatedAt", attributes.TIME_OR_NONE),
    "started_at": ("StartedAt", attributes.TIME_OR_NONE),
    "ended_at": ("EndedAt", attributes.TIME_OR_NONE),
    "expires_at": ("ExpiresAt", attributes.INTEGER_OR_NONE),
}
_ASKS: Layout = {
    "close_asks": ("CloseAsks", attributes.COUNT),
    "close_asked_at": ("CloseAskedAt", attributes.TIME_OR_NONE),
    "left_at": ("LeftAt", attributes.TIME_OR_NONE),
}
_JOB: Layout = {
    "arn": ("TrainingJobArn", attributes.TEXT),
    "bucket": ("Bucket", attributes.TEXT),
    "prefix": ("Prefix", attributes.TEXT),
    "status": ("Status", member(JobStatus)),
    "secondary_status": ("SecondaryStatus", attributes.TEXT_OR_NONE),
    "instance_type": ("InstanceType", attributes.TEXT_OR_NONE),
    "instance_count": ("InstanceCount", attributes.INTEGER_OR_NONE),
    "profiling_interval_ms": ("ProfilingIntervalMs", attributes.INTEGER_OR_NONE),
    "framework_expected": ("FrameworkExpected", attributes.FLAG),
    "rule_settings": ("RuleSettings", attributes.TEXTS),
    "stop_allowed": ("StopAllowed", attributes.FLAG),
    "episodes": ("Episodes", attributes.INTEGERS),
    "closing": ("Closing", attributes.FLAG),
    "last_object_at": ("LastObjectAt", attributes.TIME_OR_NONE),
    "tuning_job": ("TuningJob", attributes.TEXT_OR_NONE),
    "file_fault": ("JobFileFault", attributes.TEXT_OR_NONE),
    "braked": ("Braked", attributes.TEXT_OR_NONE),
    "outlook": ("Outlook", attributes.TEXT_OR_NONE),
    "time_limit_s": ("TimeLimitS", attributes.NUMBER_OR_NONE),
    "total_steps": ("TotalSteps", attributes.INTEGER_OR_NONE),
    "generation": ("Generation", attributes.COUNT),
    "asked_at": ("AskedAt", attributes.TIME_OR_NONE),
    "other_streams": ("OtherStreams", attributes.COUNT),
    "training_rules": ("TrainingRules", attributes.NAMES_OR_NONE),
    "setting_sources": ("SettingSources", attributes.SOME_TEXTS),
    "setting_faults": ("ConfigurationFaults", attributes.SOME_NAMES),
    "rules_elsewhere": ("RulesElsewhere", attributes.SOME_TEXTS),
    "rule_places": ("RulePlaces", attributes.SOME_TEXTS),
    "owners": ("Owners", attributes.SOME_TEXTS),
    "run_links": ("RunLinks", attributes.SOME_TEXTS),
    "resources": ("Resources", attributes.SOME_NAMES),
    "platform": ("Platform", attributes.TEXT_OR_NONE),
    "queue": ("Queue", attributes.TEXT_OR_NONE),
}
_POLICY: Layout = {
    "evaluated": ("Evaluated", attributes.FLAG),
    "why": ("EvaluatedBecause", attributes.TEXT),
    "alerts": ("Alerts", _document(AlertPolicy)),
    "stops": ("Stops", _document(StopPolicy)),
    "source": ("Source", attributes.NAME),
    "evaluation_every_s": ("EvaluationEveryS", attributes.NUMBER),
}


def job_of_item(item: "Item") -> JobRecord:
    """Read a job; raises StateCodecError."""
    columns = ItemColumns(item)
    job = columns.get("TrainingJobName", attributes.TEXT)
    with decoding(f"Jobs/{job}"):
        return JobRecord(
            job=job,
            active="Active" in columns,
            polled_fast=columns.get("Active", attributes.TEXT_OR_NONE) != _SLOW,
            # An item of a job that nobody decided about has no policy.
            policy=JobPolicy(**fields_of(columns, _POLICY)) if "Evaluated" in columns else JobPolicy(),
            streams_left_out="StreamsLeftOut" in columns,
            canary="Canary" in columns,
            **fields_of(columns, {**_JOB, **_TIMES, **_ASKS}),
        )
