"""The sections on training, and on an XGBoost model: what their templates need beside the document."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from trainguard.core.units import listed
from trainguard.render.blocks import Block, Cell, Column, Figure, Figures, Key, Note, Table, heat
from trainguard.render.numbers import NOTHING, count, number, shown_name
from trainguard.render.plots.scale import PERCENT, between, up_from_zero
from trainguard.render.plots.strips import HEIGHT, bar, head
from trainguard.render.plots.svg import at, element, title
from trainguard.report.html.episodes import VIRIDIS, palette, png_url
from trainguard.report.html.page import read_asset, render_page
from trainguard.report.html.training.charts import Curve, bars, figure, series_blocks
from trainguard.report.training.digest import TYPES
from trainguard.report.training.document import TrainingReport
from trainguard.report.training.heat_map import HeatMap
from trainguard.report.training.layers import L2
from trainguard.report.training.predictions import BINARY, KNOWN, REGRESSION, ConfusionMatrix
from trainguard.report.training.xgboost_files import NO_FEATURES, NO_METRICS, why_no_comparison, why_no_scores

SHADES = 60
MOST_PIXELS = 960
UNDEFINED = SHADES
_CLEAR = SHADES + 1
_UNDEFINED_COLOUR = (200, 30, 30)
# Values that differ by more are shown by their magnitude.
_WIDEST_RATIO = 1e3


def map_blocks(held: HeatMap, caption: str, *, shares: bool = False) -> list[Block]:
    """Return a map as a table; nothing of a map without rows, in percent where values are ``shares``, 0 to 1."""
    if not held.rows or not held.steps:
        return []
    ramp = _Ramp(held, shares=shares)
    axis = between(float(held.steps[0]), _end_of(held.steps))
    columns = [
        Column("Layer"),
        Column("Over steps", "plot", head(axis)),
        Column("Least", "number"),
        Column("Most", "number"),
        Column("Last", "number"),
    ]
    bad: dict[int, list[int]] = {}
    for row, column in held.undefined:
        bad.setdefault(row, []).append(column)
    rows = [
        _row(name, values, bad.get(place, []), held, ramp)
        for place, (name, values) in enumerate(zip(held.rows, held.values, strict=True))
    ]
    keys = []
    if ramp.has_values:
        keys = [Key("box ramp-low", ramp.shown(ramp.low)), Key("box ramp-high", ramp.shown(ramp.high))]
    if held.undefined:
        keys.append(Key("box ramp-bad", "NaN or infinite"))
    blocks: list[Block] = [Table(caption, columns, rows, keys, ramp.note)]
    if held.width > 1:
        blocks.append(Note(f"A colour stands for up to {held.width:,} saved steps."))
    return blocks


class _Ramp:
    def __init__(self, held: HeatMap, *, shares: bool) -> None:
        values = [value for row in held.values for value in row if value is not None]
        positive = [value for value in values if value > 0.0]
        self.has_values = bool(values)
        self._shares = shares
        self._by_magnitude = (
            not shares and len(positive) > 0 and min(values) >= 0.0 and max(positive) > min(positive) * _WIDEST_RATIO
        )
        self.low, self.high = (0.0, 1.0) if shares else (min(values, default=0.0), max(values, default=1.0))
        self._least = min(positive, default=1.0)

    @property
    def note(self) -> str | None:
        """Return how colours are spread; None where that is evenly."""
        return "Colours go by magnitude: each step of colour is the same factor." if self._by_magnitude else None

    def shade(self, value: float) -> int:
        if self._by_magnitude:
            if value <= 0.0:
                return 0
            share = math.log(value / self._least) / math.log(self.high / self._least)
        else:
            span = self.high - self.low
            share = (value - self.low) / span if span > 0.0 else 0.5
        return round(min(max(share, 0.0), 1.0) * (SHADES - 1))

    def shown(self, value: float | None) -> str:
        if value is None:
            return NOTHING
        if self._shares:
            return f"{100.0 * value:.1f} %"
        return f"{value:.3g}"


def _row(
    name: str, values: Sequence[float | None], bad: Sequence[int], held: HeatMap, ramp: _Ramp
) -> tuple[str | Markup, ...]:
    found = [value for value in values if value is not None]
    least, most = min(found, default=None), max(found, default=None)
    alt = f"{shown_name(name)}: {ramp.shown(least)} to {ramp.shown(most)}"
    if bad:
        alt += f", NaN or infinite from step {held.steps[min(bad)]:,}"
    newest = "NaN or infinite" if bad and max(bad) == len(held.steps) - 1 else ramp.shown(held.last_of(name))
    return shown_name(name), _strip(values, bad, held.steps, ramp, alt), ramp.shown(least), ramp.shown(most), newest


def _strip(values: Sequence[float | None], bad: Sequence[int], steps: Sequence[int], ramp: _Ramp, alt: str) -> Markup:
    shades = [_CLEAR if value is None else ramp.shade(value) for value in values]
    for column in bad:
        shades[column] = UNDEFINED
    image = element(
        "image",
        href=png_url(_over_steps(shades, steps), [*palette(VIRIDIS[::2], SHADES), _UNDEFINED_COLOUR]),
        x=0,
        y=4,
        width=at(100.0),
        height=HEIGHT - 8,
        preserveAspectRatio="none",
        class_="cells",
    )
    return element("svg", title(alt), image, class_="strip layer-map", width="100%", height=HEIGHT, role="img")


def _over_steps(shades: Sequence[int], steps: Sequence[int]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    """Return pixels on an even axis of steps: a column lasts until the next one begins."""
    pixels = np.linspace(steps[0], _end_of(steps), min(8 * len(steps), MOST_PIXELS), endpoint=False)
    places = np.searchsorted(np.asarray(steps), pixels, side="right") - 1
    return np.asarray(shades, np.uint8)[places].reshape(1, -1)


def _end_of(steps: Sequence[int]) -> float:
    """Return where the last column ends: it is as wide as the others on average."""
    return steps[-1] + max((steps[-1] - steps[0]) / max(len(steps) - 1, 1), 1.0)


FEATURES_SHOWN = 30
CLASSES_SHOWN = 20
LINES_SHOWN = 8


def training_context(training: TrainingReport | None, *, with_loss: bool = False) -> dict[str, Any]:
    """Return what templates of sections on training are given; ``with_loss`` is for the page on a model alone."""
    if training is None:
        return {"trained": None, "with_loss": with_loss}
    modes = [f"{amount:,} of mode {mode}" for mode, amount in training.modes.items() if mode != "GLOBAL"]
    return {
        "trained": training,
        "with_loss": with_loss,
        "loss_first": False,
        "modes_listed": listed(modes),
        "objective": None if training.model is None else training.model.objective,
        "regression": REGRESSION,
        "binary": BINARY,
        "known_objectives": KNOWN,
        "importance_types": TYPES,
        "no_features": NO_FEATURES,
        "no_metrics": NO_METRICS,
        "accuracy_figures": accuracy_figures,
        "bar": bar,
        "confusion_cell": _confusion_cell,
        "error_figures": error_figures,
        "largest_classes": largest_classes,
        "largest_features": largest_features,
        "maps_of": maps_of,
        "residual_figures": residual_figures,
        "roc_figures": roc_figures,
        "series_blocks": series_blocks,
        "strip_column": lambda title, scale, unit="": Column(title, "plot", head(scale, unit)),
        "up_from_zero": up_from_zero,
        "why_no_comparison": why_no_comparison,
        "why_no_scores": why_no_scores,
    }


def render_xgboost(training: TrainingReport, job: str) -> str:
    """Return the page as one file; the texts of ``training`` may hold anything."""
    return render_page(
        "xgboost_report.html.j2",
        styles=read_asset("training.css"),
        job=job,
        **training_context(training, with_loss=True),
    )


def maps_of(training: TrainingReport, what: str) -> list[Block]:
    layers = training.layers
    if what == "gradients":
        measure = "L2 norm" if layers.gradients.measure == L2 else "Mean absolute value"
        return map_blocks(layers.gradients, f"{measure} of each gradient")
    if what == "updates":
        return map_blocks(layers.updates, "Change of each weight since its saved step before, in relation to its norm")
    return [
        *map_blocks(layers.activation_zeros, "Share of zeros of each activation", shares=True),
        *map_blocks(layers.activation_saturated, "Share of saturated inputs of tanh and sigmoid", shares=True),
        *map_blocks(layers.activation_mean, "Mean of each activation"),
    ]


def largest_classes(matrix: ConfusionMatrix) -> list[int]:
    samples = [sum(row) for row in matrix.counts]
    return sorted(sorted(range(len(samples)), key=lambda place: -samples[place])[:CLASSES_SHOWN])


def _confusion_cell(part: int, whole: int, right: bool) -> Cell:
    if right:
        return Markup("<b>{}</b>").format(count(part))
    return heat(min(1 + int(4.0 * part / whole), 4) if part else 0, count(part))


def largest_features(features: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the features with their shares, in their order; of very many those that matter most."""
    least = sorted(features.values(), reverse=True)[:FEATURES_SHOWN][-1]
    return [(name, share) for name, share in features.items() if share >= least][:FEATURES_SHOWN]


