"""RuleState in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import stored_row
from trainguard.records import RuleRow
from trainguard.stores import StoredRow


class MemoryRuleStates:
    """Twin of DynamoRuleStates; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str], RuleRow] = {}
        self._fires: dict[tuple[str, str], StoredRow] = {}

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not further, or as far and final; FiredAt is never removed."""
        for row in rows:
            with self._faults.call("RuleStates.publish"), self._lock:
                key, published = (row.job, row.target), stored_row(row)
                stored = self._rows.get(key)
                if stored is not None and stored.generation < published.generation:
                    if published.times_fired == 0:
                        self._fires.pop(key, None)
                        stored = None
                elif stored is not None and _is_further(stored, published):
                    continue
                if published.fired_at is None and stored is not None:
                    published = replace(published, fired_at=stored.fired_at)
                self._rows[key] = published

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key."""
        with self._faults.call("RuleStates.of_job"), self._lock:
            return [row for (owner, _), row in sorted(self._rows.items()) if owner == job]

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return those rows of a job that are of no node, ordered by sort key."""
        with self._faults.call("RuleStates.of_whole_job"), self._lock:
            return [row for (owner, _), row in sorted(self._rows.items()) if owner == job and row.node is None]

    def read(self, job: str) -> list[StoredRow]:
        """Return all rows of a job with what the fire path wrote into them, ordered by sort key."""
        with self._faults.call("RuleStates.read"), self._lock:
            held = [(key, row) for key, row in sorted(self._rows.items()) if row.job == job]
            return [replace(self._fires.get(key, StoredRow(row)), row=row) for key, row in held]

    def load(self, job: str, target: str) -> StoredRow | None:
        """Return one row with what the fire path wrote into it, or None."""
        with self._faults.call("RuleStates.load"), self._lock:
            row = self._rows.get((job, target))
            return None if row is None else replace(self._fires.get((job, target), StoredRow(row)), row=row)

    def record(self, fire: StoredRow) -> None:
        """Write a row with the columns of the fire path, as the state machine does after a fire."""
        with self._lock:
            key = (fire.row.job, fire.row.target)
            self._rows[key] = stored_row(fire.row)
            self._fires[key] = fire


def _is_further(stored: RuleRow, published: RuleRow) -> bool:
    if stored.generation > published.generation:
        return True
    if stored.evaluated_through is None:
        return False
    if published.evaluated_through is None or published.evaluated_through < stored.evaluated_through:
        return True
    final = stored.expires_at is not None and published.expires_at is None
    return final and published.evaluated_through == stored.evaluated_through
