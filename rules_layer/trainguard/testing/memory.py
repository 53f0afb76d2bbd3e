"""A deployment in memory: a twin of each AWS adapter that the engine calls, and buckets whose clock the kit sets."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from types import MappingProxyType
from typing import Any, NamedTuple

from trainguard.aws.dynamodb.stored_form import frozen_mapping, frozen_record, stored_job, stored_node, stored_row
from trainguard.core.brakes import NO_BRAKES
from trainguard.core.errors import ObjectMissingError, PortUnavailableError, StateConflictError
from trainguard.core.ports import ByteStream, ListedObject, Services, StreamTask, TrainingJobDescription, check_range
from trainguard.core.records import (
    FIRE_PATH,
    MOST_TUNED_JOBS,
    JobRecord,
    RuleRow,
    StreamKey,
    StreamRecord,
    TunedJob,
    TuningJobRecord,
    execution_input,
)
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch


class MemoryNodeStates:
    """Twin of DynamoNodeStates."""

    def __init__(self) -> None:
        self._records: dict[StreamKey, StreamRecord] = {}

    def load(self, key: StreamKey) -> StreamRecord | None:
        return self._records.get(key)

    def save(self, record: StreamRecord) -> StreamRecord:
        key, item = record.key, f"NodeState/{record.key.job}/{record.key.node_kind}"
        written = replace(stored_node(record), version=record.version + 1)
        stored = self._records.get(key)
        if (0 if stored is None else stored.version) != record.version:
            raise StateConflictError(item, record.version)
        self._records[key] = written
        return written

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        for alert_id in alert_ids:
            stored = self._records.get(key)
            if stored is not None and alert_id in stored.outbox:
                sent = replace(stored.outbox[alert_id], sent=True)
                self._records[key] = frozen_record(stored, outbox={**stored.outbox, alert_id: sent})

    def of_job(self, job: str) -> list[StreamRecord]:
        records = [record for key, record in self._records.items() if key.job == job]
        return sorted(records, key=lambda record: record.key.node_kind)


class MemoryRuleStates:
    """Twin of DynamoRuleStates."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], RuleRow] = {}

    def publish(self, rows: Sequence[RuleRow]) -> None:
        for row in rows:
            key, published = (row.job, row.target), stored_row(row)
            stored = self._rows.get(key)
            if stored is not None and stored.generation < published.generation:
                stored = stored if published.times_fired else None
            elif stored is not None and _is_further(stored, published):
                continue
            kept: dict[str, Any] = {name: None if stored is None else getattr(stored, name) for name in FIRE_PATH}
            if published.fired_at is None and stored is not None:
                kept["fired_at"] = stored.fired_at
            self._rows[key] = replace(published, **kept)

    def of_job(self, job: str) -> list[RuleRow]:
        return [row for (owner, _), row in sorted(self._rows.items()) if owner == job]

    def of_whole_job(self, job: str) -> list[RuleRow]:
        return [row for (owner, _), row in sorted(self._rows.items()) if owner == job and row.node is None]

    def load(self, job: str, target: str) -> RuleRow | None:
        return self._rows.get((job, target))


def _is_further(stored: RuleRow, published: RuleRow) -> bool:
    if stored.generation > published.generation:
        return True
    if stored.evaluated_through is None:
        return False
    if published.evaluated_through is None or published.evaluated_through < stored.evaluated_through:
        return True
    final = stored.expires_at is not None and published.expires_at is None
    return final and published.evaluated_through == stored.evaluated_through


_ONCE_KNOWN = ("instance_count", "created_at", "started_at", "ended_at", "expires_at")
_OF_STATUS = (
    *("status", "secondary_status", "active", "closing", "polled_fast"),
    *("close_asks", "close_asked_at", "left_at", "file_fault"),
)


