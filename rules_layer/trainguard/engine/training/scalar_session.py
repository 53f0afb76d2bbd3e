"""A job's files of scalars in hand: rows of files that grow become steps, in the order of steps over all files.

A step is shown to rules once every source (the event files of one folder, or a trainer's file) has come beyond it.
Nothing waits for a source five minutes older than the run's newest file, nor at the run's end.
"""

import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import STREAM_SILENT_S, Announced, Applied, state_of
from trainguard.engine.training.older_runs import OlderRun, OlderRuns
from trainguard.engine.training.scalar_files import (
    LONGEST_REASON,
    MODE_PLACES,
    MOST_UNCERTAIN,
    FileState,
    ListedFile,
    Piece,
    ScalarFiles,
    ScalarState,
    Uncertain,
    is_unread,
    uncertain_of,
)
from trainguard.engine.training.stream import ScalarKey, StepSession, WatchedStep, believed, scalar_names
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.tensors.scalars.rows import MOST_SOURCES, ScalarRow, ScalarRows, in_order
from trainguard.formats.tensors.scalars.segments import MOST_NAMES
from trainguard.formats.tensors.scalars.step import ScalarStep

MOST_FILES = 256
# Rows that may wait for a source that lags; files of others are not read further while so many wait.
MOST_WAITING = 500

ROWS_AT_ONCE = 50


