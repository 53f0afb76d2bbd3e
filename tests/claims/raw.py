"""The raw samples and events of a job, read from its folder by readers of their own."""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# A GPU works from so many percent on.
ACTIVE = 10.0

# The sampling intervals that the managed service lets one choose; samplers drift by a few milliseconds.
CONFIGURED_S = (0.1, 0.2, 0.5, 1.0, 5.0, 60.0)

_EVENTS_OF = re.compile(r"(?P<end>\d+)_(?P<process>[^-]+)-(?P<node>.+)_pythontimeline\.json")


class _Line(msgspec.Struct):
    Type: str
    Name: str
    Dimension: str
    Value: float
    NodeId: str
    Timestamp: float


@dataclass(frozen=True, slots=True)
class Series:
    """Samples in order of time: ``times`` in epoch seconds and ``values``, float64[N] each, and their files, int64[N].

    Files are numbered in the order of their names, which are times, over all of the job's nodes.
    """

    times: Floats
    values: Floats
    files: Ints

    def between(self, start: float | None, end: float | None) -> Floats:
        """Return the values from ``start`` to ``end``, both included, to half a microsecond."""
        chosen = np.ones(self.times.size, dtype=np.bool_)
        if start is not None:
            chosen &= self.times >= start - 1e-3
        if end is not None:
            chosen &= self.times <= end + 1e-3
        return self.values[chosen]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a framework: epoch microseconds, microseconds, and what its arguments say.

    ``file`` is the time in the name of the file that has it, epoch microseconds.
    """

    phase: str
    name: str
    start_us: int
    length_us: int
    arguments: dict[str, Any]
    thread: str
    file: int

    @property
    def start(self) -> float:
        """When it began, epoch seconds."""
        return self.start_us / 1e6

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.length_us / 1e6

    @property
    def end_us(self) -> int:
        """When it ended, epoch microseconds."""
        return self.start_us + self.length_us

    @property
    def end(self) -> float:
        """When it ended, epoch seconds."""
        return self.end_us / 1e6


@dataclass(frozen=True)
class Points:
    """Snapshots of a node: T times and, NaN without a sample, GPUs' utilization float64[T, G] and measures of cores."""

    times: Floats
    gpus: Floats
    cpu_highest: Floats
    cpu_mean: Floats
    cores_full: Floats
    io_highest: Floats
    io_mean: Floats

    @cached_property
    def seen(self) -> Flags:
        """Which have a sample of some GPU: bool[T]."""
        return np.asarray(~np.isnan(self.gpus).all(axis=1))

    @cached_property
    def active(self) -> Flags:
        """In which some GPU works: bool[T]."""
        return np.asarray((np.nan_to_num(self.gpus, nan=-1.0) >= ACTIVE).any(axis=1))


@dataclass
class Node:
    """A node: its series by device and metric, for example ``("gpu0", "GPUUtilization")``.

    ``objects`` has the newest sample's time of each of its files, in the files' order.
    """

    name: str
    interval_s: float
    series: dict[tuple[str, str], Series]
    objects: Floats = field(default_factory=lambda: np.zeros(0))

    def of(self, metric: str) -> dict[str, Series]:
        """Return the series of a metric by device."""
        return {device: series for (device, name), series in self.series.items() if name == metric}

    @cached_property
    def gpus(self) -> list[str]:
        """Names of the GPUs whose utilization was sampled."""
        return sorted(self.of("GPUUtilization"), key=lambda name: (len(name), name))

    @cached_property
    def gpu_interval_s(self) -> float:
        """Distance of the GPUs' samples, seconds: the shortest usual one, where they are rarer than those of cores."""
        times = self.points.times[self.points.seen]
        if times.size < 2:
            return self.interval_s
        shortest = float(np.quantile(np.diff(times), 0.1, method="lower"))
        if shortest <= 1.5 * self.interval_s:
            return self.interval_s
        nearest = min(CONFIGURED_S, key=lambda each: abs(each - shortest))
        return nearest if abs(nearest - shortest) < 0.01 * nearest else shortest

    @cached_property
    def used_gpus(self) -> list[str]:
        """The GPUs that were active once."""
        return [gpu for gpu, series in self.of("GPUUtilization").items() if (series.values >= ACTIVE).any()]

    @property
    def first(self) -> float:
        """Time of the first sample, epoch seconds."""
        return min(float(series.times[0]) for series in self.series.values())

    @property
    def last(self) -> float:
        """Time of the last sample, epoch seconds."""
        return max(float(series.times[-1]) for series in self.series.values())

    @cached_property
    def points(self) -> Points:
        """What was sampled within half an interval, as one point."""
        cores, waits, gpus = self.of("CPUUtilization"), self.of("I/OWaitPercentage"), self.of("GPUUtilization")
        every = [series.times for group in (cores, waits, gpus) for series in group.values()]
        times = np.unique(np.concatenate([*every, np.zeros(0)]))
        starts: list[float] = []
        for at in times.tolist():
            if not starts or at - starts[-1] > self.interval_s / 2.0:
                starts.append(at)
        edges = np.array(starts)

        def table(group: dict[str, Series], names: list[str]) -> Floats:
            values = np.full((edges.size, len(names)), np.nan)
            for column, name in enumerate(names):
                places = np.searchsorted(edges, group[name].times, side="right") - 1
                values[places, column] = group[name].values
            return values

        cpu, io = table(cores, sorted(cores)), table(waits, sorted(waits))
        return Points(
            times=edges,
            gpus=table(gpus, self.gpus),
            cpu_highest=_over_columns(np.nanmax, cpu),
            cpu_mean=_over_columns(np.nanmean, cpu),
            cores_full=np.where(np.isnan(cpu).all(axis=1), np.nan, (cpu > 90.0).sum(axis=1))
            if cpu.size
            else _none(cpu),
            io_highest=_over_columns(np.nanmax, io),
            io_mean=_over_columns(np.nanmean, io),
        )


