"""The newest step of each training process of a node."""

import re

import msgspec
import numpy as np

from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.formats.profile.events import StepBatch

MOST_PROCESSES = 256
LONGEST_NUMBER = 20
PACE_STEPS = 64
CUT_SLACK_S = 5.0
"""A process ends so long before the last sample, at most."""
UNWRITTEN_US, UNWRITTEN_ELSEWHERE_US = 10_000, 60_000_000
"""What a process that hangs may not have written yet: of TrainGuard's recorder, and of other writers, whose files take
events once a minute."""
_RECORDED = re.compile(r"-rank\d+\Z")


class ProcessProgress(msgspec.Struct, array_like=True):
    """The newest step of a process: when it ended, epoch microseconds, its number, and how many there were.

    ``pace_us`` is from one step's end to the next's, 0 where unknown. ``begun_us`` is when the newest step began, and
    ``before_us`` when the one before it ended.
    """

    end_us: int
    number: str
    steps: int
    pace_us: int = 0
    mode: str = ""
    begun_us: int = 0
    before_us: int = 0

    def ended_by(self, since: float, through: float) -> float:
        """Return when its last step ended, epoch seconds, where its GPU spun from ``since`` to ``through``.

        A step that lasted all that time, up to the process's own end, did not end: the step before it was the last.
        """
        is_cut = self.before_us and self.begun_us <= 1e6 * since and self.end_us >= 1e6 * (through - CUT_SLACK_S)
        return (self.before_us if is_cut else self.end_us) / 1e6

    @property
    def reached(self) -> int | None:
        """The number as one that can be compared."""
        return int(self.number) if self.number.isdecimal() and self.number.isascii() else None


class ProgressState(msgspec.Struct, array_like=True):
    """Processes by name; of more than there is room for, the first by name."""

    processes: dict[str, ProcessProgress] = msgspec.field(default_factory=dict)

    def fold(self, events: FrameworkEvents) -> None:
        for batch in events.steps:
            if not batch.numbers:
                continue
            ends = batch.starts_us + batch.durations_us
            newest = int(ends.argmax())
            was = self.processes.get(batch.process)
            steps = len(batch.numbers) + (was.steps if was else 0)
            if was is not None and was.end_us > int(ends[newest]):
                was.steps, was.before_us = steps, max(was.before_us, int(ends[newest]))
                continue
            number = batch.numbers[newest][:LONGEST_NUMBER]
            pace_us = _pace_us(batch) or (was.pace_us if was is not None and was.mode == batch.mode else 0)
            before_us = max(int(np.delete(ends, newest).max(initial=0)), 0 if was is None else was.end_us)
            self.processes[batch.process] = ProcessProgress(
                int(ends[newest]), number, steps, pace_us, batch.mode, int(batch.starts_us[newest]), before_us
            )
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])


def behind(processes: dict[str, ProcessProgress]) -> list[str]:
    """Return the processes that are certainly not as far as the furthest, the least far first.

    Only steps of one mode compare, and the lead must exceed the steps that a hanging process may not have written yet.
    """
    if len(processes) < 2 or len({each.mode for each in processes.values()}) > 1:
        return []
    reached = {name: each.reached for name, each in processes.items()}
    numbers = [number for number in reached.values() if number is not None]
    if len(numbers) != len(reached):
        return []
    furthest = max(numbers)
    late = [
        (number, name)
        for name, number in reached.items()
        if number is not None and furthest - number > _unwritten(name, processes[name], furthest)
    ]
    return [name for _, name in sorted(late)]


def _unwritten(name: str, progress: ProcessProgress, most: int) -> int:
    if progress.pace_us <= 0:
        return most
    unwritten_us = UNWRITTEN_US if _RECORDED.search(name) else UNWRITTEN_ELSEWHERE_US
    return unwritten_us // progress.pace_us


def _pace_us(batch: StepBatch) -> int:
    """Return the median time between steps' ends, microseconds; 0 for a single step."""
    ends = np.sort(batch.starts_us + batch.durations_us)[-PACE_STEPS:]
    return int(np.median(np.diff(ends))) if len(ends) > 1 else 0
