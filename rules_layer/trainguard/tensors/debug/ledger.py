"""Which steps of a run are complete, from the names of its files alone.

W(s) are the workers that have an index file for step s. N is the number of workers, L the last step that all N have.
A step is complete where all N have it; or where it is not after L, because a worker that finished a later step has
skipped it; or where the run has ended.

A worker that writes no more would hold up the rest for ever. So when more than a thousand steps were seen after L, the
first half of them counts as complete. The client library of SageMaker Debugger has the same guard.

A ledger takes announcements in any order, any number of times. Where objects may be announced out of order, add a
listing of ``index/`` from ``listing_starts`` on before a step is taken: it holds what workers wrote earlier.
"""

from collections.abc import Sequence

import msgspec

WINDOW = 1_000
MOST_PENDING = 16_384
"""Pairs of a step and a worker that wait; with more of them the guard acts before the window is full."""

MOST_WORKERS = 4_096


class CompleteStep(msgspec.Struct, frozen=True):
    """A complete step, and the workers that saved it, sorted."""

    step: int
    workers: tuple[str, ...]


class StepLedger(msgspec.Struct):
    """What is known of a run's steps; its fields are what is stored.

    ``passed`` is the last step that was taken, -1 before the first. ``pending`` are the steps after it, each with its
    workers as places in ``names``, and ``entries`` counts these. ``collected`` are the workers whose collections file
    was seen. ``refused`` counts names of workers over 4,096, ``given_up`` steps that the guard declared complete.
    """

    workers: int | None = None
    ended: bool = False
    passed: int = -1
    last_complete: int = -1
    names: list[str] = msgspec.field(default_factory=list)
    collected: list[int] = msgspec.field(default_factory=list)
    pending: dict[int, list[int]] = msgspec.field(default_factory=dict)
    entries: int = 0
    refused: int = 0
    given_up: int = 0

    def add_collections(self, worker: str, workers: int) -> None:
        """Take note of a collections file; the first one says how many workers write."""
        if self.workers is None:
            self.workers = workers
            full = (step for step, waiting in self.pending.items() if len(waiting) >= workers)
            self.last_complete = max(full, default=self.last_complete)
        place = self._place(worker)
        if place is not None and place not in self.collected:
            self.collected.append(place)

    def add_index(self, step: int, worker: str) -> bool:
        """Take note of an index file; False where its step was taken before, or there are too many workers."""
        if step <= self.passed:
            return False
        place = self._place(worker)
        if place is None:
            return False
        waiting = self.pending.setdefault(step, [])
        if place not in waiting:
            waiting.append(place)
            self.entries += 1
            self._settle(step, len(waiting))
        return True

    def end(self) -> None:
        """Take note of the mark of the run's end."""
        self.ended = True

    @property
    def has_begun(self) -> bool:
        """Whether as many workers as there are have a collections file: no step is looked at before."""
        return self.workers is not None and len(self.collected) >= self.workers

    @property
    def is_empty(self) -> bool:
        """Whether the run ended without saying what it saves: it has no data, which is an error."""
        return self.ended and self.workers is None

    @property
    def listing_starts(self) -> int:
        """The first step that is not complete yet: index files of no earlier one can matter."""
        return self.passed + 1

    def first(self) -> CompleteStep | None:
        """Return the first complete step that was not taken; None where there is none yet."""
        if not self.pending:
            return None
        step = min(self.pending)
        if not self.ended and (not self.has_begun or step > self.last_complete):
            return None
        return CompleteStep(step, tuple(sorted(self.names[place] for place in self.pending[step])))

    def take(self) -> CompleteStep | None:
        """Return the first complete step that was not taken, and take it."""
        step = self.first()
        if step is not None:
            self.passed = step.step
            self.entries -= len(self.pending.pop(step.step))
        return step

    def workers_of(self, step: int) -> Sequence[str]:
        """Return the workers that are known to have saved a step that was not taken."""
        return sorted(self.names[place] for place in self.pending.get(step, ()))

    def _place(self, worker: str) -> int | None:
        if worker in self.names:
            return self.names.index(worker)
        if len(self.names) >= MOST_WORKERS:
            self.refused += 1
            return None
        self.names.append(worker)
        return len(self.names) - 1

    def _settle(self, step: int, found: int) -> None:
        """Find the last complete step, now that a step has one worker more."""
        if self.workers is None or step <= self.last_complete:
            return
        if found >= self.workers:
            self.last_complete = step
        elif len(self.pending) > WINDOW or self.entries > MOST_PENDING:
            self._guard()

    def _guard(self) -> None:
        beyond = sorted(step for step in self.pending if step > self.last_complete)
        if len(beyond) > WINDOW or self.entries > MOST_PENDING:
            half = max(len(beyond) // 2, 1)
            self.given_up += half
            self.last_complete = beyond[half - 1]
