"""RuleState in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from trainguard.adapters.memory.faults import Faults
from trainguard.adapters.stored_form import UNWRITTEN_REASON, stored_row
from trainguard.records import FireOutcome, RuleRow, Status


class MemoryRuleStates:
    """Twin of DynamoRuleStates; what the fire path wrote is kept beside the rows."""

    def __init__(self, *, faults: Faults) -> None:
        self._faults = faults
        self._lock = threading.RLock()
        self._rows: dict[tuple[str, str], RuleRow] = {}
        self._outcomes: dict[tuple[str, str], FireOutcome] = {}

    def publish(self, rows: Sequence[RuleRow]) -> None:
        """Write rows, each only if the stored one is not evaluated further; FiredAt is never removed."""
        for row in rows:
            with self._faults.call("RuleStates.publish"), self._lock:
                key, published = (row.job, row.target), stored_row(row)
                stored = self._rows.get(key)
                if stored is not None and _is_further(stored, published):
                    continue
                if published.fired_at is None and stored is not None:
                    published = replace(published, fired_at=stored.fired_at)
                self._rows[key] = published

    def of_job(self, job: str) -> list[RuleRow]:
        """Return all rows of a job, ordered by sort key."""
        with self._faults.call("RuleStates.of_job"), self._lock:
            return [row for (owner, _), row in sorted(self._rows.items()) if owner == job]

    def record_outcome(self, job: str, rule: str, outcome: FireOutcome) -> None:
        """Write what the fire path did into the rule's row; what is None in ``outcome`` is left as it is."""
        key = (job, rule)
        created = stored_row(RuleRow(job=job, rule=rule, node=None, status=Status.FIRED, reason=UNWRITTEN_REASON))
        with self._faults.call("RuleStates.record_outcome"), self._lock:
            known = self._outcomes.get(key)
            if known is not None:
                outcome = replace(
                    outcome,
                    alert_id=known.alert_id if outcome.alert_id is None else outcome.alert_id,
                    report_uri=known.report_uri if outcome.report_uri is None else outcome.report_uri,
                )
            self._outcomes[key] = outcome
            self._rows.setdefault(key, created)

    def outcome(self, job: str, rule: str) -> FireOutcome | None:
        """Return what the fire path wrote into the rule's row, for tests."""
        with self._lock:
            return self._outcomes.get((job, rule))


def _is_further(stored: RuleRow, published: RuleRow) -> bool:
    if stored.evaluated_through is None:
        return False
    return published.evaluated_through is None or published.evaluated_through < stored.evaluated_through