class MemoryJobs:
    """Twin of DynamoJobs."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    def load(self, job: str) -> JobRecord | None:
        return self._records.get(job)

    def register(self, record: JobRecord) -> JobRecord:
        return self._records.setdefault(record.job, stored_job(record))

    def adopt(self, record: JobRecord) -> JobRecord:
        stored = self._records.get(record.job)
        if stored is None or stored.is_outside:
            self._records[record.job] = stored = stored_job(record)
        return stored

    def update_status(self, record: JobRecord) -> None:
        update = stored_job(record)
        stored = self._records.get(record.job)
        if stored is None or stored.arn != update.arn:
            return
        if stored.status.is_final and not update.status.is_final:
            if stored.ended_at is None or update.started_at is None or update.started_at <= stored.ended_at:
                return
            stored = frozen_record(stored, ended_at=None)
        if update.active:
            stored = frozen_record(stored, expires_at=None)
        known = {name: value for name in _ONCE_KNOWN if (value := getattr(update, name)) is not None}
        changed = {name: getattr(update, name) for name in _OF_STATUS}
        self._records[record.job] = frozen_record(stored, **known, **changed)

    def ask(self, job: str, at: float, every_s: float) -> bool:
        stored = self._records.get(job)
        if stored is None or (stored.asked_at is not None and stored.asked_at > at - every_s):
            return False
        self._records[job] = stored_job(replace(stored, asked_at=at))
        return True

    def touch(self, job: str, last_object_at: float) -> None:
        at, stored = epoch_from_iso(iso_from_epoch(last_object_at)), self._records.get(job)
        if stored is not None and (stored.last_object_at is None or stored.last_object_at < at):
            self._set(job, last_object_at=at)

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        stored = self._records.get(job)
        if stored is not None and (stored.generation, stored.episodes.get(rule, 0)) == (generation, seen):
            self._set(job, episodes={**stored.episodes, rule: seen + 1})

    def admit_stream(self, job: str, most: int) -> bool:
        stored = self._records.get(job)
        if stored is None:
            return True
        admitted = stored.other_streams < most
        more = {"other_streams": stored.other_streams + 1} if admitted else {"streams_left_out": True}
        self._records[job] = frozen_record(stored, **more)
        return admitted

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        if (stored := self._records.get(job)) is not None and stored.other_streams == seen:
            self._set(job, other_streams=actual)

    def active(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active)

    def polled_fast(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active and record.polled_fast)

    def polled_slowly(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active and not record.polled_fast)

    def set_fast_polling(self, job: str, *, polled_fast: bool) -> None:
        if (stored := self._records.get(job)) is not None and stored.active and not stored.closing:
            self._set(job, polled_fast=polled_fast)

    def set_braked(self, job: str, why: str | None) -> None:
        self._set(job, braked=why)

    def set_outlook(self, job: str, words: str) -> None:
        self._set(job, outlook=words)

    def _set(self, job: str, **columns: object) -> None:
        stored = self._records.get(job)
        if stored is not None:
            self._records[job] = frozen_record(stored, **columns)

    def all(self) -> Iterator[JobRecord]:
        return iter(tuple(self._records.values()))


class MemoryBookkeeping:
    """Twin of DynamoBookkeeping."""

    def __init__(self) -> None:
        self._tuning_jobs: dict[str, TuningJobRecord] = {}
        self._met: dict[int, int] = {}

    def admit(self, at: float, most: int) -> bool:
        hour = int(at // 3_600.0)
        met = self._met.get(hour, 0)
        if met >= most:
            return False
        self._met[hour] = met + 1
        return True

    def upsert_tuned_job(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        stored = self._tuning_jobs.get(name, TuningJobRecord(name))
        known = stored.jobs.get(job)
        if known is None and len(stored.jobs) >= MOST_TUNED_JOBS:
            self._tuning_jobs[name] = replace(stored, more=True, expires_at=expires_at)
        elif known is None or tuned.finished or not known.finished:
            jobs = frozen_mapping({**stored.jobs, job: tuned})
            self._tuning_jobs[name] = replace(stored, jobs=jobs, expires_at=expires_at)

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        return self._tuning_jobs.get(name)


class MemoryProfileObjects:
    """Twin of S3ProfileObjects; ``now`` is the clock of ``last_modified``, epoch seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._buckets: dict[str, dict[str, tuple[ListedObject, bytes]]] = {}

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        return self._body(bucket, key)[: max_bytes + 1]

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self._body(bucket, key)[start : start + length]

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        return BytesIO(self._body(bucket, key))

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        held = self._buckets.get(bucket, {})
        # The order of code points, which Python compares, is the order of their UTF-8 bytes.
        names = sorted(key for key in held if key.startswith(prefix) and key > start_after)
        return iter([held[name][0] for name in names])

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        del content_type
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        entry = ListedObject(key, self.now, len(body), etag)
        self._buckets.setdefault(bucket, {})[key] = (entry, bytes(body))

    def _body(self, bucket: str, key: str) -> bytes:
        held = self._buckets.get(bucket, {}).get(key)
        if held is None:
            raise ObjectMissingError(bucket, key)
        return held[1]