def accuracy_figures(training: TrainingReport) -> list[Block]:
    held = training.predictions.accuracy
    return _rows_over_steps(held, held.rows, "Share of each class that is predicted as it", percent=True)


def error_figures(training: TrainingReport) -> list[Block]:
    edges = [number(edge) for edge in training.predictions.error_edges]
    names = [f"{low} to {high}" for low, high in pairwise(edges)]
    return _rows_over_steps(
        training.predictions.errors, names, "Mean absolute error of labels in each bin", percent=False
    )


def _rows_over_steps(held: HeatMap, names: Sequence[str], caption: str, *, percent: bool) -> list[Block]:
    """Draw eight rows a chart: one colour each; nothing without a step."""
    if not held.steps:
        return []
    factor, unit = (100.0, "%") if percent else (1.0, "error")
    figures = []
    for begin in range(0, len(names), LINES_SHOWN):
        part = range(begin, min(begin + LINES_SHOWN, len(names)))
        drawn = [
            Curve(names[place], held.steps, [None if each is None else factor * each for each in held.values[place]])
            for place in part
        ]
        alt = f"{caption}, over steps, for {', '.join(curve.name for curve in drawn)}"
        figures.append(figure(caption, drawn, alt=alt, up=unit, scale=PERCENT if percent else None))
    return [Figures(figures)]


