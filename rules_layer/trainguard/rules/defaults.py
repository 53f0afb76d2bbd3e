"""The two sets of defaults: those of the documentation, and those that the managed service's container ships.

The documented ones are the parameter classes' own. The shipped ones differ from them where they stand here.
"""

from collections.abc import Mapping
from typing import Literal

Defaults = Literal["documented", "shipped"]

SHIPPED: Mapping[str, Mapping[str, float | int]] = {
    "BatchSize": {"patience": 1_000},
    "CPUBottleneck": {"patience": 1_000},
    "GPUMemoryIncrease": {"increase": 5.0, "patience": 1_000, "window": 10},
    "IOBottleneck": {"gpu_threshold": 10.0},
    "LoadBalancing": {"threshold": 0.2, "patience": 1_000},
    "StepOutlier": {"stddev": 3.0},
}


def own_defaults(rule: str, defaults: Defaults) -> Mapping[str, float | int]:
    """Return the values of a rule that differ from its parameter class's own."""
    return SHIPPED.get(rule, {}) if defaults == "shipped" else {}
