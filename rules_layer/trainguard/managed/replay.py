"""The whole replay: one window after the other through the eleven sub-rules, as the managed report runs them.

Closed windows begin at the first file's time and as long as one starts before the newest file of the stream that ends
first: the last minute is lost. Files are looked for up to three minutes around a window.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import methodcaller
from typing import Any, Generic, TypeVar

import numpy as np

from trainguard.core.errors import RuleConfigError, error_text
from trainguard.managed.framework_reader import FrameworkFile, read_framework_file
from trainguard.managed.framework_stream import ManagedFrameworkStream
from trainguard.managed.parameters import (
    RULES,
    SCAN_INTERVAL,
    Settings,
    resolve_compatible_parameters,
    resolve_scan_interval_us,
)
from trainguard.managed.rule import AnyCompatibleRule, ManagedWindow
from trainguard.managed.source import Catalogue, catalogue
from trainguard.managed.system_stream import ManagedSystemStream, SystemFile, read_system_file
from trainguard.rules.profiler_report import PROFILER_REPORT

TIME_BUFFER_US = 180_000_000
# Almost two years of minutes: a file's name may hold any time, and a window takes time even if it is empty.
MAX_WINDOWS = 1_000_000

Progress = Callable[[int, int], None]
FILES_A_BATCH = 16
BATCHES_AHEAD = 2

# What ``map`` is: ordered results of a function over items, for example the ``map`` of a process pool.
FileMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

T = TypeVar("T")


def parsed(bodies: Iterator[Any], parse: Callable[[Any], T], file_map: FileMap) -> Iterator[T]:
    """Iterate over parsed files: ``file_map`` is given 16 at a time, 32 at most before the first is used."""
    batches: deque[Iterator[T]] = deque()
    while True:
        while len(batches) < BATCHES_AHEAD and (batch := list(islice(bodies, FILES_A_BATCH))):
            batches.append(iter(file_map(parse, batch)))
        if not batches:
            return
        yield from batches[0]
        batches.popleft()


class FilesAhead(Generic[T]):
    """A sequence of parsed files, of which only a part exists at any time."""

    def __init__(self, files: Iterator[T]) -> None:
        self._files = files
        self._start = 0
        self._kept: deque[T] = deque()

    def span(self, start: int, stop: int) -> list[T]:
        """Return the files ``start`` to ``stop`` (exclusive), and forget those before ``start``; neither goes back."""
        self._kept.extend(islice(self._files, max(stop - self._start - len(self._kept), 0)))
        while self._start < start:
            self._kept.popleft()
            self._start += 1
        return list(islice(self._kept, stop - start))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the managed report would have written, and what it was computed from.

    ``reports`` are by name, in the original's order. Times are epoch microseconds, equal without a window. ``skipped``
    counts by reason. ``failed`` is what a sub-rule raised: it has no report, and the others go on.
    """

    reports: dict[str, dict[str, Any]]
    windows: int
    first_us: int
    through_us: int
    skipped: Counter[str]
    failed: dict[str, str]


def replay(
    names: Sequence[str],
    read: Callable[[str], bytes],
    settings: Settings | None = None,
    *,
    documented_defaults: bool = False,
    progress: Progress | None = None,
    file_map: FileMap = map,
) -> Replayed:
    """Replay a profile as if its job were finished; ``names`` are paths below ``profiler-output/``.

    The report's ``scan_interval_us`` sets the windows' length; ``progress`` is called after each window with the
    windows done, and all; ``file_map`` parses files ahead. Raises EmptyProfileError without a system file;
    RuleConfigError for settings that cannot be used, and for over a million windows.
    """
    given: Mapping[str, Mapping[str, Any]] = settings or {}
    parameters = resolve_compatible_parameters(given, documented=documented_defaults)
    interval_us = resolve_scan_interval_us(given)
    files = catalogue(names)
    first_us = files.first_us
    starts = _window_starts(files, interval_us)
    rules: list[AnyCompatibleRule] = [rule(parameters[rule.name], first_us) for rule in RULES]
    failed: dict[str, str] = {}

    def each_rule(step: Callable[[AnyCompatibleRule], None]) -> None:
        for rule in rules:
            if rule.name not in failed:
                try:
                    step(rule)
                except Exception as fault:
                    failed[rule.name] = error_text(fault)

    windows = _Windows(files, read, file_map)
    with np.errstate(over="ignore", invalid="ignore"):  # hostile numbers become infinite; there is nobody to warn
        for number, start_us in enumerate(starts, start=1):
            each_rule(methodcaller("observe", windows.cut(start_us, start_us + interval_us)))
            if progress is not None:
                progress(number, len(starts))
        each_rule(methodcaller("finish"))
        reports = {rule.name: rule.report() for rule in rules if rule.name not in failed}
    return Replayed(
        reports=reports,
        windows=len(starts),
        first_us=first_us,
        through_us=first_us + len(starts) * interval_us,
        skipped=+(files.skipped + windows.tally),
        failed=failed,
    )


