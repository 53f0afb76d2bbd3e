"""The files of scalars of a job, read in pieces small enough for what they leave to be stored; and what is stored."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from trainguard.core.errors import ObjectMissingError, ProfileSourceError, TelemetryFormatError
from trainguard.core.ports import BucketFiles, ListedObject
from trainguard.engine.family import ObjectSource
from trainguard.engine.training.stream import SCALAR_FOLDERS, ScalarKey, StepStreamState, match_scalar_key
from trainguard.formats.tensors.scalars.names import LOSSES, METRICS, ScalarNames
from trainguard.formats.tensors.scalars.rows import (
    Recording,
    RunValues,
    ScalarHistory,
    ScalarRow,
    ScalarRows,
    recordings,
)
from trainguard.formats.tensors.scalars.segments import SAME, Segments
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.step_words import FoundScalars

if TYPE_CHECKING:
    from trainguard.formats.tensors.scalars.taken_rows import TakenRows


# An evaluation at the end often repeats the last step, and a restart a value or two.
FEWEST_LOST = 3

LOST_SHARE = 0.05

MOST_UNCERTAIN = 8


class Uncertain(msgspec.Struct, array_like=True, frozen=True):
    """Of ``values`` of a scalar ``other`` are of steps that have another value too, and ``lost`` came out of order.

    ``writer`` is the file that has the others; "" where they lie in one.
    """

    name: str
    values: int
    other: int
    lost: int
    writer: str = ""

    @property
    def matters(self) -> bool:
        left_out = self.other + self.lost
        return left_out >= FEWEST_LOST and left_out >= LOST_SHARE * self.values


def uncertain_of(
    segments: Iterable[Segments], late: Mapping[str, int], writers: Iterable[Uncertain], names: ScalarNames
) -> list[Uncertain]:
    """Return the losses and scores that are uncertain, by name; ``late`` counts values of steps that rules had passed.

    ``writers`` are found by `compared`.
    """
    values, other, lost = Counter[str](), Counter[str](), Counter[str](late)
    for of_source in segments:
        for name, known in of_source.newest.items():
            values[name] += known.values
            other[name] += known.other
            lost[name] += known.lost
    meant = names.members(LOSSES, values) | names.members(METRICS, values)
    found = {name: Uncertain(name, values[name], other[name], lost[name]) for name in sorted(meant)}
    for each in writers:
        found[each.name] = each
    return [each for each in found.values() if each.matters]


def compared(run: RunValues, other: RunValues, writer: str) -> list[Uncertain]:
    """Return the scalars that two files record at the same steps with other values."""
    found = []
    for name in sorted(run.keys() & other.keys()):
        (steps, values), (others, their) = run[name], other[name]
        shared, here, there = np.intersect1d(steps, others, assume_unique=True, return_indices=True)
        same = np.isclose(values[here], their[there], rtol=SAME, atol=0.0, equal_nan=True)
        each = Uncertain(name, shared.size, int(np.count_nonzero(~same)), 0, writer)
        if each.matters:
            found.append(each)
    return found[:MOST_UNCERTAIN]


def said(each: Uncertain) -> str:
    of_steps = f"{each.other:,} of {each.values:,} are of steps that have another value too" if each.other else ""
    if each.writer:
        of_steps = f"at {each.other:,} of {each.values:,} steps {each.writer} has other values"
    late = f"{each.lost:,} of {each.values:,} came after later steps" if each.lost else ""
    why = "; ".join(part for part in (of_steps, late) if part)
    curve = "may mix several writers" if each.other else "lacks them"
    return f"{each.name}: {why}: the curve that is judged {curve}."


MODE_PLACES = {Mode.TRAIN: 0, Mode.EVAL: 1, Mode.PREDICT: 2, Mode.GLOBAL: 3}
SHORTENED = "degraded_to_short_history"
MOST_NAMES, MOST_LOSSES = 12, 4

_MOST_NOTES = 8
LONGEST_REASON = 200
# Rows of each set of scalars.
_SHORT = 4


class FileState(msgspec.Struct, array_like=True):
    """How far a file was read.

    ``taken`` counts bytes of an event file, and rows of any other. ``size`` and ``modified_s`` (epoch seconds) are of
    the version that was read last; ``broken`` says that nothing behind ``taken`` can be read. From step ``until`` on it
    is of an older run; None for the newest. ``seen`` counts the scalars of an event file, ``bad`` lines or events,
    ``why`` is of the first of those or of ``bad_cells``, ``counted`` the largest ``taken``, whose faults count once. Of
    an event file, ``newest_s`` is when its last scalar was recorded, epoch seconds, ``furthest`` its highest step, and
    ``apart`` what another file of its folder records at the same steps with other values.
    """

    source: str
    taken: int = 0
    size: int = 0
    modified_s: float = 0.0
    broken: bool = False
    bad: int = 0
    until: int | None = None
    seen: int = 0
    bad_cells: int = 0
    why: str = ""
    counted: int = 0
    newest_s: float = 0.0
    furthest: int = -1
    apart: list[Uncertain] = msgspec.field(default_factory=list)


class ScalarState(StepStreamState, kw_only=True):
    """What is stored of files of scalars.

    ``rows`` are the steps that their sources have not completed, ``held`` those that wait for another source.
    ``mode_place`` is the place of the newest step's mode among those of its number. What fires before step ``repeated``
    has fired before. ``names`` has one name more than people are shown. ``late`` counts values of
    steps that rules had passed, by name. ``run_of`` gives the folder of an event file's run, ``runs_left`` the runs
    that are not judged, and whether one was still written when the newest began.
    """

    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    rows: ScalarRows = msgspec.field(default_factory=ScalarRows)
    held: list[ScalarRow] = msgspec.field(default_factory=list)
    history: ScalarHistory = msgspec.field(default_factory=ScalarHistory)
    mode_place: int = -1
    repeated: int = 0
    names: list[str] = msgspec.field(default_factory=list)
    losses: list[str] = msgspec.field(default_factory=list)
    run_of: dict[str, str] = msgspec.field(default_factory=dict)
    runs_left: dict[str, bool] = msgspec.field(default_factory=dict)
    late: dict[str, int] = msgspec.field(default_factory=dict)
    uncertain: list[Uncertain] = msgspec.field(default_factory=list)

    @property
    def scalars(self) -> FoundScalars:
        return FoundScalars(tuple(self.names[:MOST_NAMES]), tuple(self.losses), len(self.names) > MOST_NAMES)

    @property
    def notes(self) -> Sequence[str]:
        return [
            *(
                _note(name.partition("/")[2], until)
                for name, until in self.other_runs.items()
                if self.run_of.get(name) not in self.runs_left
            ),
            *(_left(run, beside=beside) for run, beside in list(self.runs_left.items())[:_MOST_NOTES]),
            *self._begun_segments(),
            *self._other_counters(),
            *map(said, self.uncertain[:_MOST_NOTES]),
            *self._unread(),
        ]

    def _begun_segments(self) -> list[str]:
        found = [cut for each in self.rows.segments.values() for cut in each.cuts]
        return [
            f"{cut.file.partition('/')[2]} begins again at step {cut.step:,}: what was recorded before from that step "
            "on is of the past, and not judged."
            for cut in found[:_MOST_NOTES]
        ]

    def _other_counters(self) -> list[str]:
        known = self.rows.segments.items()
        slow = [(source.partition("/")[2], name) for source, each in known for name in each.slow]
        laps = [source.partition("/")[2] for source, each in known if each.laps is not None]
        return [
            *(f"{file}: the steps of {name} count otherwise: it counts where it was recorded." for file, name in slow),
            *(f"{file}: steps begin again with each epoch: each follows the one before." for file in laps),
        ][:_MOST_NOTES]

    def _unread(self) -> list[str]:
        """Say which files have parts that could not be used, and why."""
        found = [(name, known) for name, known in self.files.items() if known.why]
        shown = [f"{name.partition('/')[2]}: {known.why}{_further(known)}." for name, known in found[:_MOST_NOTES]]
        left = len(found) - len(shown)
        return [*shown, *([f"{left:,} more files could not be used whole."] if left else [])]

    def meet(self, found: Set[str], names: ScalarNames) -> None:
        new = found - set(self.names)
        losses = sorted(names.members(LOSSES, new) - set(self.losses))
        self.losses += losses[: MOST_LOSSES - len(self.losses)]
        self.names += sorted(new)[: MOST_NAMES + 1 - len(self.names)]

    def shorten(self) -> str | None:
        return SHORTENED if self.history.shorten(_SHORT) else None

    @property
    def segments(self) -> Mapping[str, Segments]:
        """By source, what is known of its steps before it is read."""
        return {source: each.again() for source, each in self.rows.segments.items() if each.has_learned}

    @property
    def other_runs(self) -> Mapping[str, int]:
        return {name: known.until for name, known in self.files.items() if known.until is not None}

    def restart(self, until: int) -> None:
        """Forget what was read, to read the files again; rules have seen the rows before ``until``."""
        self.repeated = 0 if self.step is None else min(until, self.step + 1)
        for known in self.files.values():
            known.taken, known.seen, known.size, known.modified_s = 0, 0, 0, 0.0
        self.rows = self.rows.again()
        self.held, self.history, self.mode_place, self.late = [], ScalarHistory(), -1, {}

    def is_behind(self, row: ScalarRow) -> bool:
        return self.step is not None and (row.step, MODE_PLACES[row.mode]) <= (self.step, self.mode_place)

    def front_of(self, source: str) -> int:
        """Return the furthest step of a source, -1 before its first."""
        newest: dict[Any, int] = self.rows.newest.get(source, {})
        return max([*newest.values(), *(row.step for row in self.rows.open.get(source, []))], default=-1)


def _further(known: FileState) -> str:
    more = known.bad + known.bad_cells - 1
    return "" if known.broken or more < 1 else f", and {more:,} more of its parts could not be used"


def _left(run: str, *, beside: bool) -> str:
    when = "beside" if beside else "before"
    folder = run or "the folder itself"
    return f"{folder} is of another run, {when} the newest, which alone is judged: analyze this folder to judge it."


def _note(name: str, until: int) -> str:
    if until:
        return f"{name} is of an older run, which was resumed: a newer file has its values from step {until:,} on."
    why = "a newer file records the same scalars over the same steps with other values"
    return f"{name} is of an older run, which is not judged: {why}. To judge it, analyze the file alone."


# Of an event file: some thousand scalars.
PIECE_BYTES = 64 * 1024

PIECE_ROWS = 500
_LOG = ".log"
# Objects of one folder: a checkpoint has thousands of parts.
MOST_LISTED = 20_000


@dataclass(frozen=True, slots=True)
class ListedFile:
    """The newest version of a file of scalars, as S3 lists it."""

    key: ScalarKey
    listed: ListedObject

    @property
    def is_events(self) -> bool:
        """Whether it grows by its end: any other is read as a whole."""
        return self.key.file.kind == "events"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file; ``bad`` and ``bad_cells`` count unusable parts, of a whole file all of them.

    ``why`` is of one of them.
    """

    recordings: list[Recording]
    taken: int
    seen: int = 0
    bad: int = 0
    bad_cells: int = 0
    why: str | None = None


