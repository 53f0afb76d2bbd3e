"""Whether a series goes up or down, whatever its scale: Mann and Kendall's rank test.

Source: Mann (1945), Kendall (1975), with the usual correction for ties. The test asks how many pairs of values are in
order, so that neither the scale nor a single outlier matters. It needs independent noise: of a series in blocks it
compares the blocks' means.
"""

import math
from collections import Counter
from collections.abc import Sequence

FEWEST = 5
"""With fewer values no order is surprising: of four, one in 24 is sorted by chance."""


def z_score(values: Sequence[float]) -> float:
    """Return by how many standard deviations more pairs rise than fall: below 0 for a fall; 0 of fewer than five."""
    count = len(values)
    if count < FEWEST:
        return 0.0
    surplus = sum(
        (later > earlier) - (later < earlier) for place, earlier in enumerate(values) for later in values[place + 1 :]
    )
    if surplus == 0:
        return 0.0
    variance = _spread(count) - sum(_spread(ties) for ties in Counter(values).values())
    return (surplus - math.copysign(1.0, surplus)) / math.sqrt(variance / 18.0)


def _spread(count: int) -> float:
    return float(count * (count - 1) * (2 * count + 5))
