"""Which columns of a history count its steps, and one position for an epoch and a place within it."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

_STEPS = (
    "step",
    "_step",
    "global_step",
    "global step",
    "globalstep",
    "trainer/global_step",
    "train/global_step",
    "steps",
    "num_steps",
    "total_steps",
    "total/steps",
    "iteration",
    "iterations",
    "iter",
    "iters",
    "num_iters",
    "time/total_timesteps",
    "total_timesteps",
    "misc/total_timesteps",
    "time/total timesteps",
    "timesteps_total",
    "num_env_steps_sampled",
    "num_env_steps_sampled_lifetime",
    "total_env_steps",
    "env_steps",
    "env_step",
    "timesteps",
    "timestep",
    "training_iteration",
    "misc/nupdates",
    "update",
    "updates",
    "num_updates",
    "tree",
    "boosting_round",
)
_WITHIN = ("batch", "batch_idx", "batch_index", "minibatch", "mini_batch", "it", "i")
_EPOCHS = (
    "epoch", "epochs", "ep", "total/epochs", "current_epoch", "episode", "episodes", "total/episodes", "round",
    "generation",
)  # fmt: skip
# Of pandas, whose index has no name.
_INDEX = ("", "index", "unnamed: 0", "idx", "time/iterations")

POSITIONS = frozenset({*_STEPS, *_WITHIN, *_EPOCHS, *_INDEX})
_IN_ORDER = (*_STEPS, *_EPOCHS, *_WITHIN, *_INDEX)
LARGEST_STEP = 2**53


@dataclass(frozen=True, slots=True)
class PositionColumns:
    """The places of the columns that count: of ``step``, None where rows are counted, and of the ``epoch``."""

    step: int | None
    epoch: int | None = None


def columns_of(header: Sequence[str]) -> PositionColumns:
    """Choose the columns that count the steps of a history, by their names in lower case."""
    lower = [cell.strip().strip("#").strip().lower() for cell in header]
    places = {name: place for place, name in reversed(list(enumerate(lower)))}
    within = next((places[name] for name in (*_STEPS, *_WITHIN) if name in places), None)
    epoch = next((places[name] for name in _EPOCHS if name in places), None)
    if within is not None and epoch is not None:
        return PositionColumns(within, epoch)
    return PositionColumns(next((places[name] for name in _IN_ORDER if name in places), None))


def is_position(name: str) -> bool:
    return name.strip().lower() in POSITIONS


@dataclass(slots=True)
class Positions:
    """Makes one number of the counts of each row; rows are added in the order of the file."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    _epochs: "array[float]" = field(default_factory=lambda: array("d"))
    _broken: bool = False

    def add(self, step: float, epoch: float | None) -> None:
        """Take in the counts of a row; a count with a fraction is none of steps."""
        self._broken = self._broken or step != int(step)
        self.steps.append(int(step))
        self._epochs.append(-1.0 if epoch is None else epoch)

    def whole(self) -> "array[int]":
        """Return a position for each row: the step, or, where it begins again with each epoch, that of all epochs."""
        if self._broken:
            return array("q", range(len(self.steps)))
        return self._joined() if self._begins_again() else self.steps

    def _begins_again(self) -> bool:
        grown = again = 0
        newest, before = -1.0, -1
        for step, epoch in zip(self.steps, self._epochs, strict=True):
            if epoch > newest >= 0.0:
                grown += 1
                again += step < before
            newest, before = (newest, before) if epoch < 0.0 else (epoch, step)
        return 2 * again > grown

    def _joined(self) -> "array[int]":
        first: dict[float, int] = {}
        joined = array("q")
        begins = ends = 0
        for step, epoch in zip(self.steps, self._epochs, strict=True):
            if epoch >= 0.0:
                begins = first.setdefault(epoch, ends)
            joined.append(min(begins + step, LARGEST_STEP))
            ends = max(ends, begins + step + 1) if begins == max(first.values(), default=0) else ends
        return joined