@dataclass
class RawJob:
    """A job's folder: what ``job.json`` says, its nodes, and the events of its processes by ``(node, process)``."""

    folder: Path
    about: dict[str, Any]
    nodes: dict[str, Node]
    events: dict[tuple[str, str], list[Event]] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        """The longest sampling interval of its nodes, seconds."""
        return max((node.interval_s for node in self.nodes.values()), default=60.0)

    @cached_property
    def first(self) -> float:
        """When its first sample was taken or its first event began, epoch seconds."""
        began = [event.start for events in self.events.values() for event in events]
        return min([*(node.first for node in self.nodes.values()), *began], default=0.0)

    @cached_property
    def last(self) -> float:
        """When its last sample was taken or its last event ended, epoch seconds."""
        ended = [event.end for events in self.events.values() for event in events]
        return max([*(node.last for node in self.nodes.values()), *ended], default=0.0)

    @property
    def span(self) -> tuple[float, float]:
        """When the job began and ended, by ``job.json`` and by its data, epoch seconds."""
        start, end = self.about.get("started_at"), self.about.get("ended_at")
        return min(self.first, start or self.first), max(self.last, end or self.last)


def read_job(folder: Path) -> RawJob:
    """Return what was recorded of a job; raises OSError when there is no such folder."""
    told = folder / "job.json"
    about = json.loads(told.read_text("utf-8")) if told.exists() else {}
    interval_ms = about.get("profiling_interval_ms")
    return RawJob(
        folder=folder,
        about=about,
        nodes=_nodes(folder / "profiler-output" / "system", None if interval_ms is None else interval_ms / 1_000.0),
        events=_events(folder / "profiler-output" / "framework"),
    )


def _nodes(folder: Path, interval_s: float | None) -> dict[str, Node]:
    decoder = msgspec.json.Decoder(_Line)
    found: dict[str, dict[tuple[str, str], tuple[list[float], list[float], list[int]]]] = {}
    newest: dict[str, dict[Path, float]] = {}
    for number, file in enumerate(sorted(folder.rglob("*.json"))):
        for text in file.read_bytes().splitlines():
            line = _decoded(decoder, text)
            if line is not None:
                times, values, files = found.setdefault(line.NodeId, {}).setdefault(_key(line), ([], [], []))
                times.append(line.Timestamp)
                values.append(line.Value)
                files.append(number)
                of_node = newest.setdefault(line.NodeId, {})
                of_node[file] = max(of_node.get(file, line.Timestamp), line.Timestamp)
    nodes = {}
    for name, series in found.items():
        ordered = {key: _ordered(*columns) for key, columns in series.items()}
        nodes[name] = Node(name, interval_s or _usual_distance(ordered), ordered, np.array(list(newest[name].values())))
    return nodes


def _decoded(decoder: msgspec.json.Decoder[_Line], text: bytes) -> _Line | None:
    """Return a line; None of one that is empty, cut or damaged."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _key(line: _Line) -> tuple[str, str]:
    if line.Type in {"gpu", "cpu"} and line.Dimension:
        return line.Name, line.Dimension
    device, dot, metric = line.Name.rpartition(".")
    return (device, metric) if dot else ("", f"{line.Name}{line.Dimension and '/'}{line.Dimension}")


def _ordered(times: list[float], values: list[float], files: list[int]) -> Series:
    """Return samples in order of time; of two at one time the later written one."""
    at, what, where = np.array(times), np.array(values), np.array(files)
    order = np.argsort(at, kind="stable")
    newest = order[np.append(np.diff(at[order]) > 0.0, True)]
    return Series(at[newest], what[newest], where[newest])


def _usual_distance(series: dict[tuple[str, str], Series]) -> float:
    busiest = max(
        (each for (_, name), each in series.items() if name in {"GPUUtilization", "CPUUtilization"}),
        key=lambda each: each.times.size,
        default=None,
    )
    if busiest is None or busiest.times.size < 2:
        return 60.0
    return float(np.median(np.diff(busiest.times)))


def _events(folder: Path) -> dict[tuple[str, str], list[Event]]:
    found: dict[tuple[str, str], list[Event]] = {}
    for file in sorted(folder.rglob("*_pythontimeline.json")):
        match = _EVENTS_OF.fullmatch(file.name)
        if match is None:
            continue
        try:
            rows = json.loads(file.read_text("utf-8"))
        except ValueError:
            continue
        events = found.setdefault((match["node"], match["process"]), [])
        phases, origin = {}, 0.0
        for row in rows:
            if row.get("ph") == "M" and row.get("name") == "process_name":
                about = row.get("args", {})
                origin = about.get("start_time_since_epoch_in_micros", origin)
                phases[row.get("pid")] = about.get("name", "")
            elif row.get("ph") == "X":
                events.append(
                    Event(
                        phase=phases.get(row.get("pid")) or row["name"],
                        name=row["name"],
                        start_us=int(origin + row["ts"]),
                        length_us=int(row.get("dur", 0)),
                        arguments=row.get("args") or {},
                        thread=str(row.get("tid")),
                        file=int(match["end"]),
                    )
                )
    return found


def _over_columns(reduced: Any, values: Floats) -> Floats:
    """Return a reduction over what each row has, NaN for rows without anything."""
    found = _none(values)
    some = ~np.isnan(values).all(axis=1)
    if values.shape[1]:
        found[some] = reduced(values[some], axis=1)
    return found


def _none(values: Floats) -> Floats:
    return np.full(values.shape[0], np.nan)