def roc_figures(training: TrainingReport) -> list[Block]:
    held = training.predictions.roc
    if held is None:
        return []
    drawn = [Curve("model", held.false_positive, held.true_positive), Curve("chance", [0.0, 1.0], [0.0, 1.0])]
    alt = f"True over false positive rate; the area below the curve is {held.auc:.3f}"
    caption, scale = f"Area under the curve {held.auc:.3f} at step {held.step:,}", up_from_zero(1.0)
    chart = figure(caption, drawn, alt=alt, across="false positive rate", up="true positive rate", scale=scale)
    return [Figures([chart])]


def residual_figures(training: TrainingReport) -> list[Block]:
    held = training.predictions.residuals
    if held is None:
        return []
    width = held.edges[1] - held.edges[0]
    curve = None
    if held.sigma > 0.0 and width > 0.0:
        x = np.asarray(held.x)
        tall = sum(held.hist) * width / (held.sigma * np.sqrt(2.0 * np.pi))
        normal = tall * np.exp(-0.5 * ((x - held.mu) / held.sigma) ** 2)
        curve = Curve("normal distribution", held.x, normal.tolist())
    alt = f"Prediction minus label: mean {number(held.mu)}, deviation {number(held.sigma)}"
    markup = bars(held.edges, held.hist, alt=alt, across="prediction minus label", up="samples", curve=curve)
    keys = [Key("bin", "samples"), Key("line s2", "normal distribution of the same mean and deviation")]
    return [Figures([Figure(f"{alt}, at step {held.step:,}", markup, keys)])]
