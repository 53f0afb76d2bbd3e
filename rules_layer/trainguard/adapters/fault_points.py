"""What of all that is counted is a fault of TrainGuard itself, and how much of it is reason for an alarm.

The alarm FaultsFound fires at `AT_ONCE` points within a quarter of an hour: for one fault that needs a person, or for
many of those that pass by themselves.
"""

from collections.abc import Mapping

FAULT_FIELD = "fault"
"""Field of a log line that holds the line's points."""

AT_ONCE = 9

_SOON = 3
"""Three batches within a quarter of an hour."""

_WHEN_MANY = 1

FAULT_POINTS: Mapping[str, int] = {
    "rule_errors": AT_ONCE,
    "state_conflicts_exhausted": AT_ONCE,
    "canary_failed": AT_ONCE,
    "verdicts_behind": _SOON,
    "tick_failures": _WHEN_MANY,
    "ticks_unfinished": _WHEN_MANY,
    "port_failures": _WHEN_MANY,
}
"""Points by the name under which the journal counts a fault."""
