"""What is wrong with each GPU of a node, minute by minute, as docs/rules/GPUHealth.md defines it."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tests.claims.context import Context, Raw
from tests.claims.minutes import Minute, Parts, minutes_of
from tests.claims.raw import Node

# A GPU works in a minute that is so busy, percent.
LOADED = 50.0

# Bits of ThrottleReasons: heat, an external brake or a slowdown by hardware, and the power limit.
HEAT, BRAKE, CAP = 0x20 | 0x40, 0x80 | 0x8, 0x4

HARDWARE_XIDS = frozenset({48, 54, 62, 64, 74, 79, 94, 95, 119, 120, 140, 143})
IN_A_ROW = 3
KEPT_MINUTES, RECENT_S = 10, 900.0
MOSTLY, OF_MAXIMUM, OF_PEERS = 0.5, 0.8, 0.85


@dataclass(frozen=True, slots=True)
class Loaded:
    """A minute under load: its newest point's time, and of the GPU, of its own past and of its peers, what is known.

    ``lost`` is how many percent of its clock a throttled GPU lost, None of one that was not throttled.
    """

    at: float
    clock: float | None
    peers: float | None
    lost: float | None
    lanes: float | None
    lanes_before: float
    lanes_of_peers: float


@dataclass
class Gpu:
    """What is known of a GPU; ``xids`` has the times at which each code came first and last, and how often.

    ``code`` is the newest one that its series showed.
    """

    seen_at: float = -np.inf
    silent: int = 0
    lost: bool = False
    rows_failed: bool = False
    unanswered: int = 0
    errors_before: float | None = None
    errors: float = 0.0
    xids: dict[int, tuple[float, float, int]] = field(default_factory=dict)
    counts: dict[int, float] = field(default_factory=dict)
    code: int | None = None
    loaded: list[Loaded] = field(default_factory=list)
    best_clock: float | None = None
    most_lanes: float = 0.0
    maximum: float | None = None

    @property
    def hardware_xids(self) -> dict[int, tuple[float, float, int]]:
        """The codes of hardware among those that came."""
        return {code: seen for code, seen in self.xids.items() if code in HARDWARE_XIDS}

    def throttled(self, now: float, clock_loss: float) -> list[Loaded]:
        """Return the newest minutes under load in which it lost so many percent of its clock."""
        return [each for each in self._recent(now) if each.lost is not None and round(each.lost, 6) >= clock_loss]

    def is_faulty(self, now: float, clock_loss: float, minutes: int) -> bool:
        """Tell whether anything is wrong with it."""
        narrow = [
            each
            for each in self._recent(now)
            if each.lanes is not None and each.lanes < max(self.most_lanes, each.lanes_of_peers)
        ]
        slowed = len(self.throttled(now, clock_loss)) >= minutes or len(narrow) >= minutes
        gone = self.lost or self.silent >= IN_A_ROW or self.unanswered >= IN_A_ROW
        return gone or slowed or self.rows_failed or self.errors > 0.0 or bool(self.hardware_xids)

    def _recent(self, now: float) -> list[Loaded]:
        return [each for each in self.loaded[-KEPT_MINUTES:] if now - each.at <= RECENT_S]


def faults_of(context: Context, node: Node, until: float) -> dict[str, Gpu]:
    """Return what is known of a node's GPUs at ``until``, epoch seconds."""
    key = ("gpu faults", node.name, until)
    if key not in context.raw.cached:
        context.raw.cached[key] = _faults(context.raw, node, until)
    found: dict[str, Gpu] = context.raw.cached[key]
    return found


def _faults(raw: Raw, node: Node, until: float) -> dict[str, Gpu]:
    gpus: dict[str, Gpu] = {}
    for minute in minutes_of(raw, node, until):
        if not minute.rows.size:
            continue
        use = utilization(node, minute)
        for name in minute.further - gpus.keys():
            gpus[name] = Gpu(seen_at=minute.at)
        there = {name for metric, parts in minute.series.items() if not metric.startswith("XID") for name in parts}
        there &= minute.further
        for name, gpu in gpus.items():
            if name in minute.further:
                _see(gpu, name, minute)
            if name in there or name in use:
                gpu.seen_at, gpu.silent = minute.at, 0
            elif there and not any(each.startswith("neuron") for each in gpus):
                gpu.silent += 1
        _load(gpus, minute, {name for name, mean in use.items() if mean >= LOADED})
    return gpus


def utilization(node: Node, minute: Minute) -> dict[str, float]:
    """Return the mean utilization of each GPU over the points that were complete with a minute, percent."""
    values = node.points.gpus[minute.rows]
    columns = {gpu: values[~np.isnan(values[:, place]), place] for place, gpu in enumerate(node.gpus)}
    return {gpu: float(column.mean()) for gpu, column in columns.items() if column.size}


