"""What is stored of a job's debug-output, beside the state of rules: where its steps stand."""

import msgspec

from trainguard.families.training.stream import StepsState
from trainguard.tensors.debug.history import RunHistory

SHORTENED = "degraded_to_short_history"
_SHORT = 8
"""Steps of each set of tensors."""

NO_DATA = (
    "No data: the training job saved no tensors, debug-output holds no collections file. Pass a DebugHookConfig whose "
    "collections the rules need, or let the script write scalars below tensorboard-output."
)


class DebugState(StepsState, kw_only=True):
    """What is stored of debug-output; ``cursor`` of the item is the last step that was taken.

    ``workers`` is how many workers write, None before the first collections file. ``last_complete`` is the last step
    that counts as complete, -1 before the first. ``history`` are past steps, by which earlier values of a tensor are
    read again.
    """

    workers: int | None = None
    last_complete: int = -1
    history: RunHistory = msgspec.field(default_factory=RunHistory)

    @property
    def no_data(self) -> str | None:
        """Why a stream that has ended has no data, in a sentence."""
        return NO_DATA if self.workers is None else None

    def shorten(self) -> str | None:
        """Forget all but the newest steps of each set of tensors of the history."""
        return SHORTENED if self.history.shorten(_SHORT) else None
