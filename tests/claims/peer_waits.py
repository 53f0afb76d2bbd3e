"""Own work of steps whose process tells how long it waits for its peers, as docs/rules/Straggler.md defines it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from tests.claims.raw import Event
from tests.claims.timelines import is_on_gpu

PARTS = {
    "data_wait": "DataLoaderIter",
    "forward": "Forward-SubModuleInternal",
    "backward": "Backward-SubModuleInternal",
    "optimizer": "Optimizer",
}
OTHER = "other"
Span = tuple[int, int]


def timed_steps(
    steps: Sequence[Event], events: Sequence[Event], before_us: int, block_us: int
) -> dict[int, Counter[str]]:
    """Return sums of steps, in the order of their ends, by block: all but the first of the file, and rare pauses."""
    reached, periods = steps[0].start_us - before_us, []
    for step in steps:
        periods.append((reached, max(step.end_us, reached)))
        reached = periods[-1][1]
    found = [_own(period, events) for period in periods]
    training = [place for place, step in enumerate(steps) if "TRAIN" in step.name]
    if not training:
        return {}
    usual = median(found[place]["own"] + found[place]["peers"] for place in training)
    pauses = {place for place in training if found[place]["own"] + found[place]["peers"] > 4.0 * usual}
    if len(pauses) > 0.1 * len(training):
        pauses = set()
    by_block: dict[int, list[Counter[str]]] = defaultdict(list)
    for place in training:
        if place and place not in pauses:
            by_block[steps[place].end_us // block_us].append(found[place])
    return {block: _summed(kept) for block, kept in by_block.items()}


def _summed(kept: list[Counter[str]]) -> Counter[str]:
    total = Counter[str]()
    for each in kept:
        total.update(each)
    waits = sorted(each["peers"] for each in kept)
    total["least"] = len(kept) * waits[math.floor(0.05 * (len(kept) - 1))]
    total["steps"] = len(kept)
    return total


def _own(period: Span, events: Sequence[Event]) -> Counter[str]:
    near = [each for each in events if each.start_us < period[1] and each.end_us > period[0]]
    on_gpu = {True: [each for each in near if is_on_gpu(each.phase)], False: []}
    on_gpu[False] = [each for each in near if not is_on_gpu(each.phase)]
    waits = {gpu: [each for each in held if each.name == "peer_wait"] for gpu, held in on_gpu.items()}
    aside = [each for each in near if each.phase in {"Checkpoint", "Evaluation"}]
    own = Counter[str]()
    own["peers"] = max(_covered(waits[gpu], period) for gpu in (True, False))
    set_aside = _covered([*waits[False], *aside], period) - _covered(waits[False], period)
    own["own"] = max(period[1] - period[0] - set_aside - own["peers"], 0)
    for part, phase in PARTS.items():
        held = {True: [each for each in on_gpu[True] if each.name == part], False: []}
        held[False] = [each for each in on_gpu[False] if each.phase == phase]
        own[part] = max(
            _covered([*held[gpu], *waits[gpu]], period) - _covered(waits[gpu], period) for gpu in (True, False)
        )
    return own


def _covered(events: Iterable[Event], period: Span) -> int:
    """Return how much of a period events cover, microseconds."""
    total, reached = 0, period[0]
    for each in sorted(events, key=lambda event: event.start_us):
        start, end = max(each.start_us, reached), min(each.end_us, period[1])
        if end > start:
            total, reached = total + end - start, end
    return total
