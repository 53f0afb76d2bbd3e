"""The page looks as it did; `make snapshot` accepts it as it is now, where somebody has looked at it."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.pages import Opened

Open = Callable[..., Opened]
REFERENCES = Path(__file__).parent / "references"
ACCEPT = "TRAINGUARD_ACCEPT_SNAPSHOT"
# A pixel has changed when a channel is so far from what it was: text and edges may be rounded otherwise.
FAR = 40

MOST_CHANGED = 0.005
SCALE = 2


def small(png: bytes) -> Image.Image:
    """Halve a screenshot and its number of colours: a small file in which a change is still seen."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    return image.reduce(SCALE).quantize(128, dither=Image.Dither.NONE)


def changed_share(seen: Image.Image, accepted: Image.Image) -> float:
    if seen.size != accepted.size:
        return 1.0
    before, now = (np.asarray(each.convert("RGB"), np.int16) for each in (accepted, seen))
    return float((np.abs(now - before).max(axis=2) > FAR).mean())


@pytest.mark.parametrize(
    ("name", "sample", "settings"),
    [
        ("light", "bad", {}),
        ("dark", "bad", {"dark": True}),
        ("phone", "bad", {"width": 390, "height": 844}),
        ("large", "large", {}),
    ],
)
def test_time_lines_look_as_accepted(
    opened: Open, tmp_path: Path, name: str, sample: str, settings: dict[str, int]
) -> None:
    page = opened(sample, **settings)
    page.draw_all()
    page.page.locator(".tl-toolbar").evaluate("each => { each.style.position = 'static'; }")
    seen = small(page.page.locator("#tl .tl-live").screenshot(animations="disabled"))
    reference = REFERENCES / f"{name}.png"
    if os.environ.get(ACCEPT):
        seen.save(reference, optimize=True)
    seen.save(tmp_path / reference.name)
    share = changed_share(seen, Image.open(reference))
    assert share <= MOST_CHANGED, (
        f"{share:.1%} of {tmp_path / reference.name} differ from {reference}; look at both, and when the change is "
        "meant, run `make snapshot`"
    )