def _window_starts(files: Catalogue, interval_us: int) -> range:
    """Return the windows' starts, epoch microseconds."""
    starts = range(files.first_us, files.latest_us, interval_us)
    if len(starts) > MAX_WINDOWS:
        span_us = files.latest_us - files.first_us
        least = -(-span_us // MAX_WINDOWS)
        expected = f"at least {least}: the times in the files' names are {span_us / 1e6:.0f} s apart"
        raise RuleConfigError(PROFILER_REPORT, SCAN_INTERVAL, interval_us, expected)
    return starts


class _Windows:
    """Answers one query after the other, each later than the one before."""

    def __init__(self, files: Catalogue, read: Callable[[str], bytes], file_map: FileMap) -> None:
        self._system_times = [time_us for time_us, _ in files.system]
        self._framework_times = [file.time_us for file in files.framework]
        self._all_framework_times = files.framework_times_us
        self.tally: Counter[str] = Counter()
        bodies = (read(name) for _, name in files.system)
        named = ((file, read(file.name)) for file in files.framework)
        self._system_files = FilesAhead(self._system_counted(parsed(bodies, read_system_file, file_map)))
        self._framework_files = FilesAhead(self._framework_counted(parsed(named, read_framework_file, file_map)))
        self._system = ManagedSystemStream()
        self._framework = ManagedFrameworkStream(self.tally)

    def cut(self, start_us: int, end_us: int) -> ManagedWindow:
        return ManagedWindow(
            start_us=start_us,
            end_us=end_us,
            system=self._system.window(self._system_span(start_us, end_us), start_us, end_us),
            framework=self._framework.window(self._framework_span(start_us, end_us), start_us, end_us),
        )

    def _system_span(self, start_us: int, end_us: int) -> list[SystemFile]:
        """Return files from the last at or before the start less 3 min to the first at or after the end plus 3 min."""
        times = self._system_times
        before = bisect_right(times, start_us - TIME_BUFFER_US)
        start = bisect_left(times, times[before - 1]) if before else 0
        return self._system_files.span(start, _through(times, end_us + TIME_BUFFER_US, times))

    def _framework_span(self, start_us: int, end_us: int) -> list[FrameworkFile]:
        """Return files from the first at or after the start less 3 min to the first at or after the end plus 3 min."""
        start = bisect_left(self._framework_times, start_us - TIME_BUFFER_US)
        stop = _through(self._framework_times, end_us + TIME_BUFFER_US, self._all_framework_times)
        return self._framework_files.span(start, stop)

    def _system_counted(self, files: Iterator[SystemFile]) -> Iterator[SystemFile]:
        for file in files:
            self.tally["bad_lines"] += file.bad_lines
            yield file

    def _framework_counted(self, files: Iterator[FrameworkFile]) -> Iterator[FrameworkFile]:
        for file in files:
            self.tally["bad_events"] += file.bad_events
            self.tally["framework_files_unreadable"] += not file.readable
            yield file


def _through(times: Sequence[int], time_us: int, listed: Sequence[int]) -> int:
    """Return how many of ``times`` are up to, and equal to, the first of ``listed`` at or after ``time_us``."""
    following = bisect_left(listed, time_us)
    return bisect_right(times, listed[following]) if following < len(listed) else len(times)
