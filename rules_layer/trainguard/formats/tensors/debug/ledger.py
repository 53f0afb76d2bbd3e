"""Which steps of a run are complete, from the names of its files, and which past steps are found again.

A step is complete where all workers have it, where it is not after the last step L of all (a worker skipped it), or
where the run has ended. When over a thousand steps were seen after L, half of them count as complete: a silent worker
must not hold up the rest, as in SageMaker Debugger's client library. Announcements come in any order, any number of
times; add a listing of ``index/`` from ``listing_starts`` on before a step is taken.
"""

from collections.abc import Iterator, Sequence

import msgspec

from trainguard.formats.tensors.bounded import MOST_OF_A_SET, forget
from trainguard.formats.tensors.step_view import Mode

WINDOW = 1_000
# Pairs of a step and a worker that wait; with more of them the guard acts before the window is full.
MOST_PENDING = 16_384

MOST_WORKERS = 4_096


class CompleteStep(msgspec.Struct, frozen=True):
    step: int
    workers: tuple[str, ...]


class StepLedger(msgspec.Struct):
    """What is known of a run's steps; its fields are what is stored.

    ``passed`` is the last step that was taken, -1 before the first, ``pending`` the steps after it, with workers as
    places in ``names``. ``refused`` counts names of workers over 4,096, ``given_up`` steps that the guard declared
    complete.
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


MOST_PAST_STEPS = MOST_OF_A_SET
# Steps of the sets that are saved most often make room for more.
MOST_PAST_WORKERS = 4_096


class PastStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that was handed out; ``tensors`` is a digest of its names, 0 where they were not stored."""

    step: int
    mode: Mode
    mode_step: int
    workers: int
    tensors: int = 0


class RunHistory(msgspec.Struct):
    """The last 64 complete steps of each mode and set of tensors, at most 256 in all, in order.

    ``worker_sets`` are the sets of workers that wrote them. ``forgotten`` is the last step that made room for another,
    -1 before the first: behind it the history has every step that was handed out.
    """

    steps: list[PastStep] = msgspec.field(default_factory=list)
    worker_sets: list[list[str]] = msgspec.field(default_factory=list)
    forgotten: int = -1

    def add(self, step: int, mode: Mode, mode_step: int, workers: Sequence[str], tensors: int = 0) -> None:
        """Remember a step, which is later than those before; older ones of the largest set are forgotten."""
        names = list(workers)
        if names not in self.worker_sets:
            self.worker_sets.append(names)
        self.steps.append(PastStep(step, mode, mode_step, self.worker_sets.index(names), tensors))
        self.shorten(MOST_PAST_STEPS)

    def before(self, step: int, mode: Mode) -> Iterator[PastStep]:
        return (each for each in reversed(self.steps) if each.step < step and each.mode == mode)

    def workers_of(self, past: PastStep) -> Sequence[str]:
        return self.worker_sets[past.workers]

    def find(self, step: int) -> PastStep | None:
        return next((each for each in self.steps if each.step == step), None)

    def reaches(self, step: int) -> bool:
        """Whether the history would hold a step, had it been handed out."""
        return bool(self.steps) and step > self.forgotten and step >= self.steps[0].step

    def shorten(self, most: int) -> bool:
        """Forget all but the newest ``most`` steps of each mode and set of tensors; return whether any was."""
        kept = list(self.steps)
        forget(kept, lambda each: (each.mode, each.tensors), self._has_too_many_workers, most=most)
        if len(kept) == len(self.steps):
            return False
        self.forgotten = max(each.step for each in {*self.steps} - {*kept})
        used = sorted({each.workers for each in kept})
        moved = {old: new for new, old in enumerate(used)}
        self.worker_sets = [self.worker_sets[old] for old in used]
        self.steps = [msgspec.structs.replace(each, workers=moved[each.workers]) for each in kept]
        return True

    def _has_too_many_workers(self, steps: list[PastStep]) -> bool:
        return sum(len(self.worker_sets[each]) for each in {step.workers for step in steps}) > MOST_PAST_WORKERS
