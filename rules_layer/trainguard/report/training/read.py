"""A run's debug-output read for a report, in as many parts as it takes: each goes on where the one before stopped."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from trainguard.core.errors import ObjectMissingError, TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.engine.family import ObjectSource
from trainguard.engine.training.scalar_files import FileState, ListedFile, ScalarFiles, lowest_first
from trainguard.formats.tensors.debug.ledger import RunHistory, StepLedger
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.rows import ScalarRow, ScalarRows, in_order
from trainguard.formats.tensors.scalars.segments import Segments
from trainguard.formats.tensors.scalars.step import ScalarStep
from trainguard.report.training.digest import FORMAT, Digester, TrainingDigest

MOST_UNREAD = 1_000


class RunPart(msgspec.Struct, kw_only=True):
    """How far a run was read; all of it is stored between two calls, ``scalars`` as an encoded `ScalarPart`."""

    digest: TrainingDigest = msgspec.field(default_factory=TrainingDigest)
    ledger: StepLedger = msgspec.field(default_factory=StepLedger)
    history: RunHistory = msgspec.field(default_factory=RunHistory)
    done: bool = False
    scalars: bytes = b""


def read_on(
    files: Files,
    name: str,
    part: RunPart,
    *,
    wanted: Collection[str] = (),
    confusion: Mapping[str, str] | None = None,
    has_time: Callable[[], bool] = lambda: True,
    ended: bool | None = None,
) -> RunPart:
    """Fold the complete steps after those of a part into its digest, at least one of them.

    ``wanted`` tensors are shown first, ``confusion`` names labels and predictions as Confusion does, ``name`` is for
    errors. ``has_time`` is asked after each step. ``ended`` None looks for the mark of the end. Raises RunMissingError
    when no collections file can be read.
    """
    from trainguard.formats.tensors.debug.run import complete_steps, find_run  # noqa: PLC0415 -- it imports protobuf

    run = find_run(files, name)
    run.history = part.history
    digester = Digester(part.digest, wanted=wanted, confusion=confusion)
    while part.digest.unread < MOST_UNREAD:
        try:
            for step in complete_steps(files, run, part.ledger, ended=ended):
                digester.fold(step)
                if not has_time():
                    run.remember(step)
                    digester.done()
                    return part
        except (TelemetryFormatError, ObjectMissingError) as fault:
            part.digest.note_unread(fault)
        else:
            break
    digester.done()
    part.done = True
    return part


def encode_part(part: RunPart) -> bytes:
    return msgspec.json.encode(part)


def decode_part(body: bytes, name: str) -> RunPart:
    """Read a part back; raises TelemetryFormatError, which names it, when it is none or of another version."""
    try:
        part = msgspec.json.decode(body, type=RunPart)
    except (msgspec.MsgspecError, RecursionError) as fault:
        raise TelemetryFormatError(name, str(fault)) from fault
    if part.digest.format != FORMAT:
        raise TelemetryFormatError(name, f"format {part.digest.format}, expected {FORMAT}")
    return part


MOST_FILES = 256


class ScalarPart(msgspec.Struct, kw_only=True):
    """How far files of scalars were read; all of it is stored between two calls.

    ``rows`` are steps that their sources have not completed, ``held`` wait for another source, ``finished`` are files
    read to their end.
    """

    digest: TrainingDigest = msgspec.field(default_factory=TrainingDigest)
    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    finished: set[str] = msgspec.field(default_factory=set)
    rows: ScalarRows = msgspec.field(default_factory=ScalarRows)
    held: list[ScalarRow] = msgspec.field(default_factory=list)
    done: bool = False

    def front_of(self, source: str) -> int:
        """Return the furthest step of a source, -1 before its first."""
        newest: dict[Any, int] = self.rows.newest.get(source, {})
        return max([*newest.values(), *(row.step for row in self.rows.open.get(source, []))], default=-1)

    @property
    def unread(self) -> list[tuple[int, str]]:
        """The files that go on, each behind the furthest step of its source."""
        return [(self.front_of(known.source), name) for name, known in self.files.items() if name not in self.finished]


def read_scalars_on(
    source: ObjectSource,
    part: ScalarPart,
    names: ScalarNames,
    *,
    until: Mapping[str, int] | None = None,
    segments: Mapping[str, Segments] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> ScalarPart:
    """Fold the steps after those of a part into its digest, from one piece of a file at least.

    From a file's step in ``until`` on, rows are of another run and left out, and so are those of the past by a source's
    ``segments``. ``has_time`` is asked after each piece.
    """
    for cut_source, known in (segments or {}).items():
        part.rows.segments.setdefault(cut_source, known.again())
    reader = ScalarFiles(source)
    listed = reader.listed()
    for found, file in sorted(listed.items())[:MOST_FILES]:
        part.files.setdefault(found, FileState(file.key.source))
    part.finished |= part.files.keys() - listed.keys()
    digester = Digester(part.digest)
    while (name := lowest_first(part.unread)) is not None:
        _read(reader, listed[name], part, names, (until or {}).get(name, math.inf))
        _fold(part, digester, names)
        if not has_time() and part.unread:
            return part
    _fold(part, digester, names)
    digester.done()
    part.done = True
    return part


def _read(reader: ScalarFiles, file: ListedFile, part: ScalarPart, names: ScalarNames, until: float) -> None:
    """Take in the next piece of a file; one that cannot be read further is finished, and counted."""
    name = file.key.name
    known = part.files[name]
    try:
        piece = reader.read(file, known)
    except TelemetryFormatError as fault:
        part.digest.note_unread(fault)
        piece = None
    if piece is None:
        part.finished.add(name)
        if all(other in part.finished for other, each in part.files.items() if each.source == known.source):
            part.held += part.rows.finish(known.source)
        return
    for each in piece.recordings:
        if each.step < until:
            part.held += part.rows.add(known.source, each, names, folder=file.key.file.folder, file=name)
    known.taken, known.seen = piece.taken, piece.seen


def _fold(part: ScalarPart, digester: Digester, names: ScalarNames) -> None:
    """Fold the steps that every source has passed, in their order."""
    horizon = min(part.unread, default=None)
    ready = [row for row in part.held if horizon is None or row.step < horizon[0]]
    if ready:
        part.held = [row for row in part.held if horizon is not None and row.step >= horizon[0]]
        for row in in_order(ready):
            digester.fold(ScalarStep(row, names))


def encode_scalars(part: ScalarPart) -> bytes:
    return msgspec.msgpack.encode(part)


def decode_scalars(body: bytes, name: str) -> ScalarPart:
    """Read a part back, an empty one of no bytes; raises TelemetryFormatError, which names it, when it is none."""
    if not body:
        return ScalarPart()
    try:
        return msgspec.msgpack.decode(body, type=ScalarPart)
    except (msgspec.MsgspecError, RecursionError) as fault:
        raise TelemetryFormatError(name, str(fault)) from fault
