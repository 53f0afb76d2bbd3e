"""A step of debug-output as rules see it: its index is read, and of its event files what a rule asks for."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

from trainguard.errors import TelemetryFormatError, TensorMissingError
from trainguard.tensors.debug.event_reader import EventReader
from trainguard.tensors.debug.index_file import FramePlace, IndexFile
from trainguard.tensors.debug.membership import Membership
from trainguard.tensors.debug.reduction_names import bare_name, parse_reduction
from trainguard.tensors.step_view import Mode, ReductionKind, StepView, Tensor


class OwnRun(Protocol):
    """What a step asks of the run that it is of."""

    @property
    def reader(self) -> EventReader:
        """What reads frames."""
        ...

    @property
    def membership(self) -> Membership:
        """Which tensors the run's collections hold."""
        ...

    def earlier(self, step: "DebugStep", name: str, count: int) -> Sequence["DebugStep"]:
        """Return the last steps before a step, of the same mode, that hold a tensor: the newest first."""
        ...

    def other_step(self, run: str, step: int) -> "DebugStep | None":
        """Return a step of another run; None where it has none. Raises RunMissingError."""
        ...


class DebugStep:
    """A `StepView` of one step.

    Parameters
    ----------
    run : OwnRun
    step : int
    indexes : mapping of str to IndexFile
        By worker, in the order of their names: at least one.
    listed_at : float or None
        Stands for the time of a step that has none that can be read.
    """

    def __init__(
        self, run: OwnRun, step: int, indexes: Mapping[str, IndexFile], listed_at: float | None = None
    ) -> None:
        first = next(iter(indexes.values()))
        self.step = step
        self.mode: Mode = first.mode
        self.mode_step = first.mode_step
        self.timed = True
        self.workers = tuple(indexes)
        self._run = run
        self._listed_at = listed_at
        self._members: dict[str, frozenset[str]] = {}
        self._frames: dict[str, FramePlace] = {}
        self._reductions: dict[tuple[str, ReductionKind, bool], tuple[str, FramePlace]] = {}
        self._numbers: dict[tuple[str, ReductionKind, bool], float] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for index in indexes.values():
            self._take(index)
        self._name_reductions()

    def _take(self, index: IndexFile) -> None:
        """Add what a worker saved; what a worker before it saved stays."""
        for name, place in index.frames.items():
            reduction = parse_reduction(name)
            if reduction is None:
                self._frames.setdefault(name, place)
            else:
                self._reductions.setdefault(reduction, (name, place))
        for name, shape in index.shapes.items():
            self._shapes.setdefault(name, shape)

    def _name_reductions(self) -> None:
        """Give reductions the name of their tensor where the step holds it too: ``loss:0``, not ``loss``."""
        full = {bare_name(name): name for name in (*self._shapes, *self._frames)}
        self._reductions = {
            (full.get(tensor, tensor), kind, absolute): place
            for (tensor, kind, absolute), place in self._reductions.items()
        }

    @cached_property
    def at(self) -> float:
        """When the step was saved, epoch seconds.

        It is the time of the smallest frame, which costs least to read.

        Raises
        ------
        TelemetryFormatError
            When the frame cannot be read and nothing else says when the step was saved.
        """
        places = [*self._frames.items(), *self._reductions.values()]
        if places:
            name, place = min(places, key=lambda each: (each[1].length, each[1].start))
            try:
                at = self._run.reader.saved_at(place, name)
            except TelemetryFormatError:
                if self._listed_at is None:
                    raise
            else:
                if math.isfinite(at):
                    return at
        if self._listed_at is None:
            raise TelemetryFormatError(f"step {self.step}", "no frame says when it was saved")
        return self._listed_at

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors of which entries or reductions were saved, sorted."""
        return sorted(self._frames.keys() | {tensor for tensor, _, _ in self._reductions})

    @cached_property
    def tensors(self) -> int:
        """A digest of ``names``, above 0: two steps have the same one where they hold the same tensors."""
        joined = "\0".join(self.names).encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(joined, digest_size=6).digest(), "big") + 1

    def holds(self, name: str) -> bool:
        """Whether entries or a reduction of a tensor were saved."""
        return name in self._frames or name in self._reduced

    def members(self, collection: str) -> Set[str]:
        """Return those of ``names`` that a collection holds; none where the run has no such collection."""
        found = self._members.get(collection)
        if found is None:
            found = self._members[collection] = self._run.membership.members(collection, self.names)
        return found

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape; None where only reductions of it were saved and no shape."""
        if name in self._shapes:
            return self._shapes[name]
        place = self._frames.get(name)
        return None if place is None else self._run.reader.shape(place, name)

    def has_value(self, name: str) -> bool:
        """Whether the step holds all entries of a tensor, and not only reductions."""
        return name in self._frames

    def value(self, name: str) -> Tensor:
        """Return all entries of a tensor, of up to 64 MiB; raises as `StepView.value` does."""
        return self._run.reader.value(self.step, self._place(name), name)

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Iterate over the entries of a tensor in C order, in blocks of up to 4 MiB; raises as `StepView.blocks`."""
        return self._run.reader.blocks(self.step, self._place(name), name)

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        """Return a reduction that was saved of a tensor; None where none was.

        Raises
        ------
        TelemetryFormatError
            When it cannot be read, or is no number.
        """
        key = name, kind, absolute
        number = self._numbers.get(key)
        if number is None:
            found = self._reductions.get(key)
            if found is None:
                return None
            saved_as, place = found
            number = self._numbers[key] = self._run.reader.number(place, saved_as)
        return number

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        """Return the last steps of the same mode before this one that hold a tensor, the newest first."""
        return self._run.earlier(self, name, count)

    def other_run(self, run: str) -> StepView | None:
        """Return the same step of another run; raises RunMissingError."""
        return self._run.other_step(run, self.step)

    @cached_property
    def _reduced(self) -> frozenset[str]:
        return frozenset(tensor for tensor, _, _ in self._reductions)

    def _place(self, name: str) -> FramePlace:
        place = self._frames.get(name)
        if place is None:
            raise TensorMissingError(name, self.step)
        return place
