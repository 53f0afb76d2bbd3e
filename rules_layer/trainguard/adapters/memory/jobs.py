"""Jobs in memory."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from trainguard.adapters.immutable import frozen_mapping, frozen_record
from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import stored_job
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.records import MOST_TUNED_JOBS, JobRecord, TunedJob, TuningJobRecord

HOUR_S = 3_600.0


class MemoryJobs:
    """Twin of DynamoJobs; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._records: dict[str, JobRecord] = {}
        self._tuning_jobs: dict[str, TuningJobRecord] = {}
        self._met: dict[int, int] = {}

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""
        with self._faults.call("Jobs.load"), self._lock:
            return self._records.get(job)

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""
        with self._faults.call("Jobs.register"), self._lock:
            return self._records.setdefault(record.job, stored_job(record))

    def recognise(self, record: JobRecord) -> JobRecord:
        """Put ``record`` in place of the item of a job that SageMaker did not know; return the stored one."""
        with self._faults.call("Jobs.recognise"), self._lock:
            stored = self._records.get(record.job)
            if stored is None or stored.is_outside:
                self._records[record.job] = stored = stored_job(record)
            return stored

    def update_status(self, record: JobRecord) -> None:
        """Write status, size, times, active, closing, its asks, left_at, file_fault and expires_at.

        Nothing of it is written if a final status would be lost, unless the job was started after its stored end; or
        if the item has come to have another ARN.
        """
        update = stored_job(record)
        with self._faults.call("Jobs.update_status"), self._lock:
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
                urgent=update.urgent,
                close_asks=update.close_asks,
                close_asked_at=update.close_asked_at,
                left_at=update.left_at,
                file_fault=update.file_fault,
                **known,
            )

    def ask(self, job: str, at: float, every_s: float) -> bool:
        """Take note that SageMaker is asked about the job; False when that was done less than ``every_s`` before."""
        with self._faults.call("Jobs.ask"), self._lock:
            stored = self._records.get(job)
            if stored is None or (stored.asked_at is not None and stored.asked_at > at - every_s):
                return False
            self._records[job] = stored_job(replace(stored, asked_at=at))
            return True

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""
        at = epoch_from_iso(iso_from_epoch(last_object_at))
        with self._faults.call("Jobs.touch"), self._lock:
            stored = self._records.get(job)
            if stored is not None and (stored.last_object_at is None or stored.last_object_at < at):
                self._records[job] = frozen_record(stored, last_object_at=at)

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        """Set the rule's episode to ``seen + 1`` if it, and the generation, is still the same."""
        with self._faults.call("Jobs.raise_episode"), self._lock:
            stored = self._records.get(job)
            if stored is not None and (stored.generation, stored.episodes.get(rule, 0)) == (generation, seen):
                self._records[job] = frozen_record(stored, episodes={**stored.episodes, rule: seen + 1})

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream of a unit that SageMaker does not name; False, which is noted, at ``most``."""
        with self._faults.call("Jobs.admit_stream"), self._lock:
            stored = self._records.get(job)
            if stored is None:
                return True
            admitted = stored.other_streams < most
            more = {"other_streams": stored.other_streams + 1} if admitted else {"streams_left_out": True}
            self._records[job] = frozen_record(stored, **more)
            return admitted

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        """Set the number of such streams if it is still ``seen``."""
        with self._faults.call("Jobs.recount_streams"), self._lock:
            stored = self._records.get(job)
            if stored is not None and stored.other_streams == seen:
                self._records[job] = frozen_record(stored, other_streams=actual)

    def meet(self, at: float, most: int) -> bool:
        """Count one more name that objects brought, in the hour of ``at``; False when there are ``most``."""
        with self._faults.call("Jobs.meet"), self._lock:
            hour = int(at // HOUR_S)
            met = self._met.get(hour, 0)
            if met >= most:
                return False
            self._met[hour] = met + 1
            return True

    def active(self) -> list[str]:
        """Names of the jobs that are not closed, in order."""
        with self._faults.call("Jobs.active"), self._lock:
            return sorted(job for job, record in self._records.items() if record.active)

    def urgent(self) -> list[str]:
        """Names of those of them that are looked at each minute, in order."""
        with self._faults.call("Jobs.urgent"), self._lock:
            return sorted(job for job, record in self._records.items() if record.active and record.urgent)

    def calm(self) -> list[str]:
        """Names of the other ones, in order."""
        with self._faults.call("Jobs.calm"), self._lock:
            return sorted(job for job, record in self._records.items() if record.active and not record.urgent)

    def set_urgent(self, job: str, *, urgent: bool) -> None:
        """Let an active job be looked at each minute, or not; one that is closing always is."""
        with self._faults.call("Jobs.set_urgent"), self._lock:
            stored = self._records.get(job)
            if stored is not None and stored.active and not stored.closing:
                self._records[job] = frozen_record(stored, urgent=urgent)

    def all(self) -> Iterator[JobRecord]:
        """Iterate over every job, page by page and in no order; here a page holds them all."""
        with self._faults.call("Jobs.all"), self._lock:
            page = tuple(self._records.values())
        yield from page

    def upsert_tuned_job(self, name: str, job: str, told: TunedJob, expires_at: int) -> None:
        """Write what is known of one job of a tuning job into the tuning job's item, and let that live as long."""
        with self._faults.call("Jobs.upsert_tuned_job"), self._lock:
            stored = self._tuning_jobs.get(name, TuningJobRecord(name))
            known = stored.jobs.get(job)
            if known is None and len(stored.jobs) >= MOST_TUNED_JOBS:
                self._tuning_jobs[name] = replace(stored, more=True, expires_at=expires_at)
            elif known is None or told.finished or not known.finished:
                jobs = frozen_mapping({**stored.jobs, job: told})
                self._tuning_jobs[name] = replace(stored, jobs=jobs, expires_at=expires_at)

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item, or None while no job of it was judged."""
        with self._faults.call("Jobs.tuning_job"), self._lock:
            return self._tuning_jobs.get(name)
