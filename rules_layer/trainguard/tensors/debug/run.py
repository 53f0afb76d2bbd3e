"""A run's debug-output: opens its steps, and finds earlier steps and other runs for them.

Importing this module imports protobuf: a function imports it where it opens a step.
"""

from collections.abc import Callable, Sequence, Set

from trainguard.errors import ObjectMissingError, RunMissingError, TelemetryFormatError
from trainguard.tensors.byte_cache import ByteCache
from trainguard.tensors.debug.collections_file import (
    MAX_COLLECTIONS_BYTES,
    MOST_WORKERS,
    Collections,
    decode_collections,
    merge_collections,
)
from trainguard.tensors.debug.event_reader import EventReader
from trainguard.tensors.debug.history import PastStep, RunHistory
from trainguard.tensors.debug.index_file import MAX_INDEX_BYTES, IndexFile, decode_index
from trainguard.tensors.debug.keys import STEPS_PER_FOLDER, collections_name, index_name, matched_files
from trainguard.tensors.debug.membership import Membership
from trainguard.tensors.debug.step import DebugStep
from trainguard.tensors.files import RunFiles

OPEN_STEPS_BYTES = 32 * 1024 * 1024
"""Indexes of earlier steps that are kept; an index takes a few times the bytes of its file."""

SETS_BYTES = 8 * 1024 * 1024
"""Names of tensors by the sets in which they are saved."""

_NAME_BYTES = 400


class DebugRun:
    """One run, as far as it is known.

    Parameters
    ----------
    files : RunFiles
        The files below ``debug-output/``.
    collections : Collections
    history : RunHistory or None
        The steps that `DebugStep.earlier` finds; `remember` adds to it.
    others : callable or None
        Returns another run by its name; raises RunMissingError.
    """

    def __init__(
        self,
        files: RunFiles,
        collections: Collections,
        history: RunHistory | None = None,
        others: "Callable[[str], DebugRun] | None" = None,
    ) -> None:
        self._files = files
        self.collections = collections
        self.membership = Membership(collections)
        self.history = RunHistory() if history is None else history
        self.reader = EventReader(files)
        self._others = others
        self._open: ByteCache[DebugStep] = ByteCache(OPEN_STEPS_BYTES)
        self._sets: ByteCache[Set[str]] = ByteCache(SETS_BYTES)

    def open_step(self, step: int, workers: Sequence[str], *, listed_at: float | None = None) -> DebugStep:
        """Read the index files of a step.

        Parameters
        ----------
        step : int
        workers : sequence of str
            Those that have an index file for it.
        listed_at : float or None
            When the step was saved, for one without a time that can be read.

        Raises
        ------
        IndexNotReadyError
            When an index file is still being written, or broken.
        TelemetryFormatError
            When one cannot be read.
        ObjectMissingError
            When one is gone.
        """
        kept = self._open.get(step)
        if kept is not None and kept.workers == tuple(sorted(workers)):
            return kept
        indexes = {worker: self._index(step, worker) for worker in sorted(workers)}
        opened = DebugStep(self, step, indexes, listed_at)
        self._open.put(step, opened, _NAME_BYTES * sum(len(each.frames) for each in indexes.values()))
        return opened

    def remember(self, step: DebugStep) -> None:
        """Add a step that rules have seen to the history."""
        self.history.add(step.step, step.mode, step.mode_step, step.workers, step.tensors)

    def earlier(self, step: DebugStep, name: str, count: int) -> Sequence[DebugStep]:
        """Return the last steps before a step, of the same mode, that hold a tensor: the newest first."""
        found: list[DebugStep] = []
        held: dict[int, bool] = {step.tensors: step.holds(name)}
        for past in self.history.before(step.step, step.mode):
            if len(found) >= count:
                break
            if past.tensors and past.tensors not in held:
                held[past.tensors] = name in self._names_of(past)
            if not held.get(past.tensors, True):
                continue
            opened = self.open_step(past.step, self.history.workers_of(past))
            if opened.holds(name):
                found.append(opened)
        return found

    def _names_of(self, past: PastStep) -> Set[str]:
        """Return the tensors of a step: every step of its set of tensors holds them."""
        names = self._sets.get(past.tensors)
        if names is None:
            names = frozenset(self.open_step(past.step, self.history.workers_of(past)).names)
            self._sets.put(past.tensors, names, _NAME_BYTES * len(names))
        return names

    def find_step(self, step: int) -> DebugStep | None:
        """Return a step by its number, from whichever workers saved it; None where none did."""
        folder = f"index/{step // STEPS_PER_FOLDER:09d}/{step:012d}_"
        workers = [file.worker for file in matched_files(self._files, folder) if file.kind == "index"]
        return self.open_step(step, workers[:MOST_WORKERS]) if workers else None

    def other_step(self, run: str, step: int) -> DebugStep | None:
        """Return a step of another run; None where it has none. Raises RunMissingError."""
        if self._others is None:
            raise RunMissingError(run, "other runs cannot be read here")
        return self._others(run).find_step(step)

    def _index(self, step: int, worker: str) -> IndexFile:
        return decode_index(step, worker, self._files.get(index_name(step, worker), MAX_INDEX_BYTES))


def read_collections(files: RunFiles, workers: Sequence[str]) -> Collections:
    """Return the collections of a run from the files of its workers, in sorted order.

    Raises
    ------
    TelemetryFormatError
        When a file cannot be read.
    ObjectMissingError
        When one is gone.
    """
    return merge_collections(
        [
            decode_collections(worker, files.get(collections_name(worker), MAX_COLLECTIONS_BYTES))
            for worker in sorted(workers)
        ]
    )


def find_run(files: RunFiles, name: str, others: Callable[[str], DebugRun] | None = None) -> DebugRun:
    """Return the run whose files these are, by listing them.

    Raises
    ------
    RunMissingError
        When there is no collections file, or none that can be read.
    """
    workers = [file.worker for file in matched_files(files, "collections/") if file.kind == "collections"]
    if not workers:
        raise RunMissingError(name, "holds no collections file, expected debug-output/collections/000000000/…")
    try:
        return DebugRun(files, read_collections(files, workers[:MOST_WORKERS]), others=others)
    except (TelemetryFormatError, ObjectMissingError) as fault:
        raise RunMissingError(name, str(fault)) from fault
