"""Losses and scores as the conditions of NotLearning see them."""

from collections.abc import Mapping, Sequence

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.tensors.step_view import Mode
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.training.learned_nothing import NotLearningParameters
from trainguard.rules.training.not_learning import NotLearning
from trainguard.rules.training.run_series import RunSeries
from trainguard.rules.training.series import Series
from trainguard.rules.training.step_rule import Check

LIMITS = NotLearningParameters(min_rows=5, min_fall=0.05, min_gain=0.05)
Curves = Mapping[str, Sequence[float]]


def series_of(values: Sequence[float]) -> Series:
    """Return values at steps 0, 1, 2 and on."""
    series = Series()
    for step, value in enumerate(values):
        series.add(step, value)
    return series


def run_of(
    train: Curves | None = None,
    held: Curves | None = None,
    *,
    score: Curves | None = None,
    held_score: Curves | None = None,
) -> RunSeries:
    """Return losses and scores of training and of validation, each by name."""
    losses = {Mode.TRAIN: train or {}, Mode.EVAL: held or {}}
    scores = {Mode.TRAIN: score or {}, Mode.EVAL: held_score or {}}
    return RunSeries(
        {mode: {name: series_of(values) for name, values in of.items()} for mode, of in losses.items()},
        {mode: {name: series_of(values) for name, values in of.items()} for mode, of in scores.items()},
    )


def reason_of(found: Check) -> str:
    """Return what is said about it, without its step and the full stop."""
    sheet = FactSheet(Status.FIRED, found.kind or "", (Fact(name="step", value=1), *found.facts))
    return NotLearning().text(sheet).reason.removeprefix("Step 1: ").removesuffix(".")
