"""Jobs in memory."""

import threading
from collections.abc import Iterator

from trainguard.adapters.frozen import frozen_record
from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import stored_job
from trainguard.adapters.timestamps import epoch_from_iso, iso_from_epoch
from trainguard.records import JobRecord


class MemoryJobs:
    """Twin of DynamoJobs; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._records: dict[str, JobRecord] = {}

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""
        with self._faults.call("Jobs.load"), self._lock:
            return self._records.get(job)

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""
        with self._faults.call("Jobs.register"), self._lock:
            return self._records.setdefault(record.job, stored_job(record))

    def update_status(self, record: JobRecord) -> None:
        """Write status, size, times, active, closing and expires_at; nothing of it if a final status would be lost."""
        update = stored_job(record)
        with self._faults.call("Jobs.update_status"), self._lock:
            stored = self._records.get(record.job)
            if stored is None or (stored.status.is_final and not update.status.is_final):
                return
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
                **known,
            )

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""
        at = epoch_from_iso(iso_from_epoch(last_object_at))
        with self._faults.call("Jobs.touch"), self._lock:
            stored = self._records.get(job)
            if stored is not None and (stored.last_object_at is None or stored.last_object_at < at):
                self._records[job] = frozen_record(stored, last_object_at=at)

    def raise_episode(self, job: str, rule: str, seen: int) -> None:
        """Set the rule's episode to ``seen + 1`` if it is still ``seen``; a lost race is not an error."""
        with self._faults.call("Jobs.raise_episode"), self._lock:
            stored = self._records.get(job)
            if stored is not None and stored.episodes.get(rule, 0) == seen:
                self._records[job] = frozen_record(stored, episodes={**stored.episodes, rule: seen + 1})

    def active(self) -> list[str]:
        """Names of the jobs that are not closed, in order."""
        with self._faults.call("Jobs.active"), self._lock:
            return sorted(job for job, record in self._records.items() if record.active)

    def all(self) -> Iterator[JobRecord]:
        """Iterate over every job, page by page and in no order; here a page holds them all."""
        with self._faults.call("Jobs.all"), self._lock:
            page = tuple(self._records.values())
        yield from page
