"""A step of a scalar source as rules see it: numbers by name, each a tensor with one entry."""

from collections.abc import Iterator, Sequence, Set
from functools import cached_property

import numpy as np

from trainguard.core.errors import RunMissingError, TensorMissingError
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarHistory, ScalarRow
from trainguard.formats.tensors.step_view import Mode, ReductionKind, StepView, Tensor


class ScalarStep:
    """A `StepView` of one row; ``history`` holds the rows that `earlier` finds."""

    def __init__(self, row: ScalarRow, names: ScalarNames, history: ScalarHistory | None = None) -> None:
        self.row = row
        self._meanings = names
        self._history = ScalarHistory() if history is None else history

    @property
    def step(self) -> int:
        """Number of the step as the source gives it; an epoch where it gives no other."""
        return self.row.step

    @property
    def mode(self) -> Mode:
        """TRAIN or EVAL, by the names of the scalars; GLOBAL for those of XGBoost."""
        return self.row.mode

    @property
    def mode_step(self) -> int:
        """The number of the step: sources of scalars have no other."""
        return self.row.step

    @property
    def at(self) -> float:
        """When the step was saved, epoch seconds."""
        return self.row.at

    @property
    def timed(self) -> bool:
        """Whether the source says when each step was saved."""
        return self.row.timed

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the scalars, sorted."""
        return sorted(self.row.values)

    def members(self, collection: str) -> Set[str]:
        """Return the scalars that are ``losses``, ``metrics``, ``learning_rate`` or ``gradient_norm``; or ``all``."""
        return self._meanings.members(collection, self.names)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return (1,); None of a scalar that the step does not hold."""
        return (1,) if name in self.row.values else None

    def has_value(self, name: str) -> bool:
        """Whether the step holds a scalar."""
        return name in self.row.values

    def value(self, name: str) -> Tensor:
        """Return a scalar as float64[1]; raises TensorMissingError when the step does not hold it."""
        if name not in self.row.values:
            raise TensorMissingError(name, self.step)
        return np.array([self.row.values[name]], np.float64)

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Iterate over one block: the scalar."""
        return iter((self.value(name),))

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        """Return None: no reduction of a scalar is saved."""
        del name, kind, absolute
        return None

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        """Return the last steps of the same mode before this one that hold a scalar, the newest first."""
        found: list[StepView] = []
        for row in self._history.before(self.row):
            if len(found) >= count:
                break
            if name in row.values:
                found.append(ScalarStep(row, self._meanings, self._history))
        return found

    def other_run(self, run: str) -> StepView | None:
        """Raise RunMissingError: scalars of other runs are not read."""
        raise RunMissingError(run, "scalars of other runs are not read, expected debug-output")
