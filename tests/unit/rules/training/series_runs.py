"""Series and runs of series, straight from numbers."""

from collections.abc import Mapping, Sequence

from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.training.run_series import RunSeries
from trainguard.rules.training.series import Series


def series_of(values: Sequence[float]) -> Series:
    """Return a series of values at steps 10, 13, 16 and so on, saved at 1,000 s and as many."""
    series = Series()
    for place, value in enumerate(values):
        series.add(10 + 3 * place, value, 1_010.5 + 3.0 * place)
    return series


def run_series(
    losses: Mapping[str, Sequence[float]], scores: Mapping[str, Sequence[float]] | None = None, mode: Mode = Mode.TRAIN
) -> RunSeries:
    """Return losses and scores of one mode."""
    return RunSeries(
        losses={mode: {name: series_of(values) for name, values in losses.items()}},
        scores={mode: {name: series_of(values) for name, values in (scores or {}).items()}},
    )
