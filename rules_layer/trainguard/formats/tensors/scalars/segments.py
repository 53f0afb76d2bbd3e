"""The one policy for steps: what a source recorded again, and how values without steps of their own are numbered.

The newest value of a step counts. Where the steps of a scalar go back and on from there, a segment begins: values of
its steps that were recorded before are of the past. A single value that goes back is out of order. A scalar that is
always of one step is numbered.
"""

from collections.abc import Mapping

import msgspec

MOST_NAMES = 200
"""Scalars of one source whose steps are watched; those of others are believed."""

MOST_CUTS = 32
_FIRST_STEP = 1
"""What writers put where they are given no step is 0 or 1."""


class Cut(msgspec.Struct, array_like=True, frozen=True):
    """Where a segment begins: what a source recorded before ``place`` of ``file``, from ``step`` on, is of the past.

    ``spared`` are scalars that count other steps.
    """

    file: str
    place: int
    step: int
    spared: list[str] = []

    def covers(self, file: str, place: int, step: int, name: str) -> bool:
        return step >= self.step and (file, place) < (self.file, self.place) and name not in self.spared


class NewestStep(msgspec.Struct, array_like=True):
    """The newest ``step`` of a scalar; ``alone`` is the only one that was recorded, None of one with several.

    ``back`` is where it went back: file, place and step.
    """

    step: int
    alone: int | None
    back: tuple[str, int, int] | None = None


class Segments(msgspec.Struct):
    """What is known of the steps of one source; its fields are what is stored.

    ``latest`` is the furthest file and place: a file that came late is before it.
    """

    newest: dict[str, NewestStep] = msgspec.field(default_factory=dict)
    latest: tuple[str, int] = ("", -1)
    cuts: list[Cut] = msgspec.field(default_factory=list)
    overwritten: int = 0
    disordered: int = 0

    def again(self) -> "Segments":
        """Return what is known before the source is read once more."""
        return Segments(cuts=self.cuts)

    def place(
        self, file: str, place: int, step: int, values: Mapping[str, float]
    ) -> tuple[dict[int, dict[str, float]], int | None]:
        """Return the values that count, by their step; and the step of a segment that has begun, None without one.

        Where one has begun, or came before what was read, the source is to be read once more.
        """
        placed: dict[int, dict[str, float]] = {}
        self.latest = max(self.latest, (file, place))
        for name, value in values.items():
            if self.cuts and any(cut.covers(file, place, step, name) for cut in self.cuts):
                self.overwritten += 1
                continue
            at, begun = self._follow(name, file, place, step)
            if begun is not None:
                return {}, begun
            if at is None:
                self.disordered += 1
            else:
                placed.setdefault(at, {})[name] = value
        return placed, None

    def _follow(self, name: str, file: str, place: int, step: int) -> tuple[int | None, int | None]:
        """Return the step of a scalar's value, None for one out of order, and that of a segment that has begun."""
        known = self.newest.get(name)
        if known is None:
            if len(self.newest) < MOST_NAMES:
                self.newest[name] = NewestStep(step, step)
            return step, None
        if known.alone == step <= _FIRST_STEP:
            known.step += 1
            return known.step, None
        known.alone = None
        if step > known.step or (step == known.step and known.back is None):
            self.overwritten += step == known.step
            known.step, known.back = step, None
            return step, None
        if known.back is None or step <= known.back[2] or len(self.cuts) >= MOST_CUTS:
            known.back = (file, place, step)
            return None, None
        if (file, place) >= self.latest:
            return None, self._cut(*known.back, known.step)
        # What a file that was rewritten held before cannot be read again; a file that came late can be read in order.
        return None, None if file == self.latest[0] else known.back[2]

    def _cut(self, file: str, place: int, step: int, until: int) -> int:
        spared = sorted(name for name, known in self.newest.items() if known.step > until)
        self.cuts = [cut for cut in self.cuts if cut.step < step or cut.spared != spared]
        self.cuts.append(Cut(file, place, step, spared))
        return step
