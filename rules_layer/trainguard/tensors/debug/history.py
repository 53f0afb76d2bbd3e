"""The last steps of a run, by which earlier values of a tensor are found again: numbers and workers, never tensors."""

from collections.abc import Iterator, Sequence

import msgspec

from trainguard.tensors.step_view import Mode

MOST_PAST_STEPS = 64
MOST_PAST_WORKERS = 4_096
"""Names of workers that a history holds; the oldest steps make room for more."""


class PastStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that was handed out; ``workers`` is the place of its set of workers in the history."""

    step: int
    mode: Mode
    mode_step: int
    workers: int


class RunHistory(msgspec.Struct):
    """The last 64 complete steps, in order, and the sets of workers that wrote them."""

    steps: list[PastStep] = msgspec.field(default_factory=list)
    worker_sets: list[list[str]] = msgspec.field(default_factory=list)

    def add(self, step: int, mode: Mode, mode_step: int, workers: Sequence[str]) -> None:
        """Remember a step, which is later than those before; the oldest ones are forgotten."""
        names = list(workers)
        if names not in self.worker_sets:
            self.worker_sets.append(names)
        self.steps.append(PastStep(step, mode, mode_step, self.worker_sets.index(names)))
        self._bound()

    def before(self, step: int, mode: Mode) -> Iterator[PastStep]:
        """Iterate over the steps of a mode before a step, the newest first."""
        return (each for each in reversed(self.steps) if each.step < step and each.mode == mode)

    def workers_of(self, past: PastStep) -> Sequence[str]:
        """Return the workers that wrote a step."""
        return self.worker_sets[past.workers]

    def _bound(self) -> None:
        kept = self.steps[-MOST_PAST_STEPS:]
        while (
            len(kept) > 1 and sum(len(self.worker_sets[each]) for each in {s.workers for s in kept}) > MOST_PAST_WORKERS
        ):
            kept = kept[1:]
        used = sorted({each.workers for each in kept})
        moved = {old: new for new, old in enumerate(used)}
        self.worker_sets = [self.worker_sets[old] for old in used]
        self.steps = [PastStep(s.step, s.mode, s.mode_step, moved[s.workers]) for s in kept]
