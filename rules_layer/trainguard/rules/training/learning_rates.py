"""Learning rates of a run, and what they show: a warm-up, a fine-tune."""

import re

import msgspec

from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.training.readings import scalar, used
from trainguard.rules.training.run_series import RunSeries, SeriesState
from trainguard.rules.training.selection import LEARNING_RATE

RISEN_RATE, STOOD = 2.0, 0.1
"""A rate that rises is this many times its first value, and has not stood for such a share of its values."""
FINE_TUNES, LOW_LOSS = 5e-4, 5.0
"""A learning rate of fine-tunes, and a loss that language models begin above."""
OF_TOKENS = re.compile(r"(?i)token")
"""Scores of a language model, of which its data, not its training, decides how high they can be."""


class Rate(msgspec.Struct, array_like=True):
    """The first learning rate that was recorded, the highest and the newest; it rose up to the value ``risen``."""

    first: float
    highest: float
    newest: float
    values: int = 1
    risen: int = 1

    def take(self, rate: float) -> None:
        self.newest, self.values = rate, self.values + 1
        if rate > self.highest:
            self.highest, self.risen = rate, self.values

    @property
    def warms_up(self) -> bool:
        """Whether it still rises: the newest is the highest, far above the first, and did not stand before."""
        rises = self.values - self.risen <= STOOD * self.values
        return rises and self.newest >= self.highest and self.newest > RISEN_RATE * self.first


class RatedState(SeriesState, kw_only=True):
    rate: Rate | None = None


def take_rate(state: RatedState, step: StepView) -> None:
    """Take in the first of a step's learning rates."""
    for name in sorted(step.members(LEARNING_RATE))[:1]:
        rate = used(state, scalar, step, name)
        if rate is not None and state.rate is None:
            state.rate = Rate(rate, rate, rate)
        elif rate is not None and state.rate is not None:
            state.rate.take(rate)


def is_fine_tune(rate: Rate | None, run: RunSeries, first: float) -> bool:
    """Whether a run goes on with a trained language model: by its rate and its first loss, without scores of classes.

    Its loss falls early by a little, and then stands about what the data leaves.
    """
    judged = [name for _, name, _ in run.all_scores if not OF_TOKENS.search(name)]
    return rate is not None and 0.0 < rate.highest <= FINE_TUNES and 0.0 <= first < LOW_LOSS and not judged
