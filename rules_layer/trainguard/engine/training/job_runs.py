"""The runs whose event files lie in folders of their own below one job: the newest is judged, the others are named.

Folders belong together as `runs_of` says. One that shares no loss or metric with the newest run holds more of that.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainguard.core.ports import BucketFiles
from trainguard.engine.training.keys import TENSORBOARD
from trainguard.engine.training.scalar_files import ListedFile, OlderRun, ScalarFiles, ScalarState
from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.run_folders import first_tags, runs_of

_BEGUN = re.compile(r"tfevents\.(\d{9,11})(?!\d)")
"""Writers put when they began, epoch seconds, into a file's name."""
_NUMBER = re.compile(r"(\d+)")


@dataclass(slots=True)
class JobRuns:
    """Finds the runs among the event files of a job's TensorBoard folder."""

    files: ScalarFiles
    names: ScalarNames

    def older(self, listed: Mapping[str, ListedFile], state: ScalarState) -> Iterator[OlderRun]:
        """Yield the runs that are not the newest, and not known as such yet; notes them in ``state``."""
        events = {name: each for name, each in listed.items() if each.is_events and each.key.mark == TENSORBOARD}
        self._note_beside(events, state)
        if events.keys() <= state.run_of.keys() or len({each.key.file.folder for each in events.values()}) < 2:
            return
        runs, tags = self._runs(events)
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
                self._note_beside(events, state)
                yield OlderRun(new, 0, why, newest)

    @staticmethod
    def _note_beside(events: Mapping[str, ListedFile], state: ScalarState) -> None:
        """Note which of the runs that are left out were written after the newest had begun."""
        begun = _begun(each for name, each in events.items() if state.run_of.get(name) not in state.runs_left)
        for run, beside in state.runs_left.items():
            written = [each.listed.last_modified for name, each in events.items() if state.run_of.get(name) == run]
            state.runs_left[run] = beside or max(written, default=0.0) > begun

    def _runs(self, events: Mapping[str, ListedFile]) -> tuple[dict[str, list[str]], dict[str, frozenset[str]]]:
        """Return the files of each run by its folder, and which losses and metrics these begin with."""
        paths = {each.key.file.name: name for name, each in events.items()}
        first: dict[str, tuple[str, ...]] = {}

        def tags_of(path: str) -> tuple[str, ...]:
            if path not in first:
                objects = BucketFiles(self.files.source.objects, self.files.source.bucket, "")
                first[path] = tuple(first_tags(objects, events[paths[path]].listed.key))
            return first[path]

        runs, tags = {}, defaultdict[str, frozenset[str]](frozenset)
        for run in runs_of(paths, lambda path: next(iter(tags_of(path)), None) if len(tags_of(path)) == 1 else None):
            runs[run.folder] = [paths[path] for path in run.files]
            used = {tag for path in run.files for tag in tags_of(path)}
            tags[run.folder] = self.names.members(LOSSES, used) | self.names.members(METRICS, used) or frozenset(used)
        return runs, tags


def _begun(files: Iterable[ListedFile]) -> int:
    """Return when a run's first writer began, epoch seconds; 0 where no name says it."""
    return min((int(found[1]) for each in files if (found := _BEGUN.search(each.key.name))), default=0)


def _spelled(run: str) -> list[tuple[int, str]]:
    """Order names by the numbers in them: version_9, version_10."""
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(_NUMBER.split(run))]
