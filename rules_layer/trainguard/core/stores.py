"""The stores of the four tables and of the stop budget; aws/ holds one on DynamoDB of each, testing.memory a twin."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from trainguard.core.records import JobRecord, RuleRow, StreamKey, StreamRecord, TunedJob, TuningJobRecord


class NodeStates(Protocol):
    """Store of NodeState items."""

    def load(self, key: StreamKey) -> StreamRecord | None:
        """Return the item as last written (strongly consistent), or None."""

    def save(self, record: StreamRecord) -> StreamRecord:
        """Write the item and return it; StateConflictError unless its stored Version is ``record.version``."""

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        """Mark outbox entries as sent, without moving Version; entries that are gone are ignored."""

    def of_job(self, job: str) -> list[StreamRecord]:
        """Return all items of a job, ordered by sort key (strongly consistent)."""


class RuleStates(Protocol):
    """Store of RuleState rows."""

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further; `FIRE_PATH` of the stored row stays.

        A row of a finished job (``expires_at`` is set) is not replaced by one evaluated as far that is not. A row of an
        earlier ``generation`` is replaced whole, and never replaces one.
        """

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key (strongly consistent)."""

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return the rows of a job that are of no node, ordered by sort key, without reading the others."""

    def load(self, job: str, target: str) -> RuleRow | None:
        """Return one row (strongly consistent), or None."""


class Jobs(Protocol):
    """Store of Jobs items."""

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""

    def adopt(self, record: JobRecord) -> JobRecord:
        """Replace the item of a job without SageMaker's ARN; return the stored one either way."""

    def update_status(self, record: JobRecord) -> None:
        """Write status, secondary status, size, times, active, closing, its asks, left_at, file_fault and expires_at.

        A final status is never replaced by one that is not, unless the job was started after its stored end, which is
        removed then. An active job does not expire. The item of another ARN stays.
        """

    def ask(self, job: str, at: float, every_s: float) -> bool:
        """Record that SageMaker is asked at ``at``, epoch seconds; False within ``every_s`` of the last time."""

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        """Set the rule's episode to ``seen + 1`` if it is ``seen`` and the item of ``generation``; else do nothing."""

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream that SageMaker does not name; False, and stored, at ``most``."""

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        """Set the number of such streams to ``actual`` if it is still ``seen``: failed ones were counted, too."""

    def active(self) -> list[str]:
        """Return the names of the jobs that are not closed, in order."""

    def polled_fast(self) -> list[str]:
        """Return the names of the active jobs that are evaluated each minute, in order."""

    def polled_slowly(self) -> list[str]:
        """Return the names of the other active jobs, in order."""

    def set_fast_polling(self, job: str, *, polled_fast: bool) -> None:
        """Poll an active job fast or slowly; one that is closing is always polled fast."""

    def set_braked(self, job: str, why: str | None) -> None:
        """Write why a brake holds a job's evaluation back; None where none does."""

    def set_outlook(self, job: str, words: str) -> None:
        """Write when a job will end, as it is forecast now."""

    def all(self) -> Iterator[JobRecord]:
        """Iterate over every job, in no order; changes during the iteration may show or not."""


class Bookkeeping(Protocol):
    """Store of what is counted beside jobs and rows."""

    def admit(self, at: float, most: int) -> bool:
        """Count one more name that objects brought, in the clock hour of ``at`` (epoch seconds); False at ``most``."""

    def upsert_tuned_job(self, name: str, job: str, tuned: TunedJob, expires_at: int) -> None:
        """Write one job of a tuning job into its item; a finished entry is never replaced by one that is not."""

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item (strongly consistent), or None while no job of it was judged."""


class StopBudget(Protocol):
    """How many training jobs the deployment may stop within an hour."""

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        """Take one of ``limit`` stops in the hour before ``now``, once a job and fire; raises StateConflictError."""
