"""The files of scalars of a job, read piece by piece: each piece is small enough for what it leaves to be stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from trainguard.engine.family import ObjectSource
from trainguard.errors import ObjectMissingError, TelemetryFormatError
from trainguard.families.training.keys import SCALAR_FOLDERS, ScalarKey, match_scalar_key
from trainguard.families.training.scalar_stream import FileState
from trainguard.ports import ListedObject, ProfileObjects
from trainguard.tensors.scalars.rows import Recording

if TYPE_CHECKING:
    from trainguard.tensors.scalars.trainer_files import TrainerFile

PIECE_BYTES = 64 * 1024
"""Of an event file: some thousand scalars."""

PIECE_ROWS = 500
MOST_LISTED = 20_000
"""Objects of one folder that are looked at: a checkpoint has thousands of parts."""


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
    """What was recorded in a piece of a file: ``taken`` as in `FileState` after it.

    ``bad`` counts parts that cannot be used, ``why`` says why the last one cannot; of a file that is read as a whole,
    all of it counts.
    """

    recordings: list[Recording]
    taken: int
    bad: int = 0
    why: str | None = None


@dataclass(slots=True)
class ScalarFiles:
    """Reads the files of one job; the last one that is read as a whole is held."""

    source: ObjectSource
    _whole: "dict[tuple[str, float], TrainerFile]" = field(default_factory=dict)

    def listed(self) -> dict[str, ListedFile]:
        """Return the newest version of each file by its name."""
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
        return found

    def read(self, file: ListedFile, state: FileState) -> Piece | None:
        """Read the next piece of a file; None where there is nothing whole yet.

        Raises
        ------
        TelemetryFormatError
            When nothing behind ``state.taken`` can be read.
        """
        try:
            return self._events(file, state) if file.is_events else self._rows(file, state)
        except ObjectMissingError as fault:
            raise TelemetryFormatError(file.listed.key, "it is gone") from fault

    def _events(self, file: ListedFile, state: FileState) -> Piece | None:
        from trainguard.tensors.scalars.event_file import read_scalars
        from trainguard.tensors.scalars.reading import recordings

        name = file.listed.key
        objects, bucket = self.source.objects, self.source.bucket
        columns = read_scalars(_Pieces(objects, bucket, PIECE_BYTES), name, state.taken)
        if columns is None and file.listed.size - state.taken > PIECE_BYTES:
            columns = read_scalars(_Pieces(objects, bucket), name, state.taken)
        if columns is None:
            return None
        found = list(recordings(columns, file.key.file.folder, file.listed.last_modified))
        return Piece(found, columns.end, columns.bad, columns.why)

    def _rows(self, file: ListedFile, state: FileState) -> Piece | None:
        read = self.whole(file)
        begun = state.taken if state.taken <= len(read.rows) else 0
        taken = read.rows[begun : begun + PIECE_ROWS]
        if not taken and begun == state.taken:
            return None
        found = [Recording(row.step, file.listed.last_modified, row.values, timed=False) for row in taken]
        return Piece(found, begun + len(taken), read.bad, read.why)

    def whole(self, file: ListedFile) -> "TrainerFile":
        """Return all rows of a file that is read as a whole; raises TelemetryFormatError, ObjectMissingError."""
        from trainguard.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_metrics_csv, read_trainer_state

        version = (file.listed.key, file.listed.last_modified)
        if version not in self._whole:
            body = self.source.objects.get(self.source.bucket, file.listed.key, MAX_FILE_BYTES)
            read = read_trainer_state if file.key.file.kind == "trainer_state" else read_metrics_csv
            self._whole = {version: read(file.listed.key, body)}
        return self._whole[version]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The objects of a bucket by their keys, of which a request reads at most so many bytes."""

    objects: ProfileObjects
    bucket: str
    most: int | None = None

    def get(self, name: str, max_bytes: int) -> bytes:
        return self.objects.get(self.bucket, name, max_bytes)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.objects.get_range(self.bucket, name, start, length if self.most is None else min(length, self.most))

    def names(self, prefix: str, start_after: str = "") -> Iterator[str]:
        return (each.key for each in self.objects.list(self.bucket, prefix, start_after))


def _version(listed: ListedObject) -> tuple[float, int]:
    """Order the versions of a log that grows: of those of one minute, as of copies, the largest is the newest."""
    return listed.last_modified // 60.0, listed.size


def lowest_first(files: Iterable[tuple[int, str]]) -> str | None:
    """Return the name of the file whose source is least far, the first in order of names; None of none."""
    return min(files, default=(0, None))[1]
