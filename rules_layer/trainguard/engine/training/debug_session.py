"""A job's debug-output in hand: S3's listing, not a message, says which steps are complete.

S3 goes on between two pages of a listing: a worker may write step 5 after the page that would show it, and step 6
before the page that does. So a step that lacks a worker is listed once more before it is taken.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from trainguard.core.errors import PortUnavailableError, TelemetryFormatError, UnreadableKeyError
from trainguard.core.layout import EndKey
from trainguard.core.records import StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import NEWEST, Announced, Applied, state_of
from trainguard.engine.training.runs import RunObjects, open_run, run_collections
from trainguard.engine.training.stream import STEP, StepSession, StepStreamState, WatchedStep, believed
from trainguard.formats.tensors.debug.keys import RunFile, TensorKey, index_name, match_name
from trainguard.formats.tensors.debug.ledger import CompleteStep, RunHistory, StepLedger

if TYPE_CHECKING:
    from trainguard.formats.tensors.debug.run import DebugRun, DebugStep


SHORTENED = "degraded_to_short_history"
# Steps of each set of tensors.
_SHORT = 8

NO_DATA = (
    "No data: the training job saved no tensors, debug-output holds no collections file. Pass a DebugHookConfig whose "
    "collections the rules need, or let the script write scalars below tensorboard-output."
)


class DebugState(StepStreamState, kw_only=True):
    """What is stored of debug-output; ``cursor`` of the item is the last step that was taken.

    ``workers`` is None before the first collections file, ``last_complete`` -1 before the first complete step.
    ``history`` are past steps, by which earlier values of a tensor are read again.
    """

    workers: int | None = None
    last_complete: int = -1
    history: RunHistory = msgspec.field(default_factory=RunHistory)

    @property
    def no_data(self) -> str | None:
        return NO_DATA if self.workers is None else None

    def shorten(self) -> str | None:
        return SHORTENED if self.history.shorten(_SHORT) else None


_LONGEST_PREFIX = len("index/000000000/000000000000_")


class DebugSession(StepSession[DebugState]):
    def __init__(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> None:
        state = state_of(record, DebugState)
        super().__init__(record, source, state, plan)
        self._files = RunObjects.of(source)
        self._ended = False
        self._ledger = StepLedger(passed=record.cursors.get(STEP, -1), last_complete=state.last_complete)
        self._newest = record.cursors.get(NEWEST, -1)
        self._listed_at: dict[int, float] = {}
        self._opened: DebugRun | None = None

    def announce(self, messages: Sequence[Announced]) -> None:
        for message in messages:
            self._woken = True
            if isinstance(message.parsed, EndKey):
                self._ended = True
            elif isinstance(message.parsed, TensorKey) and message.parsed.file.kind == "index":
                self._count_taken(message.parsed.file)

    def _apply_listed(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        del modified_before
        ended = drain or self._ended
        yield from self._begin(ended=ended)
        if ended:
            self._ledger.end()
        after = index_name(self._ledger.listing_starts, "")[:_LONGEST_PREFIX]
        for step, files in groupby(self._index_files("index/", after), key=lambda file: file.step):
            for file in files:
                self._ledger.add_index(step, file.worker)
            yield from self._take()
        yield from self._take()
        if self._ended:
            self.stream.state.ended = True

    @property
    def has_changes(self) -> bool:
        return super().has_changes or self.counters["late"] > self.record.counters.get("late", 0)

    def to_record(self, *, closed: bool) -> StreamRecord:
        ledger = self._ledger
        self.counters["steps_given_up"] += ledger.given_up
        self.counters["too_many_workers"] += ledger.refused
        ledger.given_up = ledger.refused = 0
        self.stream.state.last_complete = ledger.last_complete
        return self._steps_record(None if ledger.passed < 0 else ledger.passed, self._newest, closed=closed)

    @property
    def _waiting(self) -> dict[str, int]:
        """The oldest step that waits for a worker: the scheduler has it evaluated again when nothing more comes."""
        pending = self._ledger.pending
        if not pending:
            return {}
        step = min(pending)
        return {f"{self._files.prefix}{index_name(step, self._ledger.workers_of(step)[0])}": step}

    def _count_taken(self, file: RunFile) -> None:
        """Count a message about a step that was taken: a repeat, or one that comes too late."""
        if file.step > self._ledger.passed:
            return
        history = self.stream.state.history
        past = history.find(file.step)
        is_late = history.reaches(file.step) if past is None else file.worker not in history.workers_of(past)
        self.counters["late" if is_late else "duplicates"] += 1

    def _begin(self, *, ended: bool) -> Iterator[Applied]:
        """Find out how many workers write, and the run's collections; yield what is wrong with its files."""
        found, state = run_collections(self._source, self._files), self.stream.state
        fault, tally = next(iter(found.faults.values()), None), Counter({"bad_objects": len(found.faults)})
        for worker in found.workers if found.number is not None else ():
            self._ledger.add_collections(worker, found.number or 1)
        if found.number is None or not (self._ledger.has_begun or ended):
            if ended and found.faults:
                yield self._settle(self._files.prefix, tally, [], fault)
            return
        if state.workers is None:
            state.workers = found.number
            if found.faults:
                yield self._settle(self._files.prefix, tally, [], fault)
        self._opened = open_run(self._source, found.collections, state.history)

    def _index_files(self, prefix: str, after: str = "") -> Iterator[RunFile]:
        for listed in self._files.list(prefix, after):
            try:
                file = match_name(listed.key)
            except UnreadableKeyError:
                continue  # its own message counts and names it
            if file is None or file.kind != "index":
                continue
            self._newest = max(self._newest, file.step)
            self._progress_s = max(self._progress_s, listed.last_modified)
            self._listed_at[file.step] = max(listed.last_modified, self._listed_at.get(file.step, 0.0))
            yield file

    def _take(self) -> Iterator[Applied]:
        run = self._opened
        while run is not None and (complete := self._ledger.take()) is not None:
            yield self._use_step(run, self._whole(complete))
            self.stream.state.ended = False  # after a mark that came too early, the run goes on

    def _whole(self, complete: CompleteStep) -> CompleteStep:
        if len(complete.workers) >= (self._ledger.workers or 1):
            return complete
        prefix = index_name(complete.step, "")[:_LONGEST_PREFIX]
        workers = {file.worker for file in self._index_files(prefix)}
        return CompleteStep(complete.step, tuple(sorted(workers | set(complete.workers))))

    def _use_step(self, run: "DebugRun", complete: CompleteStep) -> Applied:
        key = f"{self._files.prefix}{index_name(complete.step, complete.workers[0])}"
        listed_at = self._listed_at.pop(complete.step, self._progress_s)
        opened, faults = self._open(run, complete, listed_at)
        tally = Counter({"bad_objects": len(faults)})
        if opened is None:
            return self._settle(key, +tally, [], _first(faults))
        step = WatchedStep(opened, max(believed(opened.at, listed_at), self.stream.state.watermark_s or 0.0))
        fires = self.stream.apply(step)
        run.remember(opened)
        tally["bad_tensors"] = len(step.faults)
        return self._settle(key, +tally, fires, _first(faults or step.faults))

    def _open(
        self, run: "DebugRun", complete: CompleteStep, listed_at: float
    ) -> "tuple[DebugStep | None, dict[str, str]]":
        """Open a step; a worker whose index file cannot be read is left out and named with the reason."""
        faults: dict[str, str] = {}
        usable: Sequence[str] = complete.workers
        while usable:
            try:
                return run.open_step(complete.step, usable, listed_at=listed_at), faults
            except PortUnavailableError:
                raise
            except Exception as fault:
                # One bad file must not block the run: reading each file alone finds it.
                found = self._unusable(run, complete.step, usable, listed_at)
                faults |= found or dict.fromkeys(usable, f"{type(fault).__name__}: {fault}")
                usable = [worker for worker in usable if worker not in faults]
        return None, faults

    @staticmethod
    def _unusable(run: "DebugRun", step: int, workers: Sequence[str], listed_at: float) -> dict[str, str]:
        faults = {}
        for worker in workers:
            try:
                run.open_step(step, [worker], listed_at=listed_at)
            except PortUnavailableError:
                raise
            except TelemetryFormatError as fault:
                faults[worker] = str(fault)
            except Exception as fault:
                faults[worker] = f"index of step {step} of {worker}: {type(fault).__name__}: {fault}"
        return faults


def _first(faults: dict[str, str]) -> str | None:
    if not faults:
        return None
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{next(iter(faults.values()))}{more}"
