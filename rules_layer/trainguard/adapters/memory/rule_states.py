"""RuleState in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import stored_row
from trainguard.records import FIRE_PATH, RuleRow


class MemoryRuleStates:
    """Twin of DynamoRuleStates; thread-safe, its conditional writes are atomic."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str], RuleRow] = {}

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not further, or as far and final; FiredAt is never removed."""
        for row in rows:
            with self._faults.call("RuleStates.publish"), self._lock:
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
        """Return all rows of a job, ordered by sort key."""
        with self._faults.call("RuleStates.of_job"), self._lock:
            return [row for (owner, _), row in sorted(self._rows.items()) if owner == job]

    def of_whole_job(self, job: str) -> list[RuleRow]:
        """Return those rows of a job that are of no node, ordered by sort key."""
        with self._faults.call("RuleStates.of_whole_job"), self._lock:
            return [row for (owner, _), row in sorted(self._rows.items()) if owner == job and row.node is None]

    def load(self, job: str, target: str) -> RuleRow | None:
        """Return one row, or None."""
        with self._faults.call("RuleStates.load"), self._lock:
            return self._rows.get((job, target))

    def record(self, row: RuleRow) -> None:
        """Write a row with what the fire path writes into it, as the state machine does after a fire."""
        with self._lock:
            self._rows[row.job, row.target] = stored_row(row)


def _is_further(stored: RuleRow, published: RuleRow) -> bool:
    if stored.generation > published.generation:
        return True
    if stored.evaluated_through is None:
        return False
    if published.evaluated_through is None or published.evaluated_through < stored.evaluated_through:
        return True
    final = stored.expires_at is not None and published.expires_at is None
    return final and published.evaluated_through == stored.evaluated_through
