"""Where a rule that checks after every value drops its state within a window."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trainguard.debugger_replay.system_stream import SeriesSamples


def pieces_between_resets(
    samples: Sequence[SeriesSamples], sizes: Mapping[tuple[str, str], int], limit: int
) -> Iterator[list[SeriesSamples]]:
    """Cut a window's samples after each value that takes its series beyond ``limit`` values.

    Parameters
    ----------
    samples : sequence of SeriesSamples
        One dimension's series.
    sizes : mapping of (node, device) to int
        How many values each has before the window.
    limit : int
        State is dropped, for all series, when one has more values than this.

    Yields
    ------
    list of SeriesSamples
        What comes before the first drop, between two, and after the last; almost always one piece, which is all.
    """
    known = dict(sizes)
    rest = list(samples)
    while True:
        overflowing = [
            int(part.rows[limit - known.get((part.node, part.name), 0)])
            for part in rest
            if known.get((part.node, part.name), 0) + len(part.rows) > limit
        ]
        if not overflowing:
            yield rest
            return
        reset = min(overflowing)
        yield _part(rest, 0, reset + 1)
        rest = _part(rest, reset + 1, None)
        known = {}


def _part(samples: Sequence[SeriesSamples], start: int, stop: int | None) -> list[SeriesSamples]:
    """Keep the samples of rows ``start`` to ``stop`` (exclusive), without series that have none."""
    kept = []
    for part in samples:
        low, high = np.searchsorted(part.rows, (start, part.rows[-1] + 1 if stop is None else stop)).tolist()
        if high > low:
            kept.append(SeriesSamples(part.node, part.name, part.values[low:high], part.rows[low:high]))
    return sorted(kept, key=lambda part: int(part.rows[0]))
