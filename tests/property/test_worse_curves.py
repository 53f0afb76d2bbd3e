"""A worse curve never gets a milder verdict: what rises further is found where the smaller rise is."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.training.recorded.scoring import fired, steps_of

# A rise at once, along a line, and one that gets steeper.
POWERS = (0.0, 1.0, 4.0)


def curve(
    count: int, start: float, low: float, turn: int, rise: float, power: float, noise: Sequence[float]
) -> list[float]:
    """Return a loss that falls to a low value until a turn, and rises from there; noise is a share of the start."""
    values = []
    for place in range(count):
        if place <= turn:
            value = low + (start - low) * math.exp(-4.0 * place / max(turn, 1))
        else:
            value = low + rise * ((place - turn) / (count - 1 - turn)) ** power
        values.append(max(value + start * noise[place % len(noise)], 1e-3))
    return values


def worse(values: Sequence[float], turn: int, factor: float) -> list[float]:
    """Return the curve with its rise above the lowest value until the turn so many times as large."""
    low = min(values[: turn + 1])
    return [each if at <= turn or each < low else low + factor * (each - low) for at, each in enumerate(values)]


@given(st.data())
def test_larger_rise_is_found_where_the_smaller_is(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([10, 12, 20, 40, 60, 150]))
    start = data.draw(st.sampled_from([0.7, 2.3, 10.8]))
    low = start * data.draw(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0]))
    turn = int(count * data.draw(st.floats(0.1, 0.7)))
    rise = start * data.draw(st.sampled_from([0.1, 0.3, 0.6, 1.0, 2.0, 5.0]))
    spread = data.draw(st.sampled_from([0.0, 0.005, 0.02]))
    noise = [spread * each for each in data.draw(st.lists(st.floats(-1.0, 1.0), min_size=7, max_size=23))]
    values = curve(count, start, low, turn, rise, data.draw(st.sampled_from(POWERS)), noise)
    found = fired(list(steps_of({"loss": values})))
    if not found:
        return
    further = worse(values, turn, data.draw(st.sampled_from([1.3, 2.0, 5.0, 20.0, 1_000.0])))
    now = fired(list(steps_of({"loss": further})))
    assert now
    assert "TrainingDiverged" in now or "TrainingDiverged" not in found