def _see(gpu: Gpu, name: str, minute: Minute) -> None:
    """Take in what the driver says about a GPU."""
    gpu.lost = _is_set(minute, "Lost", name, was=gpu.lost)
    gpu.rows_failed = _is_set(minute, "RemappedRowsFailed", name, was=gpu.rows_failed)
    gpu.unanswered = gpu.unanswered + 1 if _is_set(minute, "Unanswered", name, was=False) else 0
    errors = minute.of("ECCUncorrectedErrors").get(name)
    if errors is not None:
        newest = float(errors.values[-1])
        before = float(errors.values[0]) if gpu.errors_before is None else gpu.errors_before
        gpu.errors = 0.0 if newest < before else gpu.errors + newest - before
        gpu.errors_before = newest
    _count_xids(gpu, name, minute)


def _is_set(minute: Minute, metric: str, name: str, *, was: bool) -> bool:
    mark = minute.of(metric).get(name)
    return was if mark is None else float(mark.values[-1]) >= 1.0


def _count_xids(gpu: Gpu, name: str, minute: Minute) -> None:
    """Count each code by its counter; one without came when the series changed to it, and not with its first value."""
    newest = minute.of("XID").get(name)
    if newest is not None and newest.values[-1] == 0.0:
        gpu.xids, gpu.counts, gpu.code = {}, {}, 0
        return
    came = {}
    for metric, parts in minute.series.items():
        if metric.startswith("XIDCount") and name in parts:
            code, count = int(metric.removeprefix("XIDCount")), float(parts[name].values[-1])
            came[code] = round(count - gpu.counts.get(code, 0.0))
            gpu.counts[code] = count
    codes = [] if newest is None else [round(float(value)) for value in newest.values]
    if came and codes and codes[-1] not in gpu.xids and came.get(codes[-1], 0) <= 0:
        came[codes[-1]] = 1
    seen = codes if gpu.code is None else [gpu.code, *codes]
    changed = [] if came else [new for old, new in pairwise(seen) if new not in {0, old}]
    for code in changed:
        came[code] = came.get(code, 0) + 1
    gpu.code = codes[-1] if codes else gpu.code
    for code, number in came.items():
        if number > 0:
            first, _, before = gpu.xids.get(code, (minute.at, minute.at, 0))
            gpu.xids[code] = (first, minute.at, before + number)


def _load(gpus: dict[str, Gpu], minute: Minute, busy: set[str]) -> None:
    """Take in the clocks and links of the GPUs that are busy in a minute."""
    clocks = {name: float(part.values.mean()) for name, part in minute.of("SMClockMHz").items()}
    lanes = {name: float(part.values.min()) for name, part in minute.of("PCIeLinkWidth").items()}
    reasons = minute.of("ThrottleReasons")
    free = {name for name in busy & clocks.keys() if not _share(reasons, name, HEAT | BRAKE)}
    for name in busy & gpus.keys() & (clocks.keys() | lanes.keys()):
        gpu, clock, width = gpus[name], clocks.get(name), lanes.get(name)
        peers = _median([clocks[each] for each in free - {name}])
        others = _median([lanes[each] for each in busy & lanes.keys() - {name}])
        maximum = minute.of("SMClockMaximumMHz").get(name)
        gpu.maximum = gpu.maximum if maximum is None else float(maximum.values[-1])
        normal = None if clock is None else _normal_clock(gpu, clock, peers, reasons, name)
        lost = None if clock is None or not normal else max(100.0 * (1.0 - clock / normal), 0.0)
        gpu.loaded.append(Loaded(minute.at, clock, peers, lost, width, gpu.most_lanes, others or 0.0))
        if clock is not None and name in free:
            gpu.best_clock = max(clock, gpu.best_clock or 0.0)
        gpu.most_lanes = max(gpu.most_lanes, width or 0.0)


def _normal_clock(gpu: Gpu, clock: float, peers: float | None, reasons: Parts, name: str) -> float | None:
    """Return the clock that a throttled GPU would have: its peers', its own before, or most of what it can have."""
    capped = _share(reasons, name, CAP) >= MOSTLY
    if max(_share(reasons, name, HEAT), _share(reasons, name, BRAKE)) < MOSTLY:
        return peers if capped and peers is not None and clock < OF_PEERS * peers else None
    known = peers or gpu.best_clock
    if known is not None or capped or gpu.maximum is None:
        return known
    return OF_MAXIMUM * gpu.maximum


def _share(reasons: Parts, name: str, bits: int) -> float:
    if name not in reasons:
        return 0.0
    return float(np.mean((reasons[name].values.astype(np.int64) & bits) != 0))


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if len(values) > 1 else None
