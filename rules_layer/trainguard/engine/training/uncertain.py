"""Losses and scores whose curve may be no single writer's, or of which much is lost: they are judged, not cleared."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.rows import RunValues
from trainguard.formats.tensors.scalars.segments import SAME, Segments

FEWEST_LOST = 3
"""An evaluation at the end often repeats the last step, and a restart a value or two."""
LOST_SHARE = 0.05

MOST_UNCERTAIN = 8


class Uncertain(msgspec.Struct, array_like=True, frozen=True):
    """Of ``values`` of a scalar ``other`` are of steps that have another value too, and ``lost`` came out of order.

    ``writer`` is the file that has the others; "" where they lie in one.
    """

    name: str
    values: int
    other: int
    lost: int
    writer: str = ""

    @property
    def matters(self) -> bool:
        left_out = self.other + self.lost
        return left_out >= FEWEST_LOST and left_out >= LOST_SHARE * self.values


def uncertain_of(
    segments: Iterable[Segments], late: Mapping[str, int], writers: Iterable[Uncertain], names: ScalarNames
) -> list[Uncertain]:
    """Return the losses and scores that are uncertain, by name; ``late`` counts values of steps that rules had passed.

    ``writers`` are found by `compared`.
    """
    values, other, lost = Counter[str](), Counter[str](), Counter[str](late)
    for of_source in segments:
        for name, known in of_source.newest.items():
            values[name] += known.values
            other[name] += known.other
            lost[name] += known.lost
    meant = names.members(LOSSES, values) | names.members(METRICS, values)
    found = {name: Uncertain(name, values[name], other[name], lost[name]) for name in sorted(meant)}
    for each in writers:
        found[each.name] = each
    return [each for each in found.values() if each.matters]


def compared(run: RunValues, other: RunValues, writer: str) -> list[Uncertain]:
    """Return the scalars that two files record at the same steps with other values."""
    found = []
    for name in sorted(run.keys() & other.keys()):
        (steps, values), (others, their) = run[name], other[name]
        shared, here, there = np.intersect1d(steps, others, assume_unique=True, return_indices=True)
        same = np.isclose(values[here], their[there], rtol=SAME, atol=0.0, equal_nan=True)
        each = Uncertain(name, shared.size, int(np.count_nonzero(~same)), 0, writer)
        if each.matters:
            found.append(each)
    return found[:MOST_UNCERTAIN]


def said(each: Uncertain) -> str:
    of_steps = f"{each.other:,} of {each.values:,} are of steps that have another value too" if each.other else ""
    if each.writer:
        of_steps = f"at {each.other:,} of {each.values:,} steps {each.writer} has other values"
    late = f"{each.lost:,} of {each.values:,} came after later steps" if each.lost else ""
    why = "; ".join(part for part in (of_steps, late) if part)
    curve = "may mix several writers" if each.other else "lacks them"
    return f"{each.name}: {why}: the curve that is judged {curve}."
