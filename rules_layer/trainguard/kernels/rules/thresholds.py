"""Types of thresholds with their units, and how people read them."""

from inspect import get_annotations
from typing import Annotated, Any

from trainguard.core.units import show_number

Share = Annotated[float, "share"]
Nanoseconds = Annotated[int, "ns"]
# Types of thresholds with their units; a number is how many, or how many times as much.
Number = Annotated[float, "number"]


def shown_thresholds(rule: type) -> dict[str, str]:
    """Return the thresholds of a rule's class as people read them, by name: ``70 %``, ``10 us``, ``1,024``."""
    units = {name: getattr(kind, "__metadata__", ()) for name, kind in get_annotations(rule).items()}
    return {name: _shown(getattr(rule, name), unit[0]) for name, unit in units.items() if unit}


def _shown(value: Any, unit: str) -> str:
    if unit == "share":
        return f"{show_number(100 * value)} %"
    if unit == "ns":
        return f"{show_number(value / 1e6)} ms" if value >= 1_000_000 else f"{show_number(value / 1e3)} us"
    return show_number(value)
