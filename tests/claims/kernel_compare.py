"""What a comparison of two profiles says, computed again from the events of both: steps, parts, runs of kernels."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tests.claims.kernel_files import Recording
from tests.claims.kernel_trace import Gpu, KernelTrace
from tests.claims.raw import Flags

PARTS: dict[str, Callable[[Gpu], Flags]] = {
    "compute": lambda gpu: gpu.computing,
    "exposed_communication": lambda gpu: gpu.sends_alone,
    "idle_loader": lambda gpu: gpu.waits_for_data,
    "idle_host": lambda gpu: gpu.waits_for_host,
}
SLACK_NS = 3


class Middle:
    """The middle half of a trace's steps by length, each with its work on the GPU."""

    def __init__(self, recording: Recording) -> None:
        self.trace = KernelTrace(recording)
        spans = self._until_next(list(self._spans()))
        order = sorted(range(len(spans)), key=lambda place: spans[place][1] - spans[place][0])
        left = (len(spans) + 1) // 4
        self.spans = [spans[place] for place in sorted(order[left : len(order) - left])]

    def _spans(self) -> Iterator[tuple[int, int]]:
        done = self.trace.steps[0].start
        for step in self.trace.steps:
            last = max((event.end for event in self.trace.work_of(step)), default=done)
            start = max(step.start, done)
            yield start, max(step.end, last, start)
            done = max(done, last)

    def _until_next(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the spans up to the next step where over 1 % lies between them; the last one has none."""
        numbers = [int(re.findall(r"\d+", step.name)[-1]) for step in self.trace.steps]
        follows = [later == earlier + 1 for earlier, later in pairwise(numbers)]
        pairs = zip(pairwise(spans), follows, strict=True)
        until = [(one[0], other[0] if joined else one[1]) for (one, other), joined in pairs]
        between = sum(longer[1] - span[1] for longer, span in zip(until, spans, strict=False))
        return until if between > 0.01 * sum(end - start for start, end in spans) else spans

    def mean(self, part: Callable[[Gpu], Flags]) -> float:
        """Return the mean time of a part in these steps, over the GPUs that count."""
        inside = self.trace.during(self.spans)
        return self.trace.mean(lambda gpu: part(gpu) & inside) / len(self.spans)

    @property
    def length(self) -> float:
        return float(np.mean([end - start for start, end in self.spans]))

    def runs(self) -> dict[str, tuple[float, float]]:
        """Return the runs and the time in a step of each kernel that starts in them, by name."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for event in self.trace.kernels:
            if any(start <= event.start < end for start, end in self.spans):
                found[event.name].append(event.lasts)
        return {name: (len(each) / len(self.spans), sum(each) / len(self.spans)) for name, each in found.items()}


def untrue(before: Recording, after: Recording, said: dict[str, Any]) -> list[str]:
    """Return what a rank's part of ``comparison`` says and the events do not."""
    old, new = Middle(before), Middle(after)
    step = said["step"]
    pairs = [("before_ns", step["before_ns"], old.length), ("after_ns", step["after_ns"], new.length)]
    pairs += [(name, step["parts"][name], new.mean(part) - old.mean(part)) for name, part in PARTS.items()]
    pairs.append(("parts", sum(step["parts"].values()), step["after_ns"] - step["before_ns"]))
    earlier, later = old.runs(), new.runs()
    for entry in said["kernels"]:
        one, other = earlier.get(entry["name"], (0.0, 0.0)), later.get(entry["name"], (0.0, 0.0))
        pairs += [(entry["name"], entry["before_ns"], one[1]), (entry["name"], entry["after_ns"], other[1])]
        longer = (entry["run_after_ns"] or 0) - (entry["run_before_ns"] or 0)
        if entry["change"] in ("slower", "faster"):
            is_true = abs(longer) > entry["noise_ns"] and (longer > 0) == (entry["change"] == "slower")
            pairs.append((f"{entry['name']} {entry['change']}", float(is_true), 1.0))
    return [f"{name}: {value}, expected {expected:.0f}" for name, value, expected in pairs if _differs(value, expected)]


def _differs(value: float, expected: float) -> bool:
    return abs(value - expected) > SLACK_NS + 1e-6 * abs(expected)
