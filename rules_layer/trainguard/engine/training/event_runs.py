"""Event files of one folder that several processes wrote, one after another: of one run, or of several.

Processes that write at the same time write one run. A later one, whose events begin after the last of another, began
a new run where its losses and metrics begin as early as the other's, and resumed the run where they begin later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, TelemetryFormatError
from trainguard.core.ports import BucketFiles
from trainguard.engine.training.scalar_files import PIECE_BYTES, FileState, ListedFile, OlderRun, ScalarFiles, is_unread
from trainguard.engine.training.uncertain import compared
from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.rows import RunValues, Series
from trainguard.formats.tensors.step_view import Mode


@dataclass(frozen=True, slots=True)
class Beginning:
    """When an event file's first scalar was recorded, epoch seconds, and of each loss and metric the first two steps.

    ``training`` are those of training. A scalar that was recorded once is left out. ``values`` are their first ones.
    """

    at: float
    steps: Mapping[str, tuple[int, int]]
    training: frozenset[str]
    values: RunValues


@dataclass(slots=True)
class EventRuns:
    """Compares the event files of each folder; holds the beginnings of those that were compared."""

    files: ScalarFiles
    names: ScalarNames
    _begun: dict[tuple[str, int], Beginning | None] = field(default_factory=dict)

    def older(
        self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]
    ) -> Iterator[OlderRun]:
        """Yield what a file shows to be of an older run: other event files, or the file itself."""
        if not file.is_events:
            return
        for name, state in known.items():
            other = listed.get(name)
            if other is None or name == file.key.name or not other.is_events or state.source != file.key.source:
                continue
            for newer, older in ((file, other), (other, file)):
                begins = self._begins(newer, older, known)
                if begins is not None:
                    before = self._before(newer, listed, known)
                    used = f"is used until step {begins:,}" if begins else "is not used"
                    how = (
                        "records the same scalars from a later step on" if begins else "records the same scalars again"
                    )
                    why = f"object {older.listed.key}: {newer.listed.key} {how}: the older run {used}"
                    yield OlderRun(before | {older.key.name}, begins, why, newer.listed.key)

    def compare(self, file: ListedFile, listed: Mapping[str, ListedFile], known: Mapping[str, FileState]) -> None:
        """Note in ``known`` what a file and others of its folder record at the same steps with other values."""
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
        from trainguard.formats.tensors.scalars.event_file import read_scalars
        from trainguard.formats.tensors.scalars.rows import recordings

        objects = BucketFiles(self.files.source.objects, self.files.source.bucket, "")
        try:
            columns = read_scalars(objects, file.listed.key, 0, PIECE_BYTES)
        except (TelemetryFormatError, ObjectMissingError, ProfileSourceError):
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
