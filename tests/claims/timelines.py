"""The events of a node's processes file by file, as they are read, and which part of each is its own."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.claims.raw import Event, RawJob

STEP = "Step:ModeKeys"


def files_of(job: RawJob, node: str, last_file: float = math.inf) -> Iterator[tuple[str, list[Event]]]:
    """Yield the events of each file of a node with the process's name, in order of the times in the files' names."""
    found: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for (where, process), events in job.events.items():
        if where == node:
            for each in events:
                if each.file <= last_file:
                    found[each.file, process].append(each)
    for (_, process), events in sorted(found.items(), key=lambda item: item[0]):
        yield process, events


def last_file_without(events: Iterable[Event]) -> float:
    """Return up to which time in their names files were read, where these events were not read yet."""
    return min((each.file - 1 for each in events), default=math.inf)


def nodes_with_events(job: RawJob) -> list[str]:
    """Return the names of nodes whose processes wrote events."""
    return sorted({node for node, _ in job.events})


def own_times(events: Sequence[Event]) -> list[int]:
    """Return how long each event was the innermost one of its phase and thread, microseconds."""
    own = [each.length_us for each in events]
    lanes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, each in enumerate(events):
        lanes[each.phase, each.thread].append(place)
    for places in lanes.values():
        around: list[int] = []
        for place in sorted(places, key=lambda p: (events[p].start_us, -events[p].length_us)):
            while around and events[around[-1]].end_us <= events[place].start_us:
                around.pop()
            if around:
                outer = events[around[-1]]
                own[around[-1]] -= min(outer.end_us, events[place].end_us) - events[place].start_us
            around.append(place)
    return own


def is_operator(phase: str) -> bool:
    """Tell whether the events of a phase are operators, which are distinguished by their own names."""
    return "cpu" in phase.lower() or "gpu" in phase.lower()


def is_on_gpu(phase: str) -> bool:
    """Tell whether the events of a phase ran on the GPU."""
    return "gpu" in phase.lower() and "cpu" not in phase.lower()
