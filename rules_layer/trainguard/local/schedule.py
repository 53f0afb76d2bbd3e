"""In which order the objects of a finished profile are applied, and when the tick looks at the job in between.

The deployed stack gets a node's objects as they are uploaded and looks at the job every minute. It applies a node's
minute at once when it follows the one before, and a minute after a gap once the node is two minutes further on. It
applies a framework object once the node is two to three minutes further on. What still waits of a node that has fallen
silent is applied five minutes later. Here all objects are there at once; each is given the tick by which it would have
been applied.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder
from trainguard.engine.streams.session import SILENT_S
from trainguard.families.profiler.framework_order import FRAMEWORK_EXTENTS
from trainguard.local.profile import Node, Profile
from trainguard.telemetry.keys import MINUTE_S, SystemKey

_SECOND_US = 1_000_000
_MINUTE_US = MINUTE_S * _SECOND_US
_UPLOAD_US = _SECOND_US


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
    planned = {name: (list(_minutes(node)), list(_framework(node))) for name, node in profile.nodes.items()}
    last = max((_last_tick(node) for node in profile.nodes.values()), default=0)
    ticks: defaultdict[int, Due] = defaultdict(Due)
    left = Due()
    for name, (minutes, framework) in planned.items():
        for key, tick in minutes:
            (ticks[tick] if tick <= last else left).minutes[name].append(key)
        for key, tick in framework:
            (ticks[tick] if tick <= last else left).framework[name].append(key)
    return Schedule(tuple(ticks[tick] for tick in sorted(ticks)), left)


def _minutes(node: Node) -> Iterator[tuple[str, int]]:
    """Yield a node's minutes in order, each with the first tick after it was applied."""
    order = GridOrder()
    flush: int | None = None
    for key in sorted(node.minutes, key=lambda each: node.minutes[each].minute):
        minute = node.minutes[key].minute
        arrival_us = (minute + MINUTE_S) * _SECOND_US + _UPLOAD_US
        if flush is not None and arrival_us > flush * _SECOND_US:
            yield from _ready(order, flush + MINUTE_S, drain=True)
        order.announce(key, minute)
        yield from _ready(order, _tick_after(arrival_us), drain=False)
        flush = _flush_after(arrival_us)
    if flush is not None:
        yield from _ready(order, flush + MINUTE_S, drain=True)


def _ready(order: GridOrder, tick: int, *, drain: bool) -> Iterator[tuple[str, int]]:
    for _, key in order.ready(lambda _: (), drain=drain):
        yield key, tick


def _framework(node: Node) -> Iterator[tuple[str, int]]:
    """Yield a node's framework objects in order, each with the first tick after it was applied."""
    order = PartitionOrder(FRAMEWORK_EXTENTS)
    flush: int | None = None
    for key in _framework_keys(node):
        arrival_us = node.framework[key].end_us + _UPLOAD_US
        if flush is not None and arrival_us > flush * _SECOND_US:
            yield from _settled(order, flush + MINUTE_S, drain=True)
        order.announce(key, node.framework[key])
        yield from _settled(order, _tick_after(arrival_us), drain=False)
        flush = _flush_after(arrival_us)
    if flush is not None:
        yield from _settled(order, flush + MINUTE_S, drain=True)


def _settled(order: PartitionOrder, tick: int, *, drain: bool) -> Iterator[tuple[str, int]]:
    for arrival in order.ready(lambda *_: (), drain=drain):
        yield arrival.key, tick


def _framework_keys(node: Node) -> list[str]:
    return sorted(node.framework, key=lambda each: (node.framework[each].end_us, each))


def _last_tick(node: Node) -> int:
    """Return the first tick after the last object of a node."""
    minutes = [(parsed.minute + MINUTE_S) * _SECOND_US for parsed in node.minutes.values()]
    framework = [parsed.end_us for parsed in node.framework.values()]
    return _tick_after(max([*minutes, *framework]) + _UPLOAD_US)


def _tick_after(arrival_us: int) -> int:
    """Return the first tick, epoch seconds, after an object came."""
    return -(-arrival_us // _MINUTE_US) * MINUTE_S


def _flush_after(arrival_us: int) -> int:
    """Return the tick, epoch seconds, that flushes a node from which nothing came after this object."""
    return _tick_after(arrival_us) + int(SILENT_S)
