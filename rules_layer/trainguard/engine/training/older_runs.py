"""Which files of scalars are of older runs of a job: those are left out, from the step on from which they are repeated.

Of tables, such as trainers' logs, those that record the same scalars over the same steps with other values are of
several runs. Event files of one folder that several processes write at the same time are of one run. A later process,
whose events begin after the last of another, began a new run where its losses and metrics begin as early as the
other's, and resumed the run where they begin later. Event files in folders of their own belong together as `runs_of`
says; a folder that shares no loss or metric with the newest run holds more of that.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, TelemetryFormatError
from trainguard.engine.training.scalar_files import (
    PIECE_BYTES,
    FileState,
    ListedFile,
    ScalarFiles,
    ScalarState,
    compared,
    is_unread,
)
from trainguard.engine.training.stream import TENSORBOARD
from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.rows import (
    RunValues,
    Series,
    recorded_apart,
    recordings,
    resumed_at,
    rows_before,
    values_of,
)
from trainguard.formats.tensors.scalars.run_folders import first_tags, runs_of
from trainguard.formats.tensors.step_view import Mode

# Files saved within a minute were copied or uploaded together: their names say which is newer.
TOGETHER_S = 60.0

# Numbers that are held to be compared, 16 bytes each; of others, those read longest ago are read again.
MOST_NUMBERS = 8_000_000

_UNREADABLE = (TelemetryFormatError, ObjectMissingError, ProfileSourceError)
_NUMBER = re.compile(r"(\d+)")
# Writers put when they began, epoch seconds, into a file's name.
_BEGUN = re.compile(r"tfevents\.(\d{9,11})(?!\d)")


class OlderRun(NamedTuple):
    """Files of an older run by name, from which step on they are not used, why, and the key of the newer file."""

    names: frozenset[str]
    until: int
    why: str
    newer: str


class Beginning(NamedTuple):
    """When an event file's first scalar was recorded, epoch seconds, and of each loss and metric the first two steps.

    ``training`` are those of training. A scalar that was recorded once is left out. ``values`` are their first ones.
    """

    at: float
    steps: Mapping[str, tuple[int, int]]
    training: frozenset[str]
    values: RunValues


@dataclass(slots=True)
class OlderRuns:
    """Compares the files of one job; holds what was read of those that were compared."""

    files: ScalarFiles
    names: ScalarNames
    _compared: set[tuple[str, float]] = field(default_factory=set)
    _values: dict[tuple[str, float], RunValues] = field(default_factory=dict)
    _begun: dict[tuple[str, int], Beginning | None] = field(default_factory=dict)

    def shown_by(
        self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> Iterator[OlderRun]:
        """Yield what a file shows to be of an older run: other files, or the file itself. Each table's version once."""
        return (self._among_events if file.is_events else self._among_tables)(file, listed, known)

    def _among_tables(
        self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> Iterator[OlderRun]:
        version = (file.key.name, file.listed.last_modified)
        if version in self._compared:
            return
        self._compared.add(version)
        for name, state in known.items():
            other = listed.get(name)
            if name == file.key.name or other is None or other.is_events or state.broken or state.until == 0:
                continue
            older, newer = _in_age(file, other)
            why = self._apart(newer, older, known)
            if why is not None:
                yield OlderRun(_of_folder(older, newer, listed), *why, newer.listed.key)
            if known[file.key.name].until == 0:
                return

    def _apart(self, newer: ListedFile, older: ListedFile, known: Mapping[str, FileState]) -> tuple[int, str] | None:
        try:
            ours, others = (rows_before(self._recorded(file), known[file.key.name].until) for file in (newer, older))
        except _UNREADABLE:
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

    def _among_events(
        self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> Iterator[OlderRun]:
        for name, state in known.items():
            other = listed.get(name)
            if other is None or name == file.key.name or not other.is_events or state.source != file.key.source:
                continue
            for newer, older in ((file, other), (other, file)):
                begins = self._begins(newer, older, known)
                if begins is None:
                    continue
                before = self._before(newer, listed, known)
                how = "records the same scalars from a later step on" if begins else "records the same scalars again"
                used = f"is used until step {begins:,}" if begins else "is not used"
                why = f"object {older.listed.key}: {newer.listed.key} {how}: the older run {used}"
                yield OlderRun(before | {older.key.name}, begins, why, newer.listed.key)

    def compare(self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]) -> None:
        """Note in ``known`` what an event file and others of its folder record at the same steps with other values."""
        state = known.get(file.key.name)
        if not file.is_events or state is None or state.until is not None or state.apart:
            return
        for name, other in known.items():
            is_beside = name != file.key.name and other.source == state.source and other.until is None
            if not is_beside or name not in listed or not listed[name].is_events:
                continue
            ours, theirs = self._beginning(file), self._beginning(listed[name])
            if ours is not None and theirs is not None:
                state.apart = compared(ours.values, theirs.values, name.rpartition("/")[2])
            if state.apart:
                return

    def _begins(self, newer: ListedFile, older: ListedFile, known: Mapping[str, FileState]) -> int | None:
        """Return from which step on a file replaces an older one, 0 of a new run; None of one that does not."""
        state, ours = known[older.key.name], known[newer.key.name]
        if state.broken or ours.broken or ours.until == 0 or state.until == 0 or is_unread(older, state):
            return None
        first, then = self._beginning(older), self._beginning(newer)
        if first is None or then is None or then.at <= state.newest_s:
            return None
        begins = _first_step(first, then)
        if begins is None or begins > state.furthest or (state.until is not None and state.until <= begins):
            return None
        return begins

    def _before(
        self, newer: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> frozenset[str]:
        """Return the names of all event files that ended before a file began, those of evaluation among them."""
        begun = self._beginning(newer)
        ended = {name: state for name, state in known.items() if name in listed and listed[name].is_events}
        return frozenset(
            name for name, each in ended.items() if begun is not None and each.newest_s and each.newest_s < begun.at
        )

    def _beginning(self, file: ListedFile) -> Beginning | None:
        version = (file.key.name, min(file.listed.size, PIECE_BYTES))
        if version not in self._begun:
            self._begun[version] = self._read(file)
        return self._begun[version]

    def _read(self, file: ListedFile) -> Beginning | None:
        from trainguard.formats.tensors.scalars.bulk import read_scalars

        try:
            columns = read_scalars(self.files.objects, file.listed.key, 0, PIECE_BYTES)
        except _UNREADABLE:
            return None
        if columns is None:
            return None
        folder = file.key.file.folder
        at: float | None = None
        found: dict[str, dict[int, float]] = {}
        for each in recordings(columns, folder, file.listed.last_modified):
            at = each.at if at is None else at
            for name, value in each.values.items():
                found.setdefault(name, {})[each.step] = value
        steps = {name: list(islice(values, 2)) for name, values in found.items()}
        used = {name for name, first in steps.items() if len(first) > 1 and self.names.mode(name, folder) is not None}
        meant = self.names.members(LOSSES, used) | self.names.members(METRICS, used) or used
        training = frozenset(name for name in meant if self.names.mode(name, folder) is Mode.TRAIN)
        if at is None:
            return None
        values = {name: _series(found[name]) for name in meant}
        return Beginning(at, {name: (steps[name][0], steps[name][1]) for name in meant}, training, values)

    def in_folders(self, listed: Mapping[str, ListedFile], state: ScalarState) -> Iterator[OlderRun]:
        """Yield the runs in folders of their own that are not the newest, and not known as such; notes them."""
        events = {name: each for name, each in listed.items() if each.is_events and each.key.mark == TENSORBOARD}
        _note_beside(events, state)
        if events.keys() <= state.run_of.keys() or len({each.key.file.folder for each in events.values()}) < 2:
            return
        runs, tags = self._folder_runs(events)
        begins = {run: _begun([events[name] for name in names]) for run, names in runs.items()}
        newest = max(runs, key=lambda run: (begins[run], _spelled(run)))
        if all(tags[run] for run in runs):
            state.run_of = {name: run for run, names in runs.items() for name in names}
        for run, names in runs.items():
            new = frozenset(names) & state.files.keys() - state.other_runs.keys()
            if run != newest and new and tags[run] & tags[newest]:
                state.run_of |= dict.fromkeys(names, run)
                state.runs_left[run] = False
                why = f"{run or 'the folder itself'}: {newest or 'the folder itself'} is a newer run of the job"
                _note_beside(events, state)
                yield OlderRun(new, 0, why, newest)

    def _folder_runs(self, events: Mapping[str, ListedFile]) -> tuple[dict[str, list[str]], dict[str, frozenset[str]]]:
        """Return the files of each run by its folder, and which losses and metrics these begin with."""
        paths = {each.key.file.name: name for name, each in events.items()}
        first: dict[str, tuple[str, ...]] = {}

        def tags_of(path: str) -> tuple[str, ...]:
            if path not in first:
                first[path] = tuple(first_tags(self.files.objects, events[paths[path]].listed.key))
            return first[path]

        runs, tags = {}, defaultdict[str, frozenset[str]](frozenset)
        found = runs_of(paths, lambda path: next(iter(tags_of(path)), None) if len(tags_of(path)) == 1 else None)
        for run, files in found.items():
            runs[run] = [paths[path] for path in files]
            used = {tag for path in files for tag in tags_of(path)}
            tags[run] = self.names.members(LOSSES, used) | self.names.members(METRICS, used) or frozenset(used)
        return runs, tags


def _numbers(runs: Iterable[RunValues]) -> int:
    return sum(steps.size for run in runs for steps, _ in run.values())


def _in_age(one: ListedFile, other: ListedFile) -> tuple[ListedFile, ListedFile]:
    apart_s = one.listed.last_modified - other.listed.last_modified
    later = apart_s > 0.0 if abs(apart_s) > TOGETHER_S else _spelled(one.key.name) > _spelled(other.key.name)
    return (other, one) if later else (one, other)


def _spelled(name: str) -> list[tuple[int, str]]:
    """Order names by the numbers in them: version_9, version_10."""
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(_NUMBER.split(name))]


def _of_folder(older: ListedFile, newer: ListedFile, listed: Mapping[str, ListedFile]) -> frozenset[str]:
    """Return the names of the files of an older run: all of its folder, unless the newer run writes there too."""
    folder = older.key.mark, older.key.file.folder
    if folder == (newer.key.mark, newer.key.file.folder):
        return frozenset({older.key.name})
    return frozenset(name for name, each in listed.items() if (each.key.mark, each.key.file.folder) == folder)


def _series(values: Mapping[int, float]) -> Series:
    steps = np.fromiter(values, np.int64, len(values))
    order = np.argsort(steps)
    return steps[order], np.fromiter(values.values(), np.float64, len(values))[order]


def _first_step(older: Beginning, newer: Beginning) -> int | None:
    """Return the first step of a resumed run, 0 of one that began again; None where the files share no scalar.

    Of scalars of training alone, where the older file has some: an evaluation may be repeated from the start.
    """
    shared = older.steps.keys() & newer.steps.keys()
    shared = shared & older.training if older.training else shared
    if not shared:
        return None
    later = [
        newer.steps[name][0]
        for name in shared
        if newer.steps[name][0] > older.steps[name][0] + abs(older.steps[name][1] - older.steps[name][0])
    ]
    return min(later, default=0)


def _begun(files: Iterable[ListedFile]) -> int:
    """Return when a run's first writer began, epoch seconds; 0 where no name says it."""
    return min((int(found[1]) for each in files if (found := _BEGUN.search(each.key.name))), default=0)


def _note_beside(events: Mapping[str, ListedFile], state: ScalarState) -> None:
    """Note which of the runs that are left out were written after the newest had begun."""
    begun = _begun(each for name, each in events.items() if state.run_of.get(name) not in state.runs_left)
    for run, beside in state.runs_left.items():
        written = [each.listed.last_modified for name, each in events.items() if state.run_of.get(name) == run]
        state.runs_left[run] = beside or max(written, default=0.0) > begun
