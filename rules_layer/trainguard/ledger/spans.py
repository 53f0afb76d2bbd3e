"""Stretches of time, and how much of each cell of a grid lies in them."""

from collections.abc import Iterable, Sequence

import numpy as np

from trainguard.formats.profile.snapshots import FloatArray

Span = tuple[float, float]
"""From and to, epoch seconds."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order of time, those that overlap or touch as one, empty ones left out."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def without(spans: Iterable[Span], taken_out: Iterable[Span]) -> list[Span]:
    """Return what is left of spans when others are taken out of them."""
    left = joined(spans)
    for start, end in joined(taken_out):
        left = [part for begin, until in left for part in ((begin, min(until, start)), (max(begin, end), until))]
        left = [(begin, until) for begin, until in left if until > begin]
    return left


def seconds_in(edges: FloatArray, spans: Sequence[Span]) -> FloatArray:
    """Return how many seconds of each cell lie in disjoint, ordered spans: float64[C] of ``edges``, float64[C + 1]."""
    if not spans:
        return np.zeros(max(len(edges) - 1, 0))
    knots = np.array(spans, dtype=np.float64).ravel()
    lengths = np.diff(knots)
    lengths[1::2] = 0.0
    covered: FloatArray = np.diff(np.interp(edges, knots, np.concatenate([[0.0], np.cumsum(lengths)])))
    return covered


def shares_in(edges: FloatArray, spans: Iterable[Span]) -> FloatArray:
    """Return which share, 0 to 1, of each cell lies in spans: float64[C]."""
    lengths = np.maximum(np.diff(edges), 1e-9)
    return np.clip(seconds_in(edges, joined(spans)) / lengths, 0.0, 1.0)
