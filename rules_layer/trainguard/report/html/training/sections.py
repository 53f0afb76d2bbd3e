"""The sections on training, and on an XGBoost model: what their templates need beside the document."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from trainguard.render.blocks import Column, Key
from trainguard.render.numbers import NOTHING, shown_name
from trainguard.render.plots.scale import between
from trainguard.render.plots.strips import HEIGHT, head
from trainguard.render.plots.svg import at, element, title
from trainguard.report.html.episodes import VIRIDIS, palette, png_url
from trainguard.report.html.page import read_asset, render_page
from trainguard.report.html.training import charts
from trainguard.report.training import predictions, xgboost_files
from trainguard.report.training.document import TrainingReport
from trainguard.report.training.heat_map import HeatMap

SHADES = 60
MOST_PIXELS = 960
UNDEFINED = SHADES
_CLEAR = SHADES + 1
_UNDEFINED_COLOUR = (200, 30, 30)
# Values that differ by more are shown by their magnitude.
_WIDEST_RATIO = 1e3


def map_of(held: HeatMap, *, shares: bool = False) -> dict[str, Any]:
    """Return what a map's table shows, of a map with rows; in percent where values are ``shares``, 0 to 1."""
    ramp = _Ramp(held, shares=shares)
    bad: dict[int, list[int]] = {}
    for row, column in held.undefined:
        bad.setdefault(row, []).append(column)
    keys = []
    if ramp.has_values:
        keys = [Key("box ramp-low", ramp.shown(ramp.low)), Key("box ramp-high", ramp.shown(ramp.high))]
    if held.undefined:
        keys.append(Key("box ramp-bad", "NaN or infinite"))
    return {
        "axis": between(float(held.steps[0]), _end_of(held.steps)),
        "rows": [
            _row(name, values, bad.get(place, []), held, ramp)
            for place, (name, values) in enumerate(zip(held.rows, held.values, strict=True))
        ],
        "keys": keys,
        "by_magnitude": ramp.by_magnitude,
    }


class _Ramp:
    def __init__(self, held: HeatMap, *, shares: bool) -> None:
        values = [value for row in held.values for value in row if value is not None]
        positive = [value for value in values if value > 0.0]
        self.has_values = bool(values)
        self._shares = shares
        self.by_magnitude = (
            not shares and len(positive) > 0 and min(values) >= 0.0 and max(positive) > min(positive) * _WIDEST_RATIO
        )
        self.low, self.high = (0.0, 1.0) if shares else (min(values, default=0.0), max(values, default=1.0))
        self._least = min(positive, default=1.0)

    def shade(self, value: float) -> int:
        if self.by_magnitude:
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
    # Pixels are on an even axis of steps: a column lasts until the next one begins.
    pixels = np.linspace(steps[0], _end_of(steps), min(8 * len(steps), MOST_PIXELS), endpoint=False)
    places = np.searchsorted(np.asarray(steps), pixels, side="right") - 1
    over_steps = np.asarray(shades, np.uint8)[places].reshape(1, -1)
    image = element(
        "image",
        href=png_url(over_steps, [*palette(VIRIDIS[::2], SHADES), _UNDEFINED_COLOUR]),
        x=0,
        y=4,
        width=at(100.0),
        height=HEIGHT - 8,
        preserveAspectRatio="none",
        class_="cells",
    )
    return element("svg", title(alt), image, class_="strip layer-map", width="100%", height=HEIGHT, role="img")


def _end_of(steps: Sequence[int]) -> float:
    """Return where the last column ends: it is as wide as the others on average."""
    return steps[-1] + max((steps[-1] - steps[0]) / max(len(steps) - 1, 1), 1.0)


def training_context(
    training: TrainingReport | None, *, with_loss: bool = False, loss_first: bool = False
) -> dict[str, Any]:
    """Return what templates of sections on training are given; ``with_loss`` is for the page on a model alone."""
    return {
        "trained": training,
        "with_loss": with_loss,
        "loss_first": loss_first,
        "models": predictions,
        "files": xgboost_files,
        "plots": charts,
        "map_of": map_of,
        "strip_column": lambda title, scale, unit="": Column(title, "plot", head(scale, unit)),
    }


def render_xgboost(training: TrainingReport, job: str) -> str:
    """Return the page as one file; the texts of ``training`` may hold anything."""
    return render_page(
        "xgboost_report.html.j2",
        styles=read_asset("training.css"),
        job=job,
        **training_context(training, with_loss=True),
    )
