"""The page's colours: readable for all, on light and on dark."""

import re
from itertools import pairwise

import pytest

from trainguard.report.html.page import page_style

# Least contrast of text and of what is drawn: WCAG 2.2, success criteria 1.4.3 and 1.4.11.
TEXT, GRAPHIC = 4.5, 3.0

TONES = ("bad", "high", "warn", "low", "ok", "idle")
SERIES = tuple(f"s{number}" for number in range(1, 9))
THEMES = ("light", "dark")


def tokens(theme: str) -> dict[str, str]:
    """Return the colours of a theme; the dark one takes over what it does not change."""
    light, _, dark = page_style().partition("prefers-color-scheme: dark")
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return found if theme == "light" else {**found, **dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))}


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def pairs() -> list[tuple[str, str, float]]:
    backgrounds = ("page", "surface", "raised")
    text = [(colour, back, TEXT) for colour in ("text", "muted", "accent") for back in backgrounds]
    badges = [(tone, f"{tone}-back", TEXT) for tone in TONES]
    tones = [(tone, back, TEXT) for tone in TONES for back in ("page", "surface")]
    callouts = [("text", back, TEXT) for back in ("bad-back", "low-back", "heat-1", "heat-2", "heat-3", "heat-4")]
    drawn = [(series, "surface", GRAPHIC) for series in SERIES]
    labels = [("on-series", series, TEXT) for series in ("s1", "s2", "s3")]
    return [*text, *badges, *tones, *callouts, *drawn, *labels]


@pytest.mark.parametrize("theme", THEMES)
def test_the_contrast_of_colours_that_meet_is_enough(theme: str) -> None:
    held = tokens(theme)
    found = {(colour, back): (contrast(held[colour], held[back]), least) for colour, back, least in pairs()}
    assert {pair: each for pair, each in found.items() if each[0] < each[1]} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_given_a_theme_when_read_then_dark_changes_every_colour(theme: str) -> None:
    light, dark = tokens("light"), tokens("dark")
    assert len(light) > 30
    same = {name for name in light if light[name] == dark[name]}
    assert not same, theme


def test_every_used_css_variable_is_set() -> None:
    style = page_style()
    used, held = set(re.findall(r"var\(--([\w-]+)", style)), set(re.findall(r"--([\w-]+):", style))
    assert used <= held


def test_contrast_of_known_colours_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_neighbouring_series_differ_without_red_or_green() -> None:
    """Machado et al. 2009, severity 1: neighbouring series keep a distance for protanopia and deuteranopia."""
    for theme in THEMES:
        held = tokens(theme)
        for matrix in (PROTAN, DEUTAN):
            seen = [_through(held[series], matrix) for series in SERIES]
            for one, other in pairwise(seen):
                assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 0.1


PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))


def _through(colour: str, matrix: tuple[tuple[float, ...], ...]) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return [sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in matrix]
