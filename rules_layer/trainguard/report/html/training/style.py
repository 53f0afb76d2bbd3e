"""The style of sections on training."""

from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[2] / "assets" / "training.css"


@cache
def training_style() -> str:
    """Return the style that pages with sections on training have beside the common one."""
    return "\n" + _FILE.read_text(encoding="utf-8")
