"""In which order the objects of a finished profile are applied, and when the scheduler runs in between.

Each object gets the run by which the deployed stack would have applied it: a minute at once when it follows the one
before, after a gap once its node is two minutes further on, a framework object two to three minutes later, and what
waits of a silent node after five minutes.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder
from trainguard.engine.profiler.framework_session import FRAMEWORK_EXTENTS
from trainguard.engine.streams.session import SILENT_S
from trainguard.formats.profile.keys import MINUTE_S, SystemKey
from trainguard.local.profile import Node, Profile

_SECOND_US = 1_000_000
_MINUTE_US = MINUTE_S * _SECOND_US
_UPLOAD_US = _SECOND_US


@dataclass(slots=True)
class Due:
    """What becomes ready by one run: keys by node, minutes in order of time, framework objects of (time, key)."""

    minutes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    framework: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Schedule:
    """``runs`` in order of time, and what is ``left`` for the end."""

    runs: tuple[Due, ...]
    left: Due

    def steps(self) -> Iterator[tuple[Due, bool]]:
        """Yield what to apply, and whether the scheduler comes after it."""
        for due in self.runs:
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
    last = max((_last_run(node) for node in profile.nodes.values()), default=0)
    runs: defaultdict[int, Due] = defaultdict(Due)
    left = Due()
    for name, (minutes, framework) in planned.items():
        for key, run_at in minutes:
            (runs[run_at] if run_at <= last else left).minutes[name].append(key)
        for key, run_at in framework:
            (runs[run_at] if run_at <= last else left).framework[name].append(key)
    return Schedule(tuple(runs[run_at] for run_at in sorted(runs)), left)


def _minutes(node: Node) -> Iterator[tuple[str, int]]:
    order = GridOrder()
    flush: int | None = None
    for key in sorted(node.minutes, key=lambda each: node.minutes[each].minute):
        minute = node.minutes[key].minute
        arrival_us = (minute + MINUTE_S) * _SECOND_US + _UPLOAD_US
        if flush is not None and arrival_us > flush * _SECOND_US:
            yield from _ready(order, flush + MINUTE_S, drain=True)
        order.announce(key, minute)
        yield from _ready(order, _run_after(arrival_us), drain=False)
        flush = _flush_after(arrival_us)
    if flush is not None:
        yield from _ready(order, flush + MINUTE_S, drain=True)


def _ready(order: GridOrder, run_at: int, *, drain: bool) -> Iterator[tuple[str, int]]:
    for _, key in order.ready(lambda _: (), drain=drain):
        yield key, run_at


def _framework(node: Node) -> Iterator[tuple[str, int]]:
    order = PartitionOrder(FRAMEWORK_EXTENTS)
    flush: int | None = None
    for key in _framework_keys(node):
        arrival_us = node.framework[key].end_us + _UPLOAD_US
        if flush is not None and arrival_us > flush * _SECOND_US:
            yield from _settled(order, flush + MINUTE_S, drain=True)
        order.announce(key, node.framework[key])
        yield from _settled(order, _run_after(arrival_us), drain=False)
        flush = _flush_after(arrival_us)
    if flush is not None:
        yield from _settled(order, flush + MINUTE_S, drain=True)


def _settled(order: PartitionOrder, run_at: int, *, drain: bool) -> Iterator[tuple[str, int]]:
    for arrival in order.ready(lambda *_: (), drain=drain):
        yield arrival.key, run_at


def _framework_keys(node: Node) -> list[str]:
    return sorted(node.framework, key=lambda each: (node.framework[each].end_us, each))


def _last_run(node: Node) -> int:
    minutes = [(parsed.minute + MINUTE_S) * _SECOND_US for parsed in node.minutes.values()]
    framework = [parsed.end_us for parsed in node.framework.values()]
    return _run_after(max([*minutes, *framework]) + _UPLOAD_US)


def _run_after(arrival_us: int) -> int:
    """Return epoch seconds of the scheduler's first run after an object came."""
    return -(-arrival_us // _MINUTE_US) * MINUTE_S


def _flush_after(arrival_us: int) -> int:
    """Return epoch seconds of the run that flushes a node from which nothing came after this object."""
    return _run_after(arrival_us) + int(SILENT_S)
