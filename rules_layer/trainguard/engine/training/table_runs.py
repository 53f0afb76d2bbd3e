"""Trainers' files of one job that record the same scalars over the same steps with other values: of several runs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, TelemetryFormatError
from trainguard.engine.training.scalar_files import FileState, ListedFile, OlderRun, ScalarFiles
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import RunValues, recorded_apart, resumed_at, rows_before, values_of

TOGETHER_S = 60.0
"""Files saved within a minute were copied or uploaded together: their names say which is newer."""

MOST_NUMBERS = 8_000_000
"""Numbers that are held to be compared, 16 bytes each; of others, those read longest ago are read again."""

_NUMBER = re.compile(r"(\d+)")


@dataclass(slots=True)
class RunFinder:
    """Compares the trainers' files of one job; holds what each version records."""

    files: ScalarFiles
    names: ScalarNames
    _compared: set[tuple[str, float]] = field(default_factory=set)
    _values: dict[tuple[str, float], RunValues] = field(default_factory=dict)

    def older(
        self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> Iterator[OlderRun]:
        """Yield what a file shows to be of an older run: files before it, or the file itself. Each version once."""
        version = (file.key.name, file.listed.last_modified)
        if file.is_events or version in self._compared:
            return
        self._compared.add(version)
        for name, state in known.items():
            other = listed.get(name)
            if name == file.key.name or other is None or other.is_events or state.broken or state.until == 0:
                continue
            older, newer = _in_age(file, other)
            why = self._apart(newer, older, known)
            if why is not None:
                yield OlderRun(_of_run(older, newer, listed), *why, newer.listed.key)
            if known[file.key.name].until == 0:
                return

    def _apart(self, newer: ListedFile, older: ListedFile, known: Mapping[str, FileState]) -> tuple[int, str] | None:
        try:
            ours, others = (rows_before(self._recorded(file), known[file.key.name].until) for file in (newer, older))
        except (TelemetryFormatError, ObjectMissingError, ProfileSourceError):
            return None
        name = recorded_apart(ours, others)
        if name is None:
            return None
        begins = resumed_at(self._recorded(newer))
        used = f"is used until step {begins}" if begins else "is not used"
        why = f"object {older.listed.key}: {newer.listed.key} records {name} over the same steps with other values"
        return begins, f"{why}: the older run {used}"

    def _recorded(self, file: ListedFile) -> RunValues:
        version = (file.key.name, file.listed.last_modified)
        if version not in self._values:
            recorded = values_of(self.files.whole(file).rows, self.names)
            while self._values and _numbers([recorded, *self._values.values()]) > MOST_NUMBERS:
                del self._values[next(iter(self._values))]
            self._values[version] = recorded
        return self._values[version]


def _numbers(runs: Iterable[RunValues]) -> int:
    return sum(steps.size for run in runs for steps, _ in run.values())


def _in_age(one: ListedFile, other: ListedFile) -> tuple[ListedFile, ListedFile]:
    apart_s = one.listed.last_modified - other.listed.last_modified
    later = apart_s > 0.0 if abs(apart_s) > TOGETHER_S else _spelled(one) > _spelled(other)
    return (other, one) if later else (one, other)


def _spelled(file: ListedFile) -> list[tuple[int, str]]:
    """Order names by the numbers in them: version_9, version_10."""
    parts = _NUMBER.split(file.key.name)
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def _of_run(older: ListedFile, newer: ListedFile, listed: Mapping[str, ListedFile]) -> frozenset[str]:
    """Return the names of the files of an older run: all of its folder, unless the newer run writes there too."""
    folder = older.key.mark, older.key.file.folder
    if folder == (newer.key.mark, newer.key.file.folder):
        return frozenset({older.key.name})
    return frozenset(name for name, each in listed.items() if (each.key.mark, each.key.file.folder) == folder)
