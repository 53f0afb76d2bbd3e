"""Memory in use, minute by minute, as docs/rules/GPUMemoryIncrease.md defines a leak of it."""

import math
from dataclasses import dataclass

import numpy as np

from tests.claims.context import Context, Raw
from tests.claims.minutes import Minute, minutes_of
from tests.claims.raw import Ints, Node
from tests.claims.work import Work

MINUTE_S, HOUR_S = 60.0, 3_600.0
MOST_FLOORS, LEAST_FLOORS = 24, 6
LONG_S, NEARLY_FULL_S, NEARLY_FULL = 3_600.0, 1_800.0, 85.0
# The whole of a device whose memory in use is known as a share alone.
PERCENT = 100.0

BEGUN, GIVEN_BACK, AT_ONCE, RISING, PACE = 0.1, 0.25, 1.0 / 3.0, 0.6, 0.75


def merged(lows: Ints) -> tuple[Ints, int, Ints]:
    """Return the lowest of each ``stride`` in a row, at most 24 of them, the stride, and those that are fewer."""
    stride = 1
    while lows.size > MOST_FLOORS * stride:
        stride *= 2
    number = lows.size // stride
    return lows[: number * stride].reshape(number, stride).min(axis=1), stride, lows[number * stride :]


@dataclass(frozen=True, slots=True)
class Use:
    """How memory in use of a device rose: ``total`` in bytes, shares in percent, ``minutes`` from its first floor."""

    total: float
    percent: float
    points: float
    minutes: int
    hourly: float
    leaks: bool

    @property
    def left_s(self) -> float:
        """In how many seconds the memory is full at this pace; NaN where nothing rises."""
        return HOUR_S * (100.0 - self.percent) / self.hourly if self.hourly else math.nan


def uses_of(context: Context, node: Node, until: float) -> dict[str, Use]:
    """Return how memory in use of each device of a node rose up to then, epoch seconds."""
    key = ("memory in use", node.name, until)
    if key not in context.raw.cached:
        threshold = float(context.parameters["increase"])
        totals: dict[str, float] = {}
        floors: dict[str, list[int]] = {}
        works = _Works(context.raw, node)
        for minute in minutes_of(context.raw, node, until):
            _add(minute, works.in_minute(minute), totals, floors)
        context.raw.cached[key] = {
            device: _use(totals[device], np.array(found), threshold) for device, found in floors.items()
        }
    uses: dict[str, Use] = context.raw.cached[key]
    return uses


@dataclass
class _Works:
    """Says which of a node's minutes, in their order, have a point of work, as far as that was known then."""

    raw: Raw
    node: Node
    work: Work | None = None

    def in_minute(self, minute: Minute) -> bool:
        """Tell whether a point of the minute was one of work; start-up that is over stays so."""
        if not minute.rows.size:
            return False
        if self.work is None or not self.work.started:
            self.work = self.raw.work_until(self.node, minute.at)
        began = self.work.began
        return began is not None and float(self.node.points.times[minute.rows[-1]]) >= began


def _add(minute: Minute, works: bool, totals: dict[str, float], floors: dict[str, list[int]]) -> None:
    sizes, in_bytes = minute.of("MemoryTotalBytes"), minute.of("MemoryUsedBytes")
    for device, used in {**minute.of("MemoryUsedPercent"), **in_bytes}.items():
        if not (works or ".mig" in device):
            continue
        if device not in totals:
            total = PERCENT
            if device in in_bytes:
                total = float(sizes[device].values[-1]) if device in sizes else 0.0
            if total <= 0.0:
                continue
            totals[device] = total
        if (totals[device] == PERCENT) == (device in in_bytes):
            continue
        share = min(float(used.values.min()) / totals[device], 1.0)
        floors.setdefault(device, []).append(round(10_000.0 * share))


def _use(total: float, lows: Ints, threshold: float) -> Use:
    """Judge a device by its minutes' lowest samples, hundredths of a percent of the memory that it has."""
    floors, stride, _ = merged(lows)
    percent = float(lows[-1]) / 100.0
    if not floors.size:
        return Use(total, percent, 0.0, 0, 0.0, leaks=False)
    since = _after_jumps(floors)
    span = int(since[-1] - since.min())
    rising = since[int(np.flatnonzero(since <= since.min() + BEGUN * span)[-1]) :]
    minutes = (rising.size - 1) * stride
    risen = int(rising[-1] - rising[0])
    hourly = risen / 100.0 / (minutes / 60.0) if minutes else 0.0
    long_s = NEARLY_FULL_S if percent >= NEARLY_FULL else LONG_S
    fallen = int((np.maximum.accumulate(floors) - floors).max())
    leaks = (
        span > 100.0 * threshold
        and rising.size * stride * MINUTE_S >= long_s
        and fallen <= GIVEN_BACK * risen
        and _is_even(np.diff(rising), risen)
    )
    return Use(total, percent, span / 100.0, minutes, hourly, leaks=leaks)


def _after_jumps(floors: Ints) -> Ints:
    """Return the floors since the last one that was reached by a jump: by over a third of the whole rise at once."""
    while floors.size > 1:
        steps = np.diff(floors)
        if steps.max() <= AT_ONCE * (floors[-1] - floors.min()):
            return floors
        floors = floors[int(np.flatnonzero(steps == steps.max())[-1]) + 1 :]
    return floors


def _is_even(steps: Ints, risen: int) -> bool:
    """Tell whether a rise comes in many steps, gives little back, and keeps its pace in its newest third."""
    if steps.size + 1 < LEAST_FLOORS:
        return False
    newest = steps[-max(steps.size // 3, 2) :]
    return bool(
        steps.max() <= AT_ONCE * risen
        and np.mean(steps > 0) >= RISING
        and -steps.min() <= GIVEN_BACK * risen
        and newest.mean() >= PACE * steps.mean()
    )
