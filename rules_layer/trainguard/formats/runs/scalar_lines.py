"""Losses and metrics in lines of a log: by the patterns that a job defines, and by those of common trainers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainguard.formats.tensors.scalars.log_lines import pairs_in, plain_line, position_in
from trainguard.formats.tensors.scalars.rows import Recording

# Further scalars of a log are counted.
MOST_NAMES = 100

TOO_MANY_NAMES = f"a scalar beyond the first {MOST_NAMES} names"
NO_NUMBER = "a scalar without a number"

Search = Callable[[re.Pattern[str], str], re.Match[str] | None]


class SlowSearchError(Exception):
    """A search with a regular expression of the job's takes too long."""


# When a line of a log was written, epoch seconds, and its text.
LogLine = tuple[float, str]

# The name of a scalar, and a regular expression of the job's with one group, as ``MetricDefinitions`` have it.
MetricDefinition = tuple[str, re.Pattern[str]]


@dataclass(slots=True)
class ScalarLines:
    """Reads lines in their order.

    In a line without any of the job's ``definitions`` the known forms are looked for. ``counted`` is by name of a
    scalar without a step: its next step. A definition for which ``search`` raises SlowSearchError is not used again.
    """

    definitions: Sequence[MetricDefinition] = ()
    counted: dict[str, int] = field(default_factory=dict)
    search: Search = re.Pattern.search
    bad: dict[str, int] = field(default_factory=dict)
    _slow: set[str] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)

    def read(self, lines: Iterable[LogLine]) -> list[Recording]:
        return [row for at, text in lines for row in self._rows(at, text)]

    def _rows(self, at: float, text: str) -> list[Recording]:
        text = plain_line(text)
        found = self._found(text)
        if not found:
            return []
        step, _ = position_in(text)
        if step is not None:
            return [Recording(step, at, found)]
        rows: dict[int, dict[str, float]] = {}
        for name, value in found.items():
            step = self.counted.get(name, 0)
            self.counted[name] = step + 1
            rows.setdefault(step, {})[name] = value
        return [Recording(step, at, values) for step, values in sorted(rows.items())]

    def _found(self, text: str) -> Mapping[str, float]:
        pairs = [
            (name, match[1])
            for name, pattern in self.definitions
            if (match := self._searched(name, pattern, text)) is not None
        ] or pairs_in(text)
        found: dict[str, float] = {}
        for name, value in pairs:
            if name not in self._names and len(self._names) >= MOST_NAMES:
                self._count(TOO_MANY_NAMES)
                continue
            self._names.add(name)
            try:
                found[name] = float(value)
            except (TypeError, ValueError):
                self._count(NO_NUMBER)
        return found

    def _searched(self, name: str, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        if name in self._slow:
            return None
        try:
            return self.search(pattern, text)
        except SlowSearchError:
            self._slow.add(name)
            self._count(f"metric {name!r}: a search with {pattern.pattern!r} takes too long")
            return None

    def _count(self, why: str) -> None:
        self.bad[why] = self.bad.get(why, 0) + 1


def definitions_of(given: Iterable[tuple[str, str]]) -> tuple[tuple[MetricDefinition, ...], tuple[str, ...]]:
    """Return the definitions that can be used, of names and regular expressions, and the faults of the others."""
    usable, faults = [], []
    for name, expression in given:
        try:
            pattern = re.compile(expression)
        except (re.error, RecursionError, OverflowError) as fault:
            faults.append(f"metric {name!r}: {expression!r} is no regular expression: {fault}")
            continue
        if not pattern.groups:
            faults.append(f"metric {name!r}: {expression!r} has no group, expected one around the number")
            continue
        usable.append((name, pattern))
    return tuple(usable), tuple(faults)
