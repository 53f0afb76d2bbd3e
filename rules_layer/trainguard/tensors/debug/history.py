"""Past steps of a run, by which earlier values of a tensor are found again: numbers and workers, never tensors."""

from collections.abc import Iterator, Sequence

import msgspec

from trainguard.tensors.recent import MOST_OF_A_SET, forget
from trainguard.tensors.step_view import Mode

MOST_PAST_STEPS = MOST_OF_A_SET
MOST_PAST_WORKERS = 4_096
"""Names of workers that a history holds; steps of the sets that are saved most often make room for more."""


class PastStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that was handed out.

    ``workers`` is the place of its set of workers in the history. ``tensors`` is a digest of the names of its tensors,
    0 of a step that was stored without one.
    """

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
        """Iterate over the steps of a mode before a step, the newest first."""
        return (each for each in reversed(self.steps) if each.step < step and each.mode == mode)

    def workers_of(self, past: PastStep) -> Sequence[str]:
        """Return the workers that wrote a step."""
        return self.worker_sets[past.workers]

    def find(self, step: int) -> PastStep | None:
        """Return a step by its number; None of one that was forgotten or never handed out."""
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
