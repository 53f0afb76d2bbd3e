"""Plot 13 of the dashboard: how long the stretches of an annotation last; the reader selects which."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.kernels.document import AnnotationEntry, RankProfile
from trainguard.kernels.entries import Durations, Histogram
from trainguard.kernels.words import counted
from trainguard.report.html.blocks import Cell, Column, Figure, Table
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count
from trainguard.report.html.plots.bins import Bins
from trainguard.report.html.plots.charts import Line, histogram

MOST_SHOWN = 24
BINS = 40
LONGEST = 100


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of all ranks: its name, and its histograms on the host and, if there is one, on the GPU."""

    name: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those with the most time; ``table`` has the numbers of each."""

    shown: Sequence[Annotation]
    table: Table


def annotations_of(ranks: Sequence[RankProfile]) -> Annotations | None:
    """Return the annotations of all ranks; None where no trace has any."""
    found: dict[str, list[AnnotationEntry]] = {}
    for rank in ranks:
        for entry in rank.annotations:
            found.setdefault(entry.name, []).append(entry)
    if not found:
        return None
    order = sorted(found, key=lambda name: -sum(each.total_ns for each in found[name]))
    kept = order[:MOST_SHOWN]
    left = len(order) - len(kept)
    left += sum(rank.annotations_left_out for rank in ranks)
    note = f"{left:,} with less time are not shown." if left else None
    columns = [Column("Annotation"), *(Column(title, "number") for title in ("Times", "Total", "Min", "Median", "Max"))]
    rows = [_row(name, found[name]) for name in kept]
    return Annotations([_annotation(name, found[name]) for name in kept], Table("On the host", columns, rows, (), note))


def joined(histograms: Sequence[Histogram]) -> Histogram:
    """Return histograms as one: what a bin holds counts at its middle."""
    if len(histograms) == 1:
        return histograms[0]
    low = min(each.edges_ns[0] for each in histograms)
    high = max(*(each.edges_ns[-1] for each in histograms), low + 1)
    bins = min(BINS, high - low)
    counts = [0] * bins
    for each in histograms:
        for place, held in enumerate(each.counts):
            middle = (each.edges_ns[place] + each.edges_ns[place + 1]) // 2
            counts[min((middle - low) * bins // (high - low), bins - 1)] += held
    return Histogram(edges_ns=[low + (high - low) * place // bins for place in range(bins + 1)], counts=counts)


def _annotation(name: str, entries: Sequence[AnnotationEntry]) -> Annotation:
    sides = (("on the host", [each.host for each in entries]), ("on the GPU", [each.gpu for each in entries]))
    known = [(where, [each for each in found if each is not None]) for where, found in sides]
    return Annotation(shown_name(name, LONGEST), [_figure(where, found) for where, found in known if found])


def _figure(where: str, found: Sequence[Durations]) -> Figure:
    whole = joined([each.histogram for each in found])
    bins = Bins([edge / 1e6 for edge in whole.edges_ns], whole.counts)
    times = sum(whole.counts)
    said = f"{counted(times, 'time')}, {nanos(whole.edges_ns[0])} to {nanos(whole.edges_ns[-1])}"
    lines = [Line(found[0].median_ns / 1e6, f"p50 {nanos(found[0].median_ns)}")] if len(found) == 1 else []
    return Figure(f"Durations {where}", histogram(bins, said=said, across="milliseconds", up="times", lines=lines))


def _row(name: str, entries: Sequence[AnnotationEntry]) -> list[Cell]:
    times = sum(each.count for each in entries)
    return [
        shown_name(name, LONGEST),
        count(times),
        nanos(sum(each.total_ns for each in entries)),
        nanos(min(each.min_ns for each in entries)),
        nanos(entries[0].median_ns) if len(entries) == 1 else NOTHING,
        nanos(max(each.max_ns for each in entries)),
    ]
