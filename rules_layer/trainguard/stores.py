"""The stores of the three tables and of the stop budget; adapters/ holds one on DynamoDB and one in memory of each."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from trainguard.records import JobRecord, NodeRecord, RuleRow, StreamKey, TunedJob, TuningJobRecord


class NodeStates(Protocol):
    """Store of NodeState items."""

    def load(self, key: StreamKey) -> NodeRecord | None:
        """Return the item as last written (strongly consistent), or None."""
        ...

    def save(self, record: NodeRecord) -> NodeRecord:
        """Write the item if its stored Version is still ``record.version``.

        Returns the record with the new version. Raises StateConflictError when another writer was first (also when
        ``version`` is 0 and the item exists), PortUnavailableError when the store did not answer.
        """
        ...

    def mark_sent(self, key: StreamKey, alert_ids: Sequence[str]) -> None:
        """Mark outbox entries as sent, without moving Version; entries that are gone are ignored."""
        ...

    def of_job(self, job: str) -> list[NodeRecord]:
        """Return all items of a job, ordered by sort key (strongly consistent)."""
        ...


class RuleStates(Protocol):
    """Store of RuleState rows."""

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further (``EvaluatedThrough``).

        A row of a finished job (``expires_at`` is set) is not replaced by one evaluated as far that is not: the tick
        that wrote it was overtaken. A row of an earlier ``generation`` is replaced whole, and never replaces one.

        What the fire path owns is left as it is: `FIRE_PATH` of a row that is published says nothing.
        """
        ...

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key (strongly consistent)."""
        ...

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return those rows of a job that are of no node, ordered by sort key, without reading the others."""
        ...

    def load(self, job: str, target: str) -> RuleRow | None:
        """Return one row (strongly consistent), or None."""
        ...


class Jobs(Protocol):
    """Store of Jobs items."""

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""
        ...

    def register(self, record: JobRecord) -> JobRecord:
        """Create the item if there is none; return the stored one either way."""
        ...

    def recognise(self, record: JobRecord) -> JobRecord:
        """Put ``record`` in place of the item of a job that SageMaker did not know; return the stored one either way.

        An item with an ARN of SageMaker's stays as it is: another writer was first.
        """
        ...

    def update_status(self, record: JobRecord) -> None:
        """Write status, secondary status, size, times, active, closing, its asks, left_at, file_fault and expires_at.

        A status that is final is never replaced by one that is not, unless the job was started after its stored end;
        that end is removed then. An active job does not expire. Nothing is written to the item of another ARN:
        SageMaker has come to know the job since ``record`` was read.
        """
        ...

    def ask(self, job: str, at: float, every_s: float) -> bool:
        """Take note that SageMaker is asked about the job at ``at``, epoch seconds.

        False, and nothing is written, when it was asked less than ``every_s`` seconds before, or there is no item.
        """
        ...

    def touch(self, job: str, last_object_at: float) -> None:
        """Move LastObjectAt forward; never back."""
        ...

    def raise_episode(self, job: str, rule: str, seen: int, *, generation: int = 0) -> None:
        """Set the rule's episode to ``seen + 1`` if it is still ``seen``; a lost race is not an error.

        Nor is it that the job was registered anew since: the item must be of ``generation``.
        """
        ...

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream of a unit that SageMaker does not name; False, which is noted, when there are ``most``.

        True, and nothing is counted, for a job without an item.
        """
        ...

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        """Set the number of such streams to ``actual`` if it is still ``seen``: what failed was counted, too."""
        ...

    def meet(self, at: float, most: int) -> bool:
        """Count one more name that objects brought, in the clock hour of ``at`` (epoch seconds); False at ``most``."""
        ...

    def active(self) -> list[str]:
        """Names of the jobs that are not closed, in order."""
        ...

    def urgent(self) -> list[str]:
        """Names of those of them that are looked at each minute, in order."""
        ...

    def calm(self) -> list[str]:
        """Names of the other ones, in order."""
        ...

    def set_urgent(self, job: str, *, urgent: bool) -> None:
        """Let an active job be looked at each minute, or not; one that is closing always is."""
        ...

    def all(self) -> Iterator[JobRecord]:
        """Iterate over every job, page by page and in no order; what changes meanwhile may show or not.

        Items of tuning jobs are none of them.
        """
        ...

    def upsert_tuned_job(self, name: str, job: str, told: TunedJob, expires_at: int) -> None:
        """Write what is known of one job of a tuning job into the tuning job's item, and let that live as long.

        Other jobs' entries stay as they are. An entry that is finished is never replaced by one that is not. Of a
        tuning job that has ``MOST_TUNED_JOBS`` entries, a further job is not named: its item says that there are more.
        """
        ...

    def tuning_job(self, name: str) -> TuningJobRecord | None:
        """Return a tuning job's item (strongly consistent), or None while no job of it was judged."""
        ...


class StopBudget(Protocol):
    """How many training jobs the deployment may stop within an hour."""

    def take(self, fire_id: str, job: str, *, now: float, limit: int) -> bool:
        """Take one of ``limit`` stops within the hour before ``now`` (epoch seconds); False when none is left.

        ``job`` names one job of all that were ever created. A job, or a fire, that has taken one within that hour has
        taken it: a repeat takes no other. Raises StateConflictError when other fires were first each time.
        """
        ...
