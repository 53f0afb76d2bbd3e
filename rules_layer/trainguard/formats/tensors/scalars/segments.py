"""The one policy for steps: what a source recorded again, and where values belong that count otherwise.

The newest value of a step counts. Where the steps of a scalar go back and on from there, a segment begins: values of
its steps that were recorded before are of the past. A single value that goes back is out of order. A scalar that is
always of one step is numbered. In an event file, which one process wrote, steps that go back again and again by the
same way are batches of epochs, where the values go on: they follow each other. A scalar that counts epochs beside
others that count batches belongs to the step at which it was recorded.
"""

import math
from collections.abc import Mapping

import msgspec

# Scalars of one source whose steps are watched; those of others are believed.
MOST_NAMES = 200

MOST_CUTS = 32
# So often a source is read once more for a segment: steps in disorder could show two by turns for ever.
MOST_READINGS = 256
# What writers put where they are given no step is 0 or 1.
_FIRST_STEP = 1

# Share of a value: loggers of one run round it in different ways.
SAME = 1e-3

# After so many values in a row before which others went on by `_FASTER` times as many steps, a scalar is slow.
_TICKS = 2

_FASTER = 2
_TURNS = 2
# Share of its steps by which an epoch may be shorter or longer than the one before.
_ALIKE = 0.1


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

    ``back`` is where it went back: file, place and step; ``goes_on`` is 1 where its value there is nearer to the one
    before, ``value``, than to the ``first``, -1 where it is farther. ``values`` counts all, ``lost`` those out of order
    and ``other`` those of a step that had another value. ``front`` is how far the source was, ``ticks`` how often that
    went ahead.
    """

    step: int
    alone: int | None
    back: tuple[str, int, int] | None = None
    value: float = 0.0
    first: float = 0.0
    goes_on: int = 0
    values: int = 1
    lost: int = 0
    other: int = 0
    front: int = -1
    ticks: int = 0

    def is_ahead(self, step: int, front: int) -> bool:
        """Whether a source went on by more steps than the scalar, which is behind it."""
        is_behind = front > step > self.step and self.front > self.step
        return is_behind and front - self.front >= _FASTER * (step - self.step)


class Laps(msgspec.Struct, array_like=True):
    """Steps that begin again at ``begin`` in each epoch; ``offset`` is what the newest has gone through before.

    ``newest`` is the newest step of each scalar, as recorded, and its epoch.
    """

    begin: int
    number: int = 0
    offset: int = 0
    newest: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def place(self, name: str, step: int, front: int) -> int:
        before, number = self.newest.get(name, (step, self.number))
        if step < before and step - self.begin <= (before - self.begin) / 2 and number == self.number:
            self.number += 1
            self.offset = front + 1 - self.begin
        self.newest[name] = step, self.number
        return step + self.offset


class Segments(msgspec.Struct):
    """What is known of the steps of one source; its fields are what is stored.

    ``latest`` is the furthest file and place: a file that came late is before it. ``front`` is the furthest step.
    ``readings`` counts the segments that were found. ``turns`` are the steps between which it went back and its values
    on, ``slow`` are scalars that count other steps.
    """

    newest: dict[str, NewestStep] = msgspec.field(default_factory=dict)
    latest: tuple[str, int] = ("", -1)
    cuts: list[Cut] = msgspec.field(default_factory=list)
    overwritten: int = 0
    disordered: int = 0
    front: int = -1
    slow: list[str] = msgspec.field(default_factory=list)
    turns: list[tuple[int, int]] = msgspec.field(default_factory=list)
    laps: Laps | None = None
    readings: int = 0

    @property
    def has_learned(self) -> bool:
        """Whether something is known that holds when the source is read once more."""
        return bool(self.cuts or self.slow or self.turns or self.laps)

    def again(self) -> "Segments":
        """Return what is known before the source is read once more."""
        laps = None if self.laps is None else Laps(self.laps.begin)
        return Segments(cuts=self.cuts, slow=self.slow, turns=self.turns, laps=laps, readings=self.readings)

    def place(
        self, file: str, place: int, step: int, values: Mapping[str, float], *, one_writer: bool = False
    ) -> tuple[dict[int, dict[str, float]], int | None]:
        """Return the values that count, by their step; and the step of a segment that has begun, None without one.

        Where one has begun, or came before what was read, the source is to be read once more. ``one_writer`` says that
        one process wrote the file.
        """
        placed: dict[int, dict[str, float]] = {}
        self.latest = max(self.latest, (file, place))
        for name, value in values.items():
            if self.cuts and any(cut.covers(file, place, step, name) for cut in self.cuts):
                self.overwritten += 1
                continue
            if self._is_found_slow(name, step):
                return {}, 0
            counted = step if self.laps is None or name in self.slow else self.laps.place(name, step, self.front)
            at, begun = self._follow(name, file, place, counted, value)
            if begun is not None:
                return {}, self._turn(begun) if one_writer else begun
            if at is None:
                self.disordered += 1
                continue
            if name in self.slow or self.laps is not None:
                at = max(at, self.front)
            self.front = max(self.front, at)
            placed.setdefault(at, {})[name] = value
        return placed, None

    def _is_found_slow(self, name: str, step: int) -> bool:
        known = self.newest.get(name)
        if known is None or name in self.slow:
            return False
        known.ticks = known.ticks + 1 if known.is_ahead(step, self.front) else 0
        known.front = self.front
        if known.ticks < _TICKS:
            return False
        self.slow = sorted({*self.slow, *(each for each, of_each in self.newest.items() if of_each.ticks)})
        return True

    def _follow(self, name: str, file: str, place: int, step: int, value: float) -> tuple[int | None, int | None]:
        """Return the step of a scalar's value, None for one out of order, and that of a segment that has begun."""
        known = self.newest.get(name)
        if known is None:
            if len(self.newest) < MOST_NAMES:
                self.newest[name] = NewestStep(step, step, value=value, first=value, front=self.front)
            return step, None
        known.values += 1
        if known.alone == step <= _FIRST_STEP:
            known.step += 1
            return known.step, None
        known.alone = None
        if step > known.step or (step == known.step and known.back is None):
            self.overwritten += step == known.step
            known.other += step == known.step and not is_same(value, known.value)
            known.step, known.value, known.back = step, value, None
            return step, None
        known.lost += 1
        is_full = len(self.cuts) >= MOST_CUTS or self.readings >= MOST_READINGS or self.laps is not None
        if known.back is None or step <= known.back[2] or is_full:
            known.back = (file, place, step)
            to_last, to_first = abs(value - known.value), abs(value - known.first)
            known.goes_on = (to_last < to_first) - (to_last > to_first)
            return None, None
        if (file, place) >= self.latest:
            return None, self._cut(*known.back, known.step)
        # What a file that was rewritten held before cannot be read again; a file that came late can be read in order.
        return None, None if file == self.latest[0] else known.back[2]

    def _cut(self, file: str, place: int, step: int, until: int) -> int:
        self.readings += 1
        spared = sorted(name for name, known in self.newest.items() if known.step > until)
        self.cuts = [cut for cut in self.cuts if cut.step < step or cut.spared != spared]
        self.cuts.append(Cut(file, place, step, spared))
        return step

    def _turn(self, begun: int) -> int:
        """Take a segment that begins as the next epoch where two were alike; return where to read on from."""
        turned = [known for known in self.newest.values() if known.back is not None and known.back[2] == begun]
        goes_on = sum(known.goes_on for known in turned) > 0
        until = max((known.step for known in turned), default=begun)
        self.turns = [*self.turns, (begun, until)][-_TURNS:] if goes_on else []
        lengths = [end - begin for begin, end in self.turns]
        is_regular = len({begin for begin, _ in self.turns}) == 1 and min(lengths) >= (1.0 - _ALIKE) * max(lengths)
        if len(self.turns) < _TURNS or not is_regular:
            return begun
        self.cuts, self.turns, self.laps = [], [], Laps(begun)
        return begun


def is_same(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=SAME) or (math.isnan(value) and math.isnan(other))