class ScalarSession(StepSession[ScalarState]):
    def __init__(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> None:
        super().__init__(record, source, state_of(record, ScalarState), plan)
        self._files = ScalarFiles(source)
        self._names = scalar_names(plan)
        self._older_runs = OlderRuns(self._files, self._names)
        self._met: set[str] = set()
        self._listed: dict[str, ListedFile] = {}
        self._silent: set[str] = set()

    def announce(self, messages: Sequence[Announced]) -> None:
        self._woken = self._woken or any(isinstance(message.parsed, ScalarKey) for message in messages)

    def _apply_listed(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        yield from self._look()
        if drain and self.stream.state.step is None:
            self._find_segments()
        self._note_silent(drain=drain, modified_before=modified_before)
        yield from self._release()
        while (name := self._next()) is not None:
            yield from self._read(self._listed[name])
            yield from self._release()

    def to_record(self, *, closed: bool) -> StreamRecord:
        state = self.stream.state
        state.uncertain = self._uncertain()
        self.counters["uncertain_series"] = len(state.uncertain)
        self.counters["runs_not_judged"] = sum(state.runs_left.values())
        self.counters["overwritten_scalars"] = state.rows.overwritten
        self.counters["scalars_out_of_order"] = state.rows.disordered
        self.counters["too_many_scalars"] = state.rows.refused
        newest = max((state.front_of(source) for source in state.rows.newest), default=-1)
        return self._steps_record(state.step, newest, closed=closed)

    def _uncertain(self) -> list[Uncertain]:
        state = self.stream.state
        writers = [each for known in state.files.values() if known.until is None for each in known.apart]
        return uncertain_of(state.rows.segments.values(), state.late, writers, self._names)[:MOST_UNCERTAIN]

    @property
    def _waiting(self) -> dict[str, int]:
        state = self.stream.state
        waiting = [*state.held, *(row for rows in state.rows.open.values() for row in rows)]
        if not waiting or not state.files:
            return {}
        prefix = self._files.source.root.folder
        return {f"{prefix}{next(iter(state.files))}": min(row.step for row in waiting)}

    def _look(self) -> Iterator[Applied]:
        """List the files; record new ones, those that start again, and those there is no room for."""
        state = self.stream.state
        self._listed = self._files.listed()
        left_out = 0
        for name, file in self._listed.items():
            self._progress_s = max(self._progress_s, file.listed.last_modified)
            known = state.files.get(name)
            if known is None and len(state.files) >= MOST_FILES:
                left_out += 1
            elif known is None:
                state.files[name] = FileState(file.key.source)
            elif file.is_events and file.listed.size < known.taken:
                state.files[name] = FileState(file.key.source)
                sizes = f"it has {file.listed.size:,} bytes, {known.taken:,} were read"
                why = f"object {file.listed.key}: {sizes}: it is read again"
                yield self._settle(file.listed.key, Counter({"rewritten_files": 1}), [], why)
        self.counters["files_left_out"] = max(self.counters["files_left_out"], left_out)
        # One file alone is of one run.
        for found in self._older_runs.in_folders(self._listed, state) if len(state.files) > 1 else ():
            self._leave(found)
            yield self._settle(f"{self._files.source.root.folder}{found.newer}", Counter(), [], found.why)

    def _find_segments(self) -> None:
        """Find where segments and runs begin before rules are shown a row: of a job that has ended all is there."""
        state, read = self.stream.state, dict[str, FileState]()
        while (found := self._followed(state.rows.again(), read)).begun is not None:
            state.rows = found
            state.restart(found.begun)
        for file in (self._listed[name] for name in read):
            for older in self._older_runs.shown_by(file, self._listed, read) if file.is_events else ():
                for name in older.names & read.keys():
                    for known in (state.files[name], read[name]):
                        known.until = older.until if known.until is None else min(known.until, older.until)
            self._older_runs.compare(file, self._listed, state.files)
        self.counters["files_of_other_runs"] = len(state.other_runs)

    def _followed(self, rows: ScalarRows, files: dict[str, FileState]) -> ScalarRows:
        """Return rows that have followed the files from their beginning, up to the first segment that is new."""
        for name, file in sorted(self._listed.items()):
            if name not in self.stream.state.files or self.stream.state.files[name].until == 0:
                continue
            read = files[name] = FileState(file.key.source)
            while (piece := self._piece(file, read)) is not None:
                read.taken, read.seen = piece.taken, piece.seen
                for each in piece.recordings:
                    rows.follow(read.source, each, self._names, folder=file.key.file.folder, file=name)
                    if rows.begun is not None:
                        return rows
                    read.newest_s, read.furthest = max(read.newest_s, each.at), max(read.furthest, each.step)
            self._note_read(file, read)
        return rows

    def _piece(self, file: ListedFile, read: FileState) -> Piece | None:
        try:
            return self._files.read(file, read)
        except TelemetryFormatError:
            return None

    def _next(self) -> str | None:
        """Return the file to read next, one whose source is least far; None where all is read, or enough waits.

        Of the event files of a folder, that whose scalars are oldest, as far as they are known.
        """
        state = self.stream.state
        unread = [
            (state.front_of(known.source), known.newest_s or math.inf, name)
            for name, known in state.files.items()
            if (file := self._listed.get(name)) is not None and is_unread(file, known)
        ]
        name = min(unread)[-1] if unread else None
        if name is not None and len(state.held) >= MOST_WAITING and state.files[name].source not in self._lagging():
            return None
        return name

    def _lagging(self) -> set[str]:
        """Return the sources for which the oldest held row waits."""
        state = self.stream.state
        oldest = min((row.step for row in state.held), default=-1)
        return {source for source in self._active_sources() if state.front_of(source) <= oldest}

    def _read(self, file: ListedFile) -> Iterator[Applied]:
        known = self.stream.state.files[file.key.name]
        again = yield from self._separate_runs(file)
        if again or known.until == 0:
            return
        try:
            piece = self._files.read(file, known)
        except TelemetryFormatError as fault:
            known.broken, known.why = True, fault.reason[:LONGEST_REASON]
            self._note_read(file, known)
            yield self._settle(file.listed.key, Counter({"bad_objects": 1}), [], str(fault))
            return
        if piece is None:
            self._note_read(file, known)
            yield from self._separate_runs(file)
            return
        met = piece.bad if piece.taken > known.counted else 0
        tally = Counter({"bad_rows": met if file.is_events else max(piece.bad - known.bad, 0)})
        tally["bad_cells"] = max(piece.bad_cells - known.bad_cells, 0)
        is_rewritten = not file.is_events and piece.taken < known.taken
        tally["rewritten_files"] = int(is_rewritten)
        known.taken, known.seen, known.counted = piece.taken, piece.seen, max(piece.taken, known.counted)
        known.bad, known.bad_cells = piece.bad, piece.bad_cells
        known.why = known.why or (piece.why or "")[:LONGEST_REASON]
        begun = 0 if is_rewritten else self._take(file, piece)
        if tally.total():
            yield self._settle(file.listed.key, +tally, [], f"object {file.listed.key}: {piece.why or 'it is shorter'}")
        if begun is not None:
            self._restart(begun, file.listed.key)
            yield self._settle(file.listed.key, Counter(), [], None)

    def _separate_runs(self, file: ListedFile) -> Generator[Applied, None, bool]:
        """Leave out the files of older runs; return whether what was read before is to be read again."""
        state, again = self.stream.state, False
        if len(state.files) < 2:
            return False
        for found in self._older_runs.shown_by(file, self._listed, state.files):
            again = self._leave(found) or again
            yield self._settle(file.listed.key, Counter(), [], found.why)
        self.counters["files_of_other_runs"] = len(state.other_runs)
        self._older_runs.compare(file, self._listed, state.files)
        return again

    def _leave(self, found: OlderRun) -> bool:
        """Leave out files of an older run; return whether what was read before is to be read again."""
        state = self.stream.state
        for name in found.names & state.files.keys():
            known = state.files[name]
            known.until = found.until if known.until is None else min(known.until, found.until)
        if not any(known.taken for known in state.files.values()):
            return False
        self._restart(found.until, found.newer)
        return True

    def _restart(self, until: int, newest: str) -> None:
        self.stream.state.restart(until)
        self.stream.restart(f"The rule started again with the newest run in {newest}.")

    @staticmethod
    def _note_read(file: ListedFile, known: FileState) -> None:
        known.size, known.modified_s = file.listed.size, file.listed.last_modified

    def _take(self, file: ListedFile, piece: Piece) -> int | None:
        """Take in a piece; return the step of a segment that begins in it, from which on all is to be read again."""
        state = self.stream.state
        known = state.files[file.key.name]
        until = known.until
        source, folder, name = file.key.source, file.key.file.folder, file.key.name
        for each in piece.recordings:
            if file.is_events:
                known.newest_s, known.furthest = max(known.newest_s, each.at), max(known.furthest, each.step)
            if until is None or each.step < until:
                believable = replace(each, at=believed(each.at, file.listed.last_modified))
                state.held += state.rows.add(source, believable, self._names, folder=folder, file=name)
                if state.rows.begun is not None:
                    return state.rows.begun
        return None

    def _note_silent(self, *, drain: bool, modified_before: float | None) -> None:
        """Record the sources that nothing waits for: those without a file that is still written."""
        state = self.stream.state
        newest_s = max((file.listed.last_modified for file in self._listed.values()), default=0.0)
        since_s = max(newest_s - STREAM_SILENT_S, modified_before or 0.0)
        written = {
            known.source
            for name, known in state.files.items()
            if (file := self._listed.get(name)) is not None
            and not (drain or known.broken or known.until is not None)
            and file.listed.last_modified > since_s
        }
        self._silent = {known.source for known in state.files.values()} - written

    def _silent_sources(self) -> list[str]:
        unread = {
            known.source
            for name, known in self.stream.state.files.items()
            if (file := self._listed.get(name)) is not None and is_unread(file, known)
        }
        return sorted(self._silent - unread)

    def _active_sources(self) -> set[str]:
        """Return the sources that others wait for: all but silent ones, and those of which no row is used."""
        state = self.stream.state
        sources = {known.source for known in state.files.values()} - set(self._silent_sources())
        return sources if len(state.rows.newest) < MOST_SOURCES else sources & state.rows.newest.keys()

    def _release(self) -> Iterator[Applied]:
        """Apply the rows that every source has passed, in order; of a silent source, its last step is complete."""
        state = self.stream.state
        for source in self._silent_sources():
            state.held += state.rows.finish(source)
        horizon = min((state.front_of(source) for source in self._active_sources()), default=None)
        ready = [row for row in state.held if horizon is None or row.step < horizon]
        if not ready:
            return
        state.held = [row for row in state.held if horizon is not None and row.step >= horizon]
        rows = in_order(ready)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            rest = rows[start + ROWS_AT_ONCE :]
            applied = self._apply_rows(rows[start : start + ROWS_AT_ONCE])
            # An item that is saved here must hold the rows that are still to come.
            kept, state.held = state.held, [*rest, *state.held]
            yield applied
            state.held = kept

    def _apply_rows(self, rows: Sequence[ScalarRow]) -> Applied:
        state, fires = self.stream.state, list[Fire]()
        untimed_s = None
        if any(file.is_events for file in self._listed.values()):
            # A file's time must not become that of steps whose times event files give.
            untimed_s = state.watermark_s or next((row.at for row in rows if row.timed), None)
        for row in rows:
            if state.is_behind(row):
                self.counters["late"] += len(row.values)
                for name in row.values:
                    if name in state.late or len(state.late) < MOST_NAMES:
                        state.late[name] = state.late.get(name, 0) + 1
                continue
            if new := row.values.keys() - self._met:
                self._met |= new
                state.meet(new, self._names)
            at = max(row.at if row.timed else untimed_s or row.at, state.watermark_s or 0.0)
            step = WatchedStep(ScalarStep(row, self._names, state.history), at)
            fires += self.stream.apply(step, again=row.step < state.repeated)
            state.mode_place = MODE_PLACES[row.mode]
            state.history.add(row)
        return self._settle(f"{self._files.source.root.folder}step {rows[0].step}", Counter(), fires, None)
