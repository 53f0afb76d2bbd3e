"""What parameters of rules mean, in units and words for people; the pages of `docs/rules` say the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POINTS, LOADER_SECONDS, STEPS = "points", "seconds with loader events", "steps"


@dataclass(frozen=True, slots=True)
class ParameterHelp:
    """A parameter: its unit, and what it does in one line."""

    unit: str
    meaning: str


def span_help(name: str, meaning: str, units: Sequence[str] = (POINTS, "seconds")) -> Mapping[str, ParameterHelp]:
    """Return the help of a parameter in points and of the same one in seconds, by their names."""
    points, seconds = units
    return {
        name: ParameterHelp(points, f"{meaning}, in {POINTS} in place of {name}_s"),
        f"{name}_s": ParameterHelp(seconds, f"{meaning}, at any sampling interval"),
    }


WAITED = "how much is waited for before the first verdict"
PATIENCE_HELP = span_help("patience", WAITED)
WINDOW_HELP = span_help("window", "how much of the newest time is looked at")
SCAN_INTERVAL_HELP = ParameterHelp(
    "microseconds", "accepted, and rounded up to whole minutes; evaluation is once a minute"
)
"""Of the one parameter that every rule accepts."""

UNSAID = ParameterHelp("", "")
"""Of a parameter that nobody has said anything about."""
