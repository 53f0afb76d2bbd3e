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
        return self.row.at

    @property
    def timed(self) -> bool:
        return self.row.timed

    @cached_property
    def names(self) -> Sequence[str]:
        return sorted(self.row.values)

    def members(self, collection: str) -> Set[str]:
        return self._meanings.members(collection, self.names)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return (1,) if name in self.row.values else None

    def has_value(self, name: str) -> bool:
        return name in self.row.values

    def value(self, name: str) -> Tensor:
        if name not in self.row.values:
            raise TensorMissingError(name, self.step)
        return np.array([self.row.values[name]], np.float64)

    def blocks(self, name: str) -> Iterator[Tensor]:
        return iter((self.value(name),))

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        del name, kind, absolute
        return None

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        found: list[StepView] = []
        for row in self._history.before(self.row):
            if len(found) >= count:
                break
            if name in row.values:
                found.append(ScalarStep(row, self._meanings, self._history))
        return found

    def other_run(self, run: str) -> StepView | None:
        raise RunMissingError(run, "scalars of other runs are not read, expected debug-output")
