"""Many events of TensorBoard at once: those that differ in time, step and value alone.

A training loop writes the same few tags again and again. Payloads of one length are laid as rows of a table. Where
time, step and value lie is read from one of them; the rest of a row is compared with it as a whole. Rows that are equal
but for these bytes have the same structure, so their numbers are taken from the same columns. Whatever is different is
left to `summaries`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.frames import Walk
from trainguard.tensors.scalars.layout import Layout, Place, find_layout
from trainguard.tensors.scalars.summaries import scalars_of

LONGEST_PAYLOAD = 512
FEWEST_ROWS = 8
_MOST_LAYOUTS = 16
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Rows:
    """Scalars of one tag: which frames they are in (int64[R]), and steps, times and values of these."""

    tag: str
    frames: NDArray[np.int64]
    steps: NDArray[np.int64]
    at: NDArray[np.float64]
    values: NDArray[np.float64]


def read_bulk(file: str, content: bytes, walk: Walk) -> tuple[list[Rows], NDArray[np.int64]]:
    """Return the scalars that can be read in bulk, and the numbers of the frames that are left."""
    data = np.frombuffer(content, np.uint8)
    done = np.zeros(walk.lengths.size, bool)
    found: list[Rows] = []
    for length in np.unique(walk.lengths[walk.lengths <= LONGEST_PAYLOAD]).tolist():
        frames = np.flatnonzero(walk.lengths == length)
        if frames.size < FEWEST_ROWS:
            continue
        table = np.lib.stride_tricks.sliding_window_view(data, length)[walk.starts[frames]]
        for rows in _of_length(file, table):
            done[frames[rows.frames]] = True
            found.append(Rows(rows.tag, frames[rows.frames], rows.steps, rows.at, rows.values))
    return found, np.flatnonzero(~done)


def _of_length(file: str, table: Bytes) -> Iterator[Rows]:
    """Iterate over the tags in payloads of one length; ``Rows.frames`` are rows of the table."""
    left = np.arange(len(table))
    rest = table
    for _ in range(_MOST_LAYOUTS):
        if left.size < FEWEST_ROWS:
            return
        # The first row is often one of its own: a step 0 is not written.
        middle = left.size // 2
        layout = find_layout(file, rest[middle].tobytes())
        taken = np.zeros(left.size, bool)
        taken[middle] = True
        for group in () if layout is None else _alike(rest, layout):
            first = rest[group[0]].tobytes()
            tag = _tag(file, first) if find_layout(file, first) == layout else None
            if tag is not None and layout is not None:
                yield _numbers(tag, left[group], table, layout)
                taken[group] = True
        left = left[~taken]
        rest = table[left]


def _alike(table: Bytes, layout: Layout) -> Iterator[NDArray[np.int64]]:
    """Iterate over groups of several rows that are equal but for the bytes of time, step and value."""
    masked = np.zeros((len(table), -(-table.shape[1] // 8) * 8), np.uint8)
    masked[:, : table.shape[1]] = table
    masked[:, slice(*layout.time)] = 0
    masked[:, slice(*layout.value)] = 0
    # The highest bit of a step's byte says whether another one follows: it belongs to the structure.
    masked[:, slice(*layout.step)] &= 0x80
    words = masked.view(np.uint64)
    hashes = hashes_of(words)
    order = np.argsort(hashes, kind="stable")
    borders = np.concatenate([[0], np.flatnonzero(np.diff(hashes[order])) + 1, [len(order)]])
    for border in np.flatnonzero(np.diff(borders) >= FEWEST_ROWS).tolist():
        group = order[borders[border] : borders[border + 1]]
        same = words[group] == words[group[0]]
        yield group if same.all() else group[same.all(axis=1)]


def hashes_of(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each row, uint64[R]: rows that are equal have the same."""
    factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], np.uint64) | np.uint64(1)
    hashes: NDArray[np.uint64] = np.einsum("rw,w->r", words, factors)
    return hashes


def _numbers(tag: str, rows: NDArray[np.int64], table: Bytes, layout: Layout) -> Rows:
    steps = np.zeros(rows.size, np.uint64)
    for place, column in enumerate(range(*layout.step)):
        steps |= (table[rows, column] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    kind = "<f4" if layout.value[1] - layout.value[0] == 4 else "<f8"
    return Rows(
        tag,
        rows,
        steps.astype(np.int64),
        _columns(table, rows, layout.time).view("<f8")[:, 0],
        _columns(table, rows, layout.value).view(kind)[:, 0].astype(np.float64),
    )


def _columns(table: Bytes, rows: NDArray[np.int64], place: Place) -> Bytes:
    return np.ascontiguousarray(table[:, slice(*place)][rows])


def _tag(file: str, payload: bytes) -> str | None:
    """Return the tag of the one scalar of an event; None where it has none, or several."""
    try:
        scalars = scalars_of(file, payload)
    except TelemetryFormatError:
        return None
    return scalars[0].tag if len(scalars) == 1 else None
