"""A run as another tool recorded it; `trainguard.formats.runs.managed` writes it in the managed layout."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median
from typing import IO, Any, AnyStr, NamedTuple, Protocol, TypeVar

from trainguard.formats.tensors.scalars.rows import Recording

ONLY_NODE = "node-1"

# Why the end of a killed run's file is not read; what is before it is whole.
CUT = "the file ends inside a record"


class RunOutcome(StrEnum):
    """How a run ended; the values are those of ``job.json``."""

    COMPLETED = "Completed"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class SeriesName:
    """Type, name and dimension of a series, as a line of a profile has them (docs/formats.md)."""

    type: str
    name: str
    dimension: str = ""


HOST_MEMORY = SeriesName("memory", "MemoryUsedPercent")
UTILIZATION = "GPUUtilization"
# Measures of a GPU that are series of its name with this dimension; others are ends of a name (docs/formats.md).
MANAGED_MEASURES = (UTILIZATION, "GPUMemoryUtilization")

# A series of instances (MIG) alone: of a whole GPU it stands for the utilization where that is missing.
ENGINE = "EngineActivityPercent"

MEBI = 2.0**20
MOST_DEVICES = 64
_LONGEST_NUMBER = 9
# What tools write in JSON for what is no number.
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def utc_time(text: str) -> float | None:
    """Return a time in epoch seconds, one without a zone as UTC; None of any other text."""
    try:
        at = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def device_number(text: str) -> int | None:
    """Return the number of a device; None of any other text, and of more than a node has."""
    is_number = text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return int(text) if is_number and int(text) < MOST_DEVICES else None


def gpu_series(gpu: str, measure: str) -> SeriesName:
    return SeriesName("gpu", gpu, measure) if measure in MANAGED_MEASURES else SeriesName("gpu", f"{gpu}.{measure}")


def put_utilization(moments: Sequence[dict[SeriesName, float]], without: Set[str] = frozenset()) -> list[str]:
    """Let the activity of the engine be the utilization of GPUs that have none; return these.

    ``moments`` are values of one node by series, changed in place; GPUs in ``without`` get none.
    """
    known = {series.name for values in moments for series in values if series.dimension == UTILIZATION} | without
    replaced = set()
    for values in moments:
        for series in [each for each in values if each.name.endswith(f".{ENGINE}") and ".mig" not in each.name]:
            gpu, activity = series.name.partition(".")[0], values.pop(series)
            if gpu not in known:
                values[gpu_series(gpu, UTILIZATION)] = activity
                replaced.add(gpu)
    return sorted(replaced, key=lambda gpu: (len(gpu), gpu))


def whole_memory(used: float, percent: float, least: float) -> float | None:
    """Return a GPU's bytes of memory by those in use and their share; None of less than ``least`` percent."""
    return round(used / percent * 100.0 / MEBI) * MEBI if least <= percent <= 100.0 else None


class Snapshot(NamedTuple):
    """Values of one node at one time, epoch seconds; units are those of the series."""

    at: float
    values: dict[SeriesName, float]


T = TypeVar("T")


