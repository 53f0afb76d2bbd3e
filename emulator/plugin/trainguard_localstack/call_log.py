"""Remembers which SageMaker calls came in, so that a test can show that a job was stopped exactly once."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was asked, of which job, when (ISO 8601), and the error code if it was refused."""

    action: str
    job: str | None
    time: str
    error: str | None


class CallLog:
    """The calls in the order in which they were answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def select(self, *, action: str | None = None, job: str | None = None) -> list[dict[str, str | None]]:
        """Return the calls, as plain objects, of one action and one job where these are given."""
        with self._lock:
            calls = list(self._calls)
        return [asdict(c) for c in calls if action in {None, c.action} and job in {None, c.job}]
