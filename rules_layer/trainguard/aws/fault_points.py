"""Which counters are faults of TrainGuard; the alarm FaultsFound fires at `AT_ONCE` points in a quarter of an hour."""

from collections.abc import Mapping

FAULT_FIELD = "fault"

AT_ONCE = 9

_SOON = 3
"""Three batches within a quarter of an hour."""

_WHEN_MANY = 1

FAULT_POINTS: Mapping[str, int] = {
    "rule_errors": AT_ONCE,
    "state_conflicts_exhausted": AT_ONCE,
    "canary_failed": AT_ONCE,
    "verdicts_behind": _SOON,
    "reconcile_failures": _WHEN_MANY,
    "scheduler_unfinished": _WHEN_MANY,
    "port_failures": _WHEN_MANY,
}