@dataclass(slots=True)
class SourceRun:
    """What was read of one run; times are epoch seconds.

    ``name`` is not safe as a file name. ``snapshots`` are by node, in order of time. ``outcome`` is None where the run
    still runs, or was killed. ``owners`` are ``user``, ``team`` and ``project``. ``bad`` counts parts that could not be
    read, by the reason, ``absent`` values that their tool had not. ``asked_s``, seconds, is None where samples are as
    they were recorded. ``notes`` are for people. ``not_judged`` are devices by kind, such as ``IPU``, whose metrics are
    recorded and not read, ``not_read`` quantities by the name of the series that they do not become. ``nothing`` is
    what an empty run was searched for. ``total_steps`` is how long its configuration says that it will be.
    """

    name: str
    tool: str
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    scalars: list[Recording] = field(default_factory=list)
    started_at: float | None = None
    ended_at: float | None = None
    outcome: RunOutcome | None = None
    gpu_type: str | None = None
    link: str | None = None
    owners: dict[str, str] = field(default_factory=dict)
    bad: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    asked_s: float | None = None
    notes: list[str] = field(default_factory=list)
    not_judged: dict[str, set[str]] = field(default_factory=dict)
    not_read: dict[str, str] = field(default_factory=dict)
    nothing: str = ""
    total_steps: int | None = None

    def first(self, records: Iterable[T], most: int, too_many: str) -> Iterator[T]:
        """Yield at most so many records; where there are more, that is counted."""
        for number, each in enumerate(records):
            if number >= most:
                self.refuse(too_many)
                return
            yield each

    def refuse(self, why: str, count: int = 1) -> None:
        self.bad[why] = self.bad.get(why, 0) + count

    def lack(self, what: str) -> None:
        self.absent[what] = self.absent.get(what, 0) + 1

    @property
    def interval_s(self) -> float | None:
        """The median distance of a node's snapshots, seconds; None of fewer than two."""
        pairs = (pair for snapshots in self.snapshots.values() for pair in itertools.pairwise(snapshots))
        gaps = sorted(later - earlier for (earlier, _), (later, _) in pairs)
        return gaps[len(gaps) // 2] if gaps else None


# Records within this part of the interval, with no series twice, are of one snapshot.
_ONE_MOMENT = 0.5


class SnapshotCollector:
    """Collects the values of a run by node; an empty name is that of the node that a tool does not name."""

    def __init__(self) -> None:
        self._records: dict[str, list[Snapshot]] = {}
        self._counted: dict[tuple[str, SeriesName], tuple[float, float]] = {}

    def add(self, node: str, at: float, values: Mapping[SeriesName, float]) -> None:
        """Take in what was measured on a node at ``at``, epoch seconds."""
        self._records.setdefault(node, []).append(Snapshot(at, dict(values)))

    def rate(self, node: str, series: SeriesName, at: float, total: float) -> float | None:
        """Return how much a counter grew a second since its last value; None of the first, and after a restart."""
        before = self._counted.get((node, series))
        self._counted[node, series] = (at, total)
        if before is None or at <= before[0] or total < before[1]:
            return None
        return (total - before[1]) / (at - before[0])

    def snapshots(self, unnamed: str) -> dict[str, list[Snapshot]]:
        """Return snapshots by node; ``unnamed`` is the name of the node that the tool does not name."""
        return {node or unnamed: _merged(records) for node, records in sorted(self._records.items())}


def _merged(records: list[Snapshot]) -> list[Snapshot]:
    """Return a snapshot of the records of each moment, in order of time.

    The interval is the median distance, seconds, of two values of the most frequent series.
    """
    records.sort(key=lambda record: record[0])
    times: dict[SeriesName, list[float]] = {}
    for at, values in records:
        for name in values:
            times.setdefault(name, []).append(at)
    most = max(times.values(), key=len, default=[])
    near_s = _ONE_MOMENT * median([later - earlier for earlier, later in itertools.pairwise(most)] or [0.0])
    merged: list[Snapshot] = []
    for at, values in records:
        if merged and at - merged[-1][0] <= near_s and not merged[-1][1].keys() & values.keys():
            merged[-1][1].update(values)
        else:
            merged.append(Snapshot(at, dict(values)))
    return merged


def bounded_lines(file: IO[AnyStr], longest: int) -> Iterator[AnyStr]:
    """Yield lines; pieces of ``longest`` of a longer one."""
    while line := file.readline(longest):
        yield line


class JsonApi(Protocol):
    """A service: ``place`` is what people call it."""

    @property
    def place(self) -> str: ...

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Return an answer's JSON; raises ProfileSourceError for a refusal or another answer, PortUnavailableError."""
        ...


class WritableJsonApi(JsonApi, Protocol):
    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a change that may be repeated, and return the JSON of the answer; raises as `get` does."""
        ...
