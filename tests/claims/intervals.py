"""How far apart a node's samples of GPUs are, by what was known at each object of them: samplers drift."""

from collections.abc import Iterator

import numpy as np

from tests.claims.raw import CONFIGURED_S, Floats, Node

NEAR, ROUGHLY, FEW = 0.03, 0.08, 5
STEADY = 20
VARIES, STRETCHED, AS_BEFORE = 0.5, 1.5, 0.25


def intervals_of(node: Node) -> Iterator[float]:
    """Yield for each object of a node's samples the distance of the GPUs' samples as it was known with it, seconds."""
    known, last, after = 0.0, -np.inf, -np.inf
    for until in np.maximum.accumulate(node.objects).tolist():
        parts = [
            each.times[(each.times > after + 1e-4) & (each.times <= until + 1e-4)]
            for each in node.of("GPUUtilization").values()
        ]
        times = max(parts, key=lambda each: each.size, default=np.zeros(0))
        if times.size:
            known, last = _interval(known, times, last), float(times[-1])
        after = until
        yield known or node.gpu_interval_s


def _interval(known: float, times: Floats, last: float) -> float:
    """Return the distance as it is known with more samples: of few, which vary, each moves it by its part of 20."""
    if known and 2 <= times.size < STEADY:
        distances = np.diff(times if not np.isfinite(last) else np.append(last, times))
        usual = distances[np.abs(distances - known) < VARIES * known]
        if usual.size:
            return _configured(known + min(usual.size / STEADY, 1.0) * (float(usual.mean()) - known), NEAR)
    if times.size < 2:
        if not np.isfinite(last):
            return known
        one = float(times[0]) - last
        return _configured(min(one, known) if known else one, ROUGHLY)
    distances = np.diff(times)
    middle = float(np.median(distances))
    as_before = np.count_nonzero(np.abs(distances - known) <= AS_BEFORE * known)
    if known and middle > STRETCHED * known and as_before >= AS_BEFORE * distances.size:
        middle = known
    return _configured(middle, NEAR if times.size > FEW else ROUGHLY)


def _configured(distance: float, within: float) -> float:
    return next((each for each in CONFIGURED_S if abs(distance - each) <= within * each), distance)
