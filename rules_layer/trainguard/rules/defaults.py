"""The two sets of defaults: those of the documentation, and those that the managed service's container ships.

The documented ones are the parameter classes' own. Where the shipped ones differ, the rule's spec says so.
"""

from collections.abc import Mapping
from typing import Literal

from trainguard.rules.registry import spec_of

Defaults = Literal["documented", "shipped"]


def own_defaults(rule: str, defaults: Defaults) -> Mapping[str, float | int]:
    """Return the values of a rule that differ from its parameter class's own, patience and window in seconds."""
    return spec_of(rule).shipped_defaults if defaults == "shipped" else {}
