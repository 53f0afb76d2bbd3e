"""In which order the objects of a finished profile are applied, and when the tick looks at the job in between.

The deployed stack gets a node's minute as soon as it is over, a framework object once its node is two minutes further
on, and looks at the job every minute. Here all objects are there at once; each is given the tick by which it would have
been applied. What would only have been applied at the job's end belongs to no tick.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainguard.engine.lane_order import LATENESS_US
from trainguard.local.profile import Node, Profile
from trainguard.telemetry.keys import MINUTE_S, SystemKey

_MINUTE_US = MINUTE_S * 1_000_000
_UPLOAD_US = 1_000_000


@dataclass(slots=True)
class Due:
    """What becomes ready by one tick: keys by node, minutes in order of time, framework objects of (time, key)."""

    minutes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    framework: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Schedule:
    """``ticks`` in order of time, and what is ``left`` for the end."""

    ticks: tuple[Due, ...]
    left: Due

    def steps(self) -> Iterator[tuple[Due, bool]]:
        """Yield what to apply, and whether the tick comes after it."""
        for due in self.ticks:
            yield due, True
        yield self.left, False

    def minutes(self, profile: Profile) -> list[tuple[str, SystemKey]]:
        """Return the system objects in the order in which they are applied."""
        return [
            (key, profile.nodes[node].minutes[key])
            for due, _ in self.steps()
            for node, keys in due.minutes.items()
            for key in keys
        ]

    def framework(self) -> list[str]:
        """Return the keys of the framework objects in the order in which they are applied."""
        return [key for due, _ in self.steps() for keys in due.framework.values() for key in keys]


def schedule(profile: Profile) -> Schedule:
    """Put a profile's objects in order."""
    ticks: defaultdict[int, Due] = defaultdict(Due)
    left = Due()
    for name, node in profile.nodes.items():
        for key in sorted(node.minutes, key=lambda each: node.minutes[each].minute):
            ticks[node.minutes[key].minute + 2 * MINUTE_S].minutes[name].append(key)
        for key, tick in _framework(node):
            (left if tick is None else ticks[tick]).framework[name].append(key)
    return Schedule(tuple(ticks[tick] for tick in sorted(ticks)), left)


def _framework(node: Node) -> Iterator[tuple[str, int | None]]:
    """Yield a node's framework objects in order, each with the first tick after a newer object has made it settle."""
    keys = sorted(node.framework, key=lambda each: (node.framework[each].end_us, each))
    ends = [node.framework[key].end_us for key in keys]
    for key, end_us in zip(keys, ends, strict=True):
        newer = bisect_left(ends, end_us + LATENESS_US)
        if newer == len(ends):
            yield key, None
        else:
            yield key, -(-(ends[newer] + _UPLOAD_US) // _MINUTE_US) * MINUTE_S
