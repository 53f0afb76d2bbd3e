"""Jobs in DynamoDB: one item for each training job, and one for each tuning job."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from trainguard.adapters.attribute_values import (
    Columns,
    integer,
    integer_or_none,
    integers,
    number,
    present,
    text,
    text_list,
    text_or_none,
    texts,
)
from trainguard.adapters.dynamodb_job_limits import MET_JOBS, DynamoJobLimits
from trainguard.adapters.dynamodb_table import Expression, Table, assignments, decoding
from trainguard.adapters.dynamodb_tuning_jobs import TUNING_JOB, DynamoTuningJobs
from trainguard.adapters.stored_form import stored_job
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.errors import StateConflictError
from trainguard.evaluation_interval import EVALUATION_EVERY_S
from trainguard.job_policy import AlertPolicy, JobPolicy, StopPolicy
from trainguard.records import OUTSIDE_ARN, JobRecord, JobStatus, TunedJob, TuningJobRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef as AttributeValue

    from trainguard.adapters.attribute_values import Item

ACTIVE_JOBS_INDEX = "ActiveJobs"
_CALM, _URGENT = "yes", "urgent"
"""Values of Active. An item of a version that knew no other was looked at each minute, and is so from its next look."""

_EXISTS = "attribute_exists(#job)"
_NAME = {"#job": "TrainingJobName"}
_NO_JOBS = (TUNING_JOB, MET_JOBS)
"""How the names of items begin that are no job's: no job's name has a slash there."""
_Document = TypeVar("_Document", AlertPolicy, StopPolicy)


class DynamoJobs:
    """Store of Jobs items.

    Parameters
    ----------
    client : DynamoDBClient
        Low-level client.
    table : str
        Name of the table.

    Notes
    -----
    Changes of a job that has no item, because it was never registered or has expired, are dropped: half an item would
    be worse than none.
    """

    def __init__(self, *, client: "DynamoDBClient", table: str) -> None:
        self._table = Table(client=client, name=table)
        self._tuning_jobs = DynamoTuningJobs(self._table)
        self._limits = DynamoJobLimits(self._table)

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item (strongly consistent), or None."""
        item = None if job.startswith(_NO_JOBS) else self._table.get(_key(job))
        return None if item is None else _record(item)

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""
        created = stored_job(record)
        if self._table.put(_item(created), Expression("attribute_not_exists(#job)", _NAME)):
            return created
        return self._stored(record.job)

    def recognise(self, record: JobRecord) -> JobRecord:
        """Put ``record`` in place of the item of a job that SageMaker did not know; return the stored one either way.

        It is an update of every column, which creates the item if it has expired meanwhile: the tick may not put.
        """
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
        """Write status, secondary status, size, times, active, closing, its asks, left_at, file_fault and expires_at.

        Nothing of it is written when the stored status is final and the new one is not, unless the job was started
        after its stored end; or when the item has come to have another ARN. Times and a size that are None leave what
        is stored: what SageMaker once knew does not become unknown. But an active job does not expire.
        """
        record = stored_job(record)
        columns: dict[str, AttributeValue | None] = {
            "Status": text(record.status),
            "SecondaryStatus": text_or_none(record.secondary_status),
            "Active": _active(record),
            "Closing": {"BOOL": record.closing},
            **_asks(record),
            "JobFileFault": text_or_none(record.file_fault),
            **({"ExpiresAt": None} if record.active else {}),
        }
        same = Expression("#arn = :arn", {"#arn": "TrainingJobArn"}, {":arn": text(record.arn)})
        condition = same
        if not record.status.is_final:
            finals = {f":final{index}": text(status) for index, status in enumerate(JobStatus) if status.is_final}
            guard = f" AND NOT #status IN ({', '.join(finals)})"
            condition = condition.joined(Expression(guard, {"#status": "Status"}, finals))
        known = present(_times(record) | {"InstanceCount": integer_or_none(record.instance_count)})
        if self._table.update(_key(record.job), assignments(columns | known), condition):
            return
        if not record.status.is_final and record.started_at is not None:
            started = {":started": text(iso_from_epoch(record.started_at))}
            later = same.joined(Expression(" AND #ended < :started", {"#ended": "EndedAt"}, started))
            anew = columns | known | {"EndedAt": None}
            self._table.update(_key(record.job), assignments(anew), later)

    def ask(self, job: str, at: float, every_s: float) -> bool:
        """Take note that SageMaker is asked about the job; False when that was done less than ``every_s`` before."""
        times = {":at": text(iso_from_epoch(at)), ":before": text(iso_from_epoch(at - every_s))}
        return self._table.update(
            _key(job),
            Expression("SET #asked = :at", {"#asked": "AskedAt"}, times),
            Expression(f"{_EXISTS} AND (attribute_not_exists(#asked) OR #asked <= :before)", _NAME),
        )

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""
        at = text(iso_from_epoch(last_object_at))
        self._table.update(
            _key(job),
            Expression("SET #last = :last", {"#last": "LastObjectAt"}, {":last": at}),
            Expression(f"{_EXISTS} AND (attribute_not_exists(#last) OR #last < :last)", _NAME),
        )

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        """Set the rule's episode to ``seen + 1`` if it, and the generation, is still the same."""
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
        """Count one more stream of a unit that SageMaker does not name; False, which is noted, at ``most``."""
        return self._limits.admit_stream(job, most)

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        """Set the number of such streams if it is still ``seen``."""
        self._limits.recount_streams(job, seen, actual)

    def meet(self, at: float, most: int) -> bool:
        """Count one more name that objects brought, in the hour of ``at``; False when there are ``most``."""
        return self._limits.meet(at, most)

    def active(self) -> list[str]:
        """Names of the jobs that are not closed, in order; a change shows after the index has caught up."""
        return sorted([*self.calm(), *self.urgent()])

    def urgent(self) -> list[str]:
        """Names of those of them that are looked at each minute, in order."""
        return self._indexed(_URGENT)

    def calm(self) -> list[str]:
        """Names of the other ones, in order."""
        return self._indexed(_CALM)

    def set_urgent(self, job: str, *, urgent: bool) -> None:
        """Let an active job be looked at each minute, or not; one that is closing always is."""
        values = {":value": text(_URGENT if urgent else _CALM)}
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
        """Iterate over every job, page by page and in no order; items that are no job's are left out."""
        items = self._table.items()
        return (_record(item) for item in items if not item["TrainingJobName"]["S"].startswith(_NO_JOBS))

    def upsert_tuned_job(self, name: str, job: str, told: TunedJob, expires_at: int) -> None:
        """Write what is known of one job of a tuning job into the tuning job's item, and let that live as long."""
        self._tuning_jobs.tell(name, job, told, expires_at)

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item (strongly consistent), or None while no job of it was judged."""
        return self._tuning_jobs.load(name)

    def _stored(self, job: str) -> JobRecord:
        """Return the item of who won a race for it."""
        stored = self.load(job)
        if stored is None:
            # It was deleted in between, which only expiry does: the caller starts over.
            raise StateConflictError(f"Jobs/{job}", 0)
        return stored


def _key(job: str) -> "Item":
    return {"TrainingJobName": text(job)}


def _times(record: JobRecord) -> "dict[str, AttributeValue | None]":
    return {
        "CreatedAt": _time(record.created_at),
        "StartedAt": _time(record.started_at),
        "EndedAt": _time(record.ended_at),
        "ExpiresAt": integer_or_none(record.expires_at),
    }


def _time(epoch_s: float | None) -> "AttributeValue | None":
    return None if epoch_s is None else text(iso_from_epoch(epoch_s))


def _item(record: JobRecord) -> "Item":
    return _key(record.job) | present(_columns(record))


def _columns(record: JobRecord) -> "dict[str, AttributeValue | None]":
    return {
        "TrainingJobArn": text(record.arn),
        "Bucket": text(record.bucket),
        "Prefix": text(record.prefix),
        "Status": text(record.status),
        "SecondaryStatus": text_or_none(record.secondary_status),
        "InstanceType": text_or_none(record.instance_type),
        "InstanceCount": integer_or_none(record.instance_count),
        "ProfilingIntervalMs": integer_or_none(record.profiling_interval_ms),
        "FrameworkExpected": {"BOOL": record.framework_expected},
        "RuleSettings": texts(record.rule_settings),
        "StopAllowed": {"BOOL": record.stop_allowed},
        "Episodes": integers(record.episodes),
        "Active": _active(record),
        "Closing": {"BOOL": record.closing},
        "LastObjectAt": _time(record.last_object_at),
        "TuningJob": text_or_none(record.tuning_job),
        "JobFileFault": text_or_none(record.file_fault),
        "Generation": integer_or_none(record.generation or None),
        "AskedAt": _time(record.asked_at),
        "OtherStreams": integer_or_none(record.other_streams or None),
        "StreamsLeftOut": {"BOOL": True} if record.streams_left_out else None,
        **_asks(record),
        **_configuration(record),
        **_times(record),
    }


def _active(record: JobRecord) -> "AttributeValue | None":
    if not record.active:
        return None
    return text(_URGENT if record.urgent else _CALM)


def _asks(record: JobRecord) -> "dict[str, AttributeValue | None]":
    return {
        "CloseAsks": integer_or_none(record.close_asks or None),
        "CloseAskedAt": _time(record.close_asked_at),
        "LeftAt": _time(record.left_at),
    }


def _configuration(record: JobRecord) -> "dict[str, AttributeValue | None]":
    policy = record.policy
    return {
        "Evaluated": {"BOOL": policy.evaluated},
        "EvaluatedBecause": text(policy.why),
        "Alerts": text(msgspec.json.encode(policy.alerts).decode()),
        "Stops": text(msgspec.json.encode(policy.stops).decode()),
        "Source": text(policy.source) if policy.source else None,
        "EvaluationEveryS": number(policy.evaluation_every_s),
        "TrainingRules": None if record.training_rules is None else text_list(record.training_rules),
        "SettingSources": texts(record.setting_sources) if record.setting_sources else None,
        "ConfigurationFaults": text_list(record.setting_faults) if record.setting_faults else None,
        "RulesElsewhere": texts(record.rules_elsewhere) if record.rules_elsewhere else None,
        "RulePlaces": texts(record.rule_places) if record.rule_places else None,
        "Owners": texts(record.owners) if record.owners else None,
        "RunLinks": texts(record.run_links) if record.run_links else None,
        "Resources": text_list(record.resources) if record.resources else None,
    }


def _policy(columns: Columns) -> JobPolicy:
    """Read the policy; an item of a time before there was one has that of a job that nobody decided about."""
    if "Evaluated" not in columns:
        return JobPolicy()
    return JobPolicy(
        evaluated=columns.flag("Evaluated"),
        why=columns.text("EvaluatedBecause"),
        alerts=_document(columns, "Alerts", AlertPolicy),
        stops=_document(columns, "Stops", StopPolicy),
        source=columns.text("Source") if "Source" in columns else "",
        evaluation_every_s=columns.real_or_none("EvaluationEveryS") or EVALUATION_EVERY_S,
    )


def _document(columns: Columns, name: str, kind: type[_Document]) -> _Document:
    try:
        return msgspec.json.decode(columns.text(name), type=kind)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ValueError(f"{name} is no {kind.__name__}: {fault}") from fault


def _record(item: "Item") -> JobRecord:
    columns = Columns(item)
    job = columns.text("TrainingJobName")
    with decoding(f"Jobs/{job}"):
        return JobRecord(
            job=job,
            arn=columns.text("TrainingJobArn"),
            bucket=columns.text("Bucket"),
            prefix=columns.text("Prefix"),
            status=columns.made("Status", JobStatus),
            secondary_status=columns.text_or_none("SecondaryStatus"),
            instance_type=columns.text_or_none("InstanceType"),
            instance_count=columns.integer_or_none("InstanceCount"),
            created_at=columns.made_or_none("CreatedAt", epoch_from_iso),
            started_at=columns.made_or_none("StartedAt", epoch_from_iso),
            ended_at=columns.made_or_none("EndedAt", epoch_from_iso),
            profiling_interval_ms=columns.integer_or_none("ProfilingIntervalMs"),
            framework_expected=columns.flag("FrameworkExpected"),
            rule_settings=columns.texts("RuleSettings"),
            stop_allowed=columns.flag("StopAllowed"),
            episodes=columns.integers("Episodes"),
            active="Active" in columns,
            urgent=columns.text_or_none("Active") != _CALM,
            closing=columns.flag("Closing"),
            last_object_at=columns.made_or_none("LastObjectAt", epoch_from_iso),
            expires_at=columns.integer_or_none("ExpiresAt"),
            policy=_policy(columns),
            setting_sources=columns.texts("SettingSources"),
            setting_faults=columns.text_list("ConfigurationFaults"),
            rules_elsewhere=columns.texts("RulesElsewhere"),
            rule_places=columns.texts("RulePlaces"),
            tuning_job=columns.text_or_none("TuningJob"),
            file_fault=columns.text_or_none("JobFileFault"),
            close_asks=columns.integer_or_none("CloseAsks") or 0,
            close_asked_at=columns.made_or_none("CloseAskedAt", epoch_from_iso),
            left_at=columns.made_or_none("LeftAt", epoch_from_iso),
            generation=columns.integer_or_none("Generation") or 0,
            asked_at=columns.made_or_none("AskedAt", epoch_from_iso),
            training_rules=columns.text_list("TrainingRules") if "TrainingRules" in columns else None,
            owners=columns.texts("Owners"),
            run_links=columns.texts("RunLinks"),
            resources=columns.text_list("Resources"),
            other_streams=columns.integer_or_none("OtherStreams") or 0,
            streams_left_out="StreamsLeftOut" in columns,
        )
