"""TensorBoard's event files: their scalars, from any frame on, as columns.

A file may grow while it is read: the next call goes on at ``end``. Importing this module imports protobuf.
"""

from typing import Any

import numpy as np

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.ports import Files
from trainguard.formats.tensors.frames import FOOTER, Walk, walk
from trainguard.formats.tensors.scalars.bulk import hold_no_scalar, read_bulk, scalars_of
from trainguard.formats.tensors.scalars.rows import ScalarColumns

# A larger event is passed over: it is a graph or an image.
CHUNK_BYTES = 4 * 1024 * 1024


def read_scalars(files: Files, name: str, offset: int = 0, most: int = CHUNK_BYTES) -> ScalarColumns | None:
    """Read the next scalars of an event file from ``offset`` on, in ``most`` bytes; None without a whole event.

    Raises TelemetryFormatError when no event begins there: the file is none of TensorBoard, or is damaged.
    """
    content = files.get_range(name, offset, most)
    walked = walk(name, content)
    if walked.end:
        return decode_scalars(name, content, walked, offset)
    end = offset + walked.cut
    if walked.cut <= CHUNK_BYTES or len(files.get_range(name, end - FOOTER, FOOTER)) < FOOTER:
        return None
    return decode_scalars(name, b"", walk(name, b""), end)


def decode_scalars(name: str, content: bytes, walked: Walk, offset: int = 0) -> ScalarColumns:
    """Return the scalars in the whole frames of a part of a file that begins at ``offset``."""
    bad, why = walked.wrong, "an event does not agree with its checksum" if walked.wrong else None
    rows, left = read_bulk(name, content, walked)
    tags: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = [
        (each.frames, np.full(each.frames.size, tags.setdefault(each.tag, len(tags))), each.steps, each.at, each.values)
        for each in rows
    ]
    singles: list[tuple[int, int, int, float, float]] = []
    for frame in left[~hold_no_scalar(content, walked, left)].tolist():
        start = int(walked.starts[frame])
        try:
            found = scalars_of(name, content[start : start + int(walked.lengths[frame])])
        except TelemetryFormatError as fault:
            bad, why = bad + 1, fault.reason
            continue
        singles += [(frame, tags.setdefault(tag, len(tags)), step, at, value) for tag, step, at, value in found]
    columns = zip(*singles, strict=True) if singles else ((),) * 5
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64)
    parts.append(tuple(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
    frames, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(frames, kind="stable")
    tag, step, at, value = (column[order] for column in others)
    return ScalarColumns(tuple(tags), tag, step, at, value, offset + walked.end, bad, why)