@dataclass(slots=True)
class ScalarFiles:
    """Reads the files of one job; the last one that is read as a whole is held.

    Lines of logs are read where there is nothing else: they say again what other files say, often without steps.
    """

    source: ObjectSource
    _only_logs: bool = True
    _whole: "dict[tuple[str, float], TakenRows]" = field(default_factory=dict)

    @property
    def objects(self) -> BucketFiles:
        return BucketFiles(self.source.objects, self.source.bucket, "")

    def listed(self) -> dict[str, ListedFile]:
        found: dict[str, ListedFile] = {}
        for folder in SCALAR_FOLDERS:
            prefix = f"{self.source.root.folder}{folder}/"
            for each in islice(self.source.objects.list(self.source.bucket, prefix, ""), MOST_LISTED):
                key = match_scalar_key(each.key)
                if key is None or key.root != self.source.root:
                    continue
                known = found.get(key.name)
                if known is None or _version(known.listed) <= _version(each):
                    found[key.name] = ListedFile(key, each)
        self._only_logs = all(name.lower().endswith(_LOG) for name in found)
        return found

    def read(self, file: ListedFile, state: FileState) -> Piece | None:
        """Read the next piece of a file, None without one; TelemetryFormatError when nothing more can be read."""
        try:
            return self._events(file, state) if file.is_events else self._rows(file, state)
        except ObjectMissingError as fault:
            raise TelemetryFormatError(file.listed.key, "it is gone") from fault
        except ProfileSourceError as fault:
            raise TelemetryFormatError(file.listed.key, str(fault)) from fault

    def _events(self, file: ListedFile, state: FileState) -> Piece | None:
        from trainguard.formats.tensors.scalars.bulk import read_scalars

        name = file.listed.key
        columns = read_scalars(self.objects, name, state.taken, PIECE_BYTES)
        if columns is None and file.listed.size - state.taken > PIECE_BYTES:
            columns = read_scalars(self.objects, name, state.taken)
        if columns is None:
            return None
        found = list(recordings(columns, file.key.file.folder, file.listed.last_modified, state.seen))
        return Piece(found, columns.end, state.seen + columns.step.size, columns.bad, why=columns.why)

    def _rows(self, file: ListedFile, state: FileState) -> Piece | None:
        read = self.whole(file)
        begun = state.taken if state.taken <= len(read.rows) else 0
        found = read.rows.between(begun, begun + PIECE_ROWS, file.listed.last_modified)
        if not found and begun == state.taken:
            return None
        return Piece(found, begun + len(found), 0, read.bad_lines, read.bad_cells, read.why)

    def whole(self, file: ListedFile) -> "TakenRows":
        """Return all rows of a file that is read as a whole; raises TelemetryFormatError, ObjectMissingError."""
        from trainguard.formats.tensors.scalars.trainer_files import (
            MAX_FILE_BYTES,
            read_history,
            read_trainer_state,
        )

        version = (file.listed.key, file.listed.last_modified)
        if version not in self._whole:
            body = self.source.objects.get(self.source.bucket, file.listed.key, MAX_FILE_BYTES)
            if file.key.file.kind == "trainer_state":
                self._whole = {version: read_trainer_state(file.listed.key, body)}
            else:
                self._whole = {version: read_history(file.listed.key, body, logs=self._only_logs)}
        return self._whole[version]


def _version(listed: ListedObject) -> tuple[float, int]:
    """Order the versions of a growing log: of those of one minute, as of copies, the largest is the newest."""
    return listed.last_modified // 60.0, listed.size


def is_unread(file: ListedFile, known: FileState) -> bool:
    """Whether there is more of a file, as it is listed, than was read and is used."""
    if known.broken or known.until == 0:
        return False
    return (known.size, known.modified_s) != (file.listed.size, file.listed.last_modified)


def lowest_first(files: Iterable[tuple[int, str]]) -> str | None:
    """Return the name of the file whose source is least far, the first in order of names; None of none."""
    return min(files, default=(0, None))[1]
