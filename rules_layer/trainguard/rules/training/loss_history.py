"""What LossNotDecreasing keeps of one loss: the saved steps that a later check may have to look back on."""

import msgspec

MOST_KEPT = 32


class LossHistory(msgspec.Struct, array_like=True):
    """Saved steps, counted within their mode, and the loss at each; ``checked`` is the step of the last check.

    Only steps are kept that may be the newest one at least ``num_steps`` back at some later step: from the last check
    on. Where those are more than 32, every second one between the first and the newest goes. Where steps are saved at
    even distances a check looks back on the check before it, which is the first; after a gap, and before the first
    check, it may then look further back than it must, by a sixteenth of ``num_steps``.
    """

    steps: list[int] = msgspec.field(default_factory=list)
    losses: list[float] = msgspec.field(default_factory=list)
    checked: int | None = None

    def reference(self, step: int, num_steps: int) -> tuple[int, float] | None:
        """Return the newest saved step at least ``num_steps`` before a step, with its loss; None where none is."""
        found = None
        for index, saved in enumerate(self.steps):
            if saved <= step - num_steps:
                found = saved, self.losses[index]
        return found

    def is_due(self, step: int, num_steps: int) -> bool:
        """Whether the last check is far enough back."""
        return self.checked is None or step - self.checked >= num_steps

    def add(self, step: int, loss: float, num_steps: int) -> None:
        """Keep a step, and let go those that no later step looks back on."""
        self.steps.append(step)
        self.losses.append(loss)
        if self.checked is not None:
            first = next(index for index, saved in enumerate(self.steps) if saved >= self.checked)
        else:
            first = max(sum(saved <= step - num_steps for saved in self.steps) - 1, 0)
        keep = range(first, len(self.steps))
        if len(keep) > MOST_KEPT:  # by one: of an odd number of steps the first and the newest stay
            keep = keep[::2]
        self.steps = [self.steps[index] for index in keep]
        self.losses = [self.losses[index] for index in keep]
