"""The tables in memory: NodeState, RuleState and Jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from trainguard.aws.dynamodb.stored_form import frozen_mapping, frozen_record, stored_job, stored_node, stored_row
from trainguard.core.errors import StateConflictError
from trainguard.core.records import (
    FIRE_PATH,
    MOST_TUNED_JOBS,
    JobRecord,
    NodeRecord,
    RuleRow,
    StreamKey,
    TunedJob,
    TuningJobRecord,
)
from trainguard.core.timestamps import epoch_from_iso, iso_from_epoch


class MemoryNodeStates:
    """Twin of DynamoNodeStates."""

    def __init__(self) -> None:
        self._records: dict[StreamKey, NodeRecord] = {}

    def load(self, key: StreamKey) -> NodeRecord | None:
        return self._records.get(key)

    def save(self, record: NodeRecord) -> NodeRecord:
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

    def of_job(self, job: str) -> list[NodeRecord]:
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


HOUR_S = 3_600.0


class MemoryJobs:
    """Twin of DynamoJobs."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}
        self._tuning_jobs: dict[str, TuningJobRecord] = {}
        self._met: dict[int, int] = {}

    def load(self, job: str) -> JobRecord | None:
        return self._records.get(job)

    def register(self, record: JobRecord) -> JobRecord:
        return self._records.setdefault(record.job, stored_job(record))

    def recognise(self, record: JobRecord) -> JobRecord:
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
        known = {
            name: value
            for name in ("instance_count", "created_at", "started_at", "ended_at", "expires_at")
            if (value := getattr(update, name)) is not None
        }
        self._records[record.job] = frozen_record(
            stored,
            status=update.status,
            secondary_status=update.secondary_status,
            active=update.active,
            closing=update.closing,
            polled_fast=update.polled_fast,
            close_asks=update.close_asks,
            close_asked_at=update.close_asked_at,
            left_at=update.left_at,
            file_fault=update.file_fault,
            **known,
        )

    def ask(self, job: str, at: float, every_s: float) -> bool:
        stored = self._records.get(job)
        if stored is None or (stored.asked_at is not None and stored.asked_at > at - every_s):
            return False
        self._records[job] = stored_job(replace(stored, asked_at=at))
        return True

    def touch(self, job: str, last_object_at: float) -> None:
        at = epoch_from_iso(iso_from_epoch(last_object_at))
        stored = self._records.get(job)
        if stored is not None and (stored.last_object_at is None or stored.last_object_at < at):
            self._records[job] = frozen_record(stored, last_object_at=at)

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        stored = self._records.get(job)
        if stored is not None and (stored.generation, stored.episodes.get(rule, 0)) == (generation, seen):
            self._records[job] = frozen_record(stored, episodes={**stored.episodes, rule: seen + 1})

    def admit_stream(self, job: str, most: int) -> bool:
        stored = self._records.get(job)
        if stored is None:
            return True
        admitted = stored.other_streams < most
        more = {"other_streams": stored.other_streams + 1} if admitted else {"streams_left_out": True}
        self._records[job] = frozen_record(stored, **more)
        return admitted

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        stored = self._records.get(job)
        if stored is not None and stored.other_streams == seen:
            self._records[job] = frozen_record(stored, other_streams=actual)

    def meet(self, at: float, most: int) -> bool:
        hour = int(at // HOUR_S)
        met = self._met.get(hour, 0)
        if met >= most:
            return False
        self._met[hour] = met + 1
        return True

    def active(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active)

    def polled_fast(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active and record.polled_fast)

    def polled_slowly(self) -> list[str]:
        return sorted(job for job, record in self._records.items() if record.active and not record.polled_fast)

    def set_fast_polling(self, job: str, *, polled_fast: bool) -> None:
        stored = self._records.get(job)
        if stored is not None and stored.active and not stored.closing:
            self._records[job] = frozen_record(stored, polled_fast=polled_fast)

    def all(self) -> Iterator[JobRecord]:
        page = tuple(self._records.values())
        yield from page

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
