"""Which files of a profile are read, and when they say that they were written, by their names alone.

The original's grammar keeps its gaps: nodes must be ``algo-<n>``, ``.json.tmp`` passes as a system file, and a
TensorFlow trace without ``.metadata`` has time 0.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from trainguard.core.errors import EmptyProfileError

_SYSTEM = re.compile(r"(?:.*/)?system/.+/(\d{10})\.algo-\d+\.json[^/]*")
_FRAMEWORK = re.compile(r"(?:.*/)?framework/.+\.(?:json|csv|json\.gz)")
_TENSORFLOW_FOLDER = "tensorflow/detailed_profiling"
_TENSORFLOW_SUFFIX = "trace.json.gz"
_NODE = re.compile(r"(.*)-(algo.*)")
_LEVELS_BELOW_STEP_FOLDER = 4
_US_PER_S = 1_000_000


class Parser(IntEnum):
    """The original's parsers of framework events, in the order in which their events come."""

    PYTHON = 0
    MODEL = 1
    TENSORFLOW = 2
    HOROVOD = 3
    SMDATAPARALLEL = 4


_SUFFIXES = {
    "pythontimeline.json": Parser.PYTHON,
    "model_timeline.json": Parser.MODEL,
    _TENSORFLOW_SUFFIX: Parser.TENSORFLOW,
    "horovod_timeline.json": Parser.HOROVOD,
    "smdataparallel_timeline.json": Parser.SMDATAPARALLEL,
}


@dataclass(frozen=True, slots=True, order=True)
class FrameworkName:
    """A framework file: ``time_us`` is the end of its last event, ``origin_us`` the start of a TensorFlow trace."""

    time_us: int
    name: str
    parser: Parser
    node: str
    origin_us: int | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The files that are read, in order of (time, path), and what follows from their names alone.

    ``system`` has each file's minute (its start, epoch microseconds) and its name. ``framework_times_us`` are those of
    all that the framework reader lists: files that no parser reads move the clock, too. ``skipped`` counts by reason.
    """

    system: tuple[tuple[int, str], ...]
    framework: tuple[FrameworkName, ...]
    framework_times_us: tuple[int, ...]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def first_us(self) -> int:
        """Where the first window starts: the first system file, or the first framework file where that is earlier."""
        first = self.system[0][0]
        earliest = self.framework_times_us[0] if self.framework_times_us else 0
        return min(first, earliest) if earliest else first

    @property
    def latest_us(self) -> int:
        """Up to where data counts as complete: the newest file of the stream that ends first."""
        latest = self.system[-1][0]
        newest = self.framework_times_us[-1] if self.framework_times_us else 0
        return min(latest, newest) if newest else latest


def catalogue(names: Sequence[str]) -> Catalogue:
    """Sort out a profile's files; raises EmptyProfileError without a system file: the original waits without end."""
    skipped: Counter[str] = Counter()
    system, framework, times = [], [], []
    for name in names:
        if match := _SYSTEM.fullmatch(name):
            system.append((int(match[1]) * _US_PER_S, name))
        elif _FRAMEWORK.fullmatch(name):
            time_us, file = _framework_name(name, names)
            if time_us is None:
                skipped["framework_files_without_time"] += 1
                continue
            times.append(time_us)
            if file is not None:
                framework.append(file)
            else:
                skipped["framework_files_without_parser"] += 1
        elif not name.endswith((".ts", ".metadata")):
            skipped["other_files"] += 1
    if not system:
        raise EmptyProfileError(len(names), len(times))
    return Catalogue(tuple(sorted(system)), tuple(sorted(framework)), tuple(sorted(times)), skipped)


def _framework_name(name: str, names: Sequence[str]) -> tuple[int | None, FrameworkName | None]:
    """Return its time, None where its name lacks one, and the file if it is read."""
    file = name.rsplit("/", 1)[-1]
    if name.endswith(".json") and "pevents" in name and name.count("_") >= 2:
        time, _, rest = file.partition("_")
        if not time.isdecimal() or not rest:
            return None, None
        parser = next((parser for suffix, parser in _SUFFIXES.items() if suffix in name), None)
        if parser is None:
            return int(time), None
        return int(time), FrameworkName(int(time), name, parser, node_id(rest.split("_")[0]))
    if name.endswith(_TENSORFLOW_SUFFIX) and _TENSORFLOW_FOLDER in name:
        start_us, end_us = _tensorflow_times(name, names)
        return end_us, FrameworkName(end_us, name, Parser.TENSORFLOW, node_id(file.split(".")[0]), start_us)
    return 0, None


def _tensorflow_times(name: str, names: Sequence[str]) -> tuple[int, int]:
    """Return start and end by the first ``<node>_<start>_<end>.metadata`` of the trace's step folder."""
    folder = "/".join(name.split("/")[:-_LEVELS_BELOW_STEP_FOLDER]) + "/"
    found = sorted(other for other in names if other.startswith(folder) and other.endswith(".metadata"))
    if not found:
        return 0, 0
    fields = found[0].rsplit("/", 1)[-1].removesuffix(".metadata").split("_")
    if len(fields) != 3 or not (fields[1].isdecimal() and fields[2].isdecimal()):
        return 0, 0
    return int(fields[1]), int(fields[2])


def node_id(written: str) -> str:
    """Turn ``905-algo-1`` into ``algo-1-905``; anything else stays as it is."""
    match = _NODE.match(written)
    return f"{match[2]}-{match[1]}" if match else written
