"""Histograms of durations, in the unit that suits them."""

from collections.abc import Sequence

from markupsafe import Markup

from trainguard.report.html.numbers import seconds
from trainguard.report.html.plots.bins import join_bins
from trainguard.report.html.plots.charts import Line, histogram
from trainguard.rules.details import Durations

Marked = tuple[float | None, str, str]
"""A value in seconds, its label, and the class of its line."""


def duration_chart(durations: Durations, marks: Sequence[Marked], *, said: str, up: str) -> Markup:
    """Return the chart of a histogram in microseconds; raises ValueError when it is empty."""
    unit, unit_us = _unit(durations.upper_us[-1] if durations.upper_us else 0.0)
    bins = join_bins(
        [each / unit_us for each in durations.lower_us],
        [each / unit_us for each in durations.upper_us],
        durations.counts,
    )
    lines = [
        Line(value * 1e6 / unit_us, f"{label} {seconds(value)}", kind)
        for value, label, kind in marks
        if value is not None
    ]
    return histogram(bins, said=said, across=unit, up=up, lines=lines)


def _unit(longest_us: float) -> tuple[str, float]:
    if longest_us < 1e3:
        return "\N{MICRO SIGN}s", 1.0
    return ("ms", 1e3) if longest_us < 1e6 else ("s", 1e6)
