"""A run's debug-output: opens its steps, and finds earlier steps and other runs. Imports protobuf."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from hashlib import blake2b

from trainguard.core.errors import ObjectMissingError, RunMissingError, TelemetryFormatError, TensorMissingError
from trainguard.core.ports import Files
from trainguard.formats.tensors.bounded import ByteCache
from trainguard.formats.tensors.debug.event_reader import EventReader
from trainguard.formats.tensors.debug.json_files import (
    MAX_COLLECTIONS_BYTES,
    MAX_INDEX_BYTES,
    MOST_WORKERS,
    Collections,
    FramePlace,
    IndexFile,
    Membership,
    decode_collections,
    decode_index,
    merge_collections,
)
from trainguard.formats.tensors.debug.keys import (
    END_NAMES,
    STEPS_PER_FOLDER,
    bare_name,
    collections_name,
    index_name,
    matched_files,
    parse_reduction,
)
from trainguard.formats.tensors.debug.ledger import PastStep, RunHistory, StepLedger
from trainguard.formats.tensors.scalars.names import ERRORS, has_meaning
from trainguard.formats.tensors.step_view import Mode, ReductionKind, StepView, Tensor


class DebugStep:
    """A `StepView` of one step; ``indexes`` are by worker, sorted, ``listed_at`` for a step without a time."""

    def __init__(
        self, run: "DebugRun", step: int, indexes: Mapping[str, IndexFile], listed_at: float | None = None
    ) -> None:
        first = next(iter(indexes.values()))
        self.step = step
        self.mode: Mode = first.mode
        self.mode_step = first.mode_step
        self.timed = True
        self.logged = False
        self.workers = tuple(indexes)
        self._run = run
        self._listed_at = listed_at
        self._members: dict[str, frozenset[str]] = {}
        self._frames: dict[str, FramePlace] = {}
        self._reductions: dict[tuple[str, ReductionKind, bool], tuple[str, FramePlace]] = {}
        self._numbers: dict[tuple[str, ReductionKind, bool], float] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for index in indexes.values():
            self._take(index)
        # Reductions get the name of their tensor where the step holds it too: ``loss:0``, not ``loss``.
        full = {bare_name(name): name for name in (*self._shapes, *self._frames)}
        self._reductions = {
            (full.get(tensor, tensor), kind, absolute): place
            for (tensor, kind, absolute), place in self._reductions.items()
        }

    def _take(self, index: IndexFile) -> None:
        for name, place in index.frames.items():
            reduction = parse_reduction(name)
            if reduction is None:
                self._frames.setdefault(name, place)
            else:
                self._reductions.setdefault(reduction, (name, place))
        for name, shape in index.shapes.items():
            self._shapes.setdefault(name, shape)

    @cached_property
    def at(self) -> float:
        """When the step was saved, epoch seconds, by the smallest frame, which costs least to read.

        Raises TelemetryFormatError when the frame cannot be read and nothing else says it.
        """
        places = [*self._frames.items(), *self._reductions.values()]
        if places:
            name, place = min(places, key=lambda each: (each[1].length, each[1].start))
            try:
                at = self._run.reader.saved_at(place, name)
            except TelemetryFormatError:
                if self._listed_at is None:
                    raise
            else:
                if math.isfinite(at):
                    return at
        if self._listed_at is None:
            raise TelemetryFormatError(f"step {self.step}", "no frame says when it was saved")
        return self._listed_at

    @cached_property
    def names(self) -> Sequence[str]:
        return sorted(self._frames.keys() | {tensor for tensor, _, _ in self._reductions})

    @cached_property
    def tensors(self) -> int:
        """A digest of ``names``, above 0: two steps have the same one where they hold the same tensors."""
        joined = "\0".join(self.names).encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(joined, digest_size=6).digest(), "big") + 1

    def holds(self, name: str) -> bool:
        return name in self._frames or name in self._reduced

    def members(self, collection: str) -> Set[str]:
        found = self._members.get(collection)
        if found is None:
            found = self._run.membership.members(collection, self.names)
            if collection == ERRORS and not found:
                found = frozenset(name for name in self.names if has_meaning(ERRORS, name))
            self._members[collection] = found
        return found

    def shape(self, name: str) -> tuple[int, ...] | None:
        if name in self._shapes:
            return self._shapes[name]
        place = self._frames.get(name)
        return None if place is None else self._run.reader.shape(place, name)

    def has_value(self, name: str) -> bool:
        return name in self._frames

    def value(self, name: str) -> Tensor:
        return self._run.reader.value(self.step, self._place(name), name)

    def blocks(self, name: str) -> Iterator[Tensor]:
        return self._run.reader.blocks(self.step, self._place(name), name)

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        key = name, kind, absolute
        number = self._numbers.get(key)
        if number is None:
            found = self._reductions.get(key)
            if found is None:
                return None
            saved_as, place = found
            number = self._numbers[key] = self._run.reader.number(place, saved_as)
        return number

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        return self._run.earlier(self, name, count)

    def other_run(self, run: str) -> StepView | None:
        if self._run.others is None:
            raise RunMissingError(run, "other runs cannot be read here")
        return self._run.others(run).find_step(self.step)

    @cached_property
    def _reduced(self) -> frozenset[str]:
        return frozenset(tensor for tensor, _, _ in self._reductions)

    def _place(self, name: str) -> FramePlace:
        place = self._frames.get(name)
        if place is None:
            raise TensorMissingError(name, self.step)
        return place


# An index takes a few times the bytes of its file.
OPEN_STEPS_BYTES = 32 * 1024 * 1024

# By the sets in which they are saved.
SETS_BYTES = 8 * 1024 * 1024

_NAME_BYTES = 400


class DebugRun:
    """One run; `remember` adds to its ``history``, ``others`` returns another run or raises RunMissingError."""

    def __init__(
        self,
        files: Files,
        collections: Collections,
        history: RunHistory | None = None,
        others: "Callable[[str], DebugRun] | None" = None,
    ) -> None:
        self._files = files
        self.collections = collections
        self.membership = Membership(collections)
        self.history = RunHistory() if history is None else history
        self.reader = EventReader(files)
        self.others = others
        self._open: ByteCache[DebugStep] = ByteCache(OPEN_STEPS_BYTES)
        self._sets: ByteCache[Set[str]] = ByteCache(SETS_BYTES)

    def open_step(self, step: int, workers: Sequence[str], *, listed_at: float | None = None) -> DebugStep:
        """Read the index files of a step, which ``workers`` have; ``listed_at`` is for a step without a time.

        Raises IndexNotReadyError when one is still being written, or broken; TelemetryFormatError when one cannot be
        read; ObjectMissingError when one is gone.
        """
        kept = self._open.get(step)
        if kept is not None and kept.workers == tuple(sorted(workers)):
            return kept
        indexes = {
            worker: decode_index(step, worker, self._files.get(index_name(step, worker), MAX_INDEX_BYTES))
            for worker in sorted(workers)
        }
        opened = DebugStep(self, step, indexes, listed_at)
        self._open.put(step, opened, _NAME_BYTES * sum(len(each.frames) for each in indexes.values()))
        return opened

    def remember(self, step: DebugStep) -> None:
        self.history.add(step.step, step.mode, step.mode_step, step.workers, step.tensors)

    def earlier(self, step: DebugStep, name: str, count: int) -> Sequence[DebugStep]:
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
        names = self._sets.get(past.tensors)
        if names is None:
            names = frozenset(self.open_step(past.step, self.history.workers_of(past)).names)
            self._sets.put(past.tensors, names, _NAME_BYTES * len(names))
        return names

    def find_step(self, step: int) -> DebugStep | None:
        folder = f"index/{step // STEPS_PER_FOLDER:09d}/{step:012d}_"
        workers = [file.worker for file in matched_files(self._files, folder) if file.kind == "index"]
        return self.open_step(step, workers[:MOST_WORKERS]) if workers else None


def read_collections(files: Files, workers: Sequence[str]) -> Collections:
    return merge_collections(
        [
            decode_collections(worker, files.get(collections_name(worker), MAX_COLLECTIONS_BYTES))
            for worker in sorted(workers)
        ]
    )


def find_run(files: Files, name: str, others: Callable[[str], DebugRun] | None = None) -> DebugRun:
    """Return the run whose files these are; raises RunMissingError when no collections file can be read."""
    workers = [file.worker for file in matched_files(files, "collections/") if file.kind == "collections"]
    if not workers:
        raise RunMissingError(name, "holds no collections file, expected debug-output/collections/000000000/…")
    try:
        return DebugRun(files, read_collections(files, workers[:MOST_WORKERS]), others=others)
    except (TelemetryFormatError, ObjectMissingError) as fault:
        raise RunMissingError(name, str(fault)) from fault


def complete_steps(
    files: Files, run: DebugRun, ledger: StepLedger, *, ended: bool | None = None
) -> Iterator[DebugStep]:
    """Iterate over the complete steps of a run, in order; each is remembered when the next one is asked for.

    With a ``ledger`` that an earlier call left, the steps after those come. ``ended`` None looks for the mark of the
    end. Raises TelemetryFormatError when an index file cannot be read; call again with the ledger for the steps after
    it.
    """
    for file in matched_files(files, "collections/"):
        ledger.add_collections(file.worker, run.collections.workers)
    for file in matched_files(files, "index/"):
        ledger.add_index(file.step, file.worker)
        yield from _taken(run, ledger)
    if ended or (ended is None and has_ended(files)):
        ledger.end()
    yield from _taken(run, ledger)


def has_ended(files: Files) -> bool:
    return any(each.key in END_NAMES for end in END_NAMES for each in files.list(end))


def _taken(run: DebugRun, ledger: StepLedger) -> Iterator[DebugStep]:
    while complete := ledger.take():
        step = run.open_step(complete.step, complete.workers)
        yield step
        run.remember(step)
