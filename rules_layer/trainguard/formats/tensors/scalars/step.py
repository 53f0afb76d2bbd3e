"""A step of a scalar source as rules see it: numbers by name, each a tensor with one entry."""

from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from itertools import islice

import numpy as np

from trainguard.core.errors import RunMissingError, TensorMissingError
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarHistory, ScalarRow
from trainguard.formats.tensors.step_view import ReductionKind, StepView, Tensor


class ScalarStep:
    """A `StepView` of one row; ``history`` holds the rows that `earlier` finds."""

    logged = True

    def __init__(self, row: ScalarRow, names: ScalarNames, history: ScalarHistory | None = None) -> None:
        self.row = row
        self.step = self.mode_step = row.step
        self.mode = row.mode
        self.at = row.at
        self.timed = row.timed
        self._meanings = names
        self._history = ScalarHistory() if history is None else history

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
        rows = (row for row in self._history.before(self.row) if name in row.values)
        return [ScalarStep(row, self._meanings, self._history) for row in islice(rows, count)]

    def other_run(self, run: str) -> StepView | None:
        raise RunMissingError(run, "scalars of other runs are not read, expected debug-output")