_EXECUTION_NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")


class MemoryExecutions:
    """Twin of StepFunctionsExecutions; remembers every execution by its name."""

    def __init__(self) -> None:
        self._inputs: dict[str, str] = {}

    def start(self, name: str, payload: Mapping[str, object]) -> bool:
        document = execution_input(payload)
        if not _EXECUTION_NAME.fullmatch(name):
            raise PortUnavailableError("StepFunctions", "StartExecution", f"InvalidName: {name!r}")
        if name in self._inputs:
            return False
        self._inputs[name] = document
        return True

    @property
    def started(self) -> dict[str, dict[str, object]]:
        """Payload of each execution by name, in the order of their starts."""
        return {name: json.loads(document) for name, document in self._inputs.items()}


class MemoryTrainingJobs:
    """Twin of SageMakerTrainingJobs; knows the jobs that a test describes."""

    def __init__(self) -> None:
        self._descriptions: dict[str, TrainingJobDescription] = {}

    def describe(self, job: str) -> TrainingJobDescription | None:
        return self._descriptions.get(job)

    def set(self, description: TrainingJobDescription) -> None:
        self._descriptions[description.job] = frozen_record(description)


class MemoryTaskQueue:
    """Twin of SqsTaskQueue; the kit drains it."""

    def __init__(self) -> None:
        self._tasks: list[StreamTask] = []

    def send(self, tasks: Sequence[StreamTask]) -> None:
        self._tasks += tasks

    def drain(self) -> list[StreamTask]:
        taken, self._tasks = self._tasks, []
        return taken


class JournalEntry(NamedTuple):
    """One call of ``count``."""

    what: str
    amount: float
    where: Mapping[str, object]


class MemoryJournal:
    """Twin of PowertoolsJournal."""

    def __init__(self) -> None:
        self._entries: list[JournalEntry] = []

    def count(self, what: str, amount: float = 1, **where: object) -> None:
        self._entries.append(JournalEntry(what, amount, MappingProxyType(where)))

    def measure(self, what: str, seconds: float) -> None:
        """Take no note of times."""

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        return tuple(self._entries)


DEFAULT_SETTINGS = "/TrainGuard/default-settings"
SETTINGS_PATH = "/TrainGuard/settings/"
# A stack with a bucket of its own begins with this.
DEPLOYED_DEFAULT = '{"evaluate": "all"}'


class MemorySettingDocuments:
    """Twin of SsmSettingDocuments."""

    default = DEFAULT_SETTINGS
    path = SETTINGS_PATH

    def __init__(self) -> None:
        self._documents = {DEFAULT_SETTINGS: DEPLOYED_DEFAULT}

    def read(self, name: str) -> str | None:
        return self._documents.get(name)


class MemoryWorld:
    """A deployment's stores and services in memory.

    Examples
    --------
    >>> world = MemoryWorld()
    >>> world.objects.now = 1_700_000_000.0
    >>> world.objects.put("profiles", "a.json", b"{}", "application/json")
    >>> world.services.objects.get("profiles", "a.json", max_bytes=10)
    b'{}'
    """

    def __init__(self) -> None:
        self.jobs = MemoryJobs()
        self.nodes = MemoryNodeStates()
        self.rows = MemoryRuleStates()
        self.bookkeeping = MemoryBookkeeping()
        self.objects = MemoryProfileObjects()
        self.executions = MemoryExecutions()
        self.reports = MemoryExecutions()
        self.captures = MemoryExecutions()
        self.training_jobs = MemoryTrainingJobs()
        self.tasks = MemoryTaskQueue()
        self.journal = MemoryJournal()
        self.settings = MemorySettingDocuments()
        self.brakes = NO_BRAKES

    @property
    def services(self) -> Services:
        return Services(
            jobs=self.jobs,
            nodes=self.nodes,
            rows=self.rows,
            bookkeeping=self.bookkeeping,
            objects=self.objects,
            executions=self.executions,
            reports=self.reports,
            captures=self.captures,
            training_jobs=self.training_jobs,
            tasks=self.tasks,
            journal=self.journal,
            settings=self.settings,
            brakes=lambda: self.brakes,
        )
