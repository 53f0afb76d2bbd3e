"""TensorBoard's event files: their scalars, from any frame on, as columns.

A file may grow while it is read: the next call goes on at ``end``. Importing this module imports protobuf.
"""

from dataclasses import dataclass, field

import numpy as np

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.formats.tensors.frames import FOOTER, FRAMING, Walk, walk
from trainguard.formats.tensors.scalars.bulk import Rows, Scalar, hold_no_scalar, read_bulk, scalars_of
from trainguard.formats.tensors.scalars.rows import ScalarColumns

CHUNK_BYTES = 4 * 1024 * 1024
"""A larger event is passed over: it is a graph or an image."""


def read_scalars(files: Files, name: str, offset: int = 0, most: int = CHUNK_BYTES) -> ScalarColumns | None:
    """Read the next scalars of an event file from ``offset`` on, in ``most`` bytes; None without a whole event.

    Raises TelemetryFormatError when no event begins there: the file is none of TensorBoard, or is damaged.
    """
    content = files.get_range(name, offset, most)
    walked = walk(name, content)
    if walked.end:
        return decode_scalars(name, content, walked, offset)
    if walked.cut <= CHUNK_BYTES or not _is_whole(files, name, offset, walked.cut):
        return None
    return _Collected(name).columns(offset + walked.cut)


def decode_scalars(name: str, content: bytes, walked: Walk, offset: int = 0) -> ScalarColumns:
    """Return the scalars in the whole frames of a part of a file that begins at ``offset``."""
    collected = _Collected(name, bad=walked.wrong)
    if walked.wrong:
        collected.why = "an event does not agree with its checksum"
    rows, left = read_bulk(name, content, walked)
    for each in rows:
        collected.add_rows(each)
    for frame in left[~hold_no_scalar(content, walked, left)].tolist():
        start = int(walked.starts[frame])
        collected.add_event(frame, content[start : start + int(walked.lengths[frame])])
    return collected.columns(offset + walked.end)


def _is_whole(files: Files, name: str, offset: int, length: int) -> bool:
    return length > FRAMING and len(files.get_range(name, offset + length - FOOTER, FOOTER)) == FOOTER


@dataclass(slots=True)
class _Collected:
    name: str
    bad: int = 0
    why: str | None = None
    tags: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, Rows]] = field(default_factory=list)
    singles: list[tuple[int, int, Scalar]] = field(default_factory=list)

    def add_rows(self, rows: Rows) -> None:
        self.rows.append((self._tag(rows.tag), rows))

    def add_event(self, frame: int, payload: bytes) -> None:
        try:
            scalars = scalars_of(self.name, payload)
        except TelemetryFormatError as fault:
            self.bad += 1
            self.why = fault.reason
            return
        self.singles.extend((frame, self._tag(each.tag), each) for each in scalars)

    def columns(self, end: int) -> ScalarColumns:
        singles = [scalar for _, _, scalar in self.singles]
        frames = np.concatenate(
            [*(rows.frames for _, rows in self.rows), np.array([frame for frame, _, _ in self.singles], np.int64)]
        )
        order = np.argsort(frames, kind="stable")
        tags = [np.full(rows.frames.size, tag, np.int64) for tag, rows in self.rows]
        steps = np.array([each.step for each in singles], np.int64)
        at = np.array([each.at for each in singles], np.float64)
        values = np.array([each.value for each in singles], np.float64)
        return ScalarColumns(
            tuple(self.tags),
            np.concatenate([*tags, np.array([tag for _, tag, _ in self.singles], np.int64)])[order],
            np.concatenate([*(rows.steps for _, rows in self.rows), steps])[order],
            np.concatenate([*(rows.at for _, rows in self.rows), at])[order],
            np.concatenate([*(rows.values for _, rows in self.rows), values])[order],
            end,
            self.bad,
            self.why,
        )

    def _tag(self, tag: str) -> int:
        return self.tags.setdefault(tag, len(self.tags))
