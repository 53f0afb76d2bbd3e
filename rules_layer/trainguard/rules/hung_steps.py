"""How far each training process of a node has come: its newest step."""

import msgspec

from trainguard.telemetry.framework import FrameworkEvents

MOST_PROCESSES = 256
LONGEST_NUMBER = 20


class Progress(msgspec.Struct, array_like=True):
    """The newest step of a process: when it ended, epoch microseconds, its number, and how many there were."""

    end_us: int
    number: str
    steps: int

    @property
    def reached(self) -> int | None:
        """The number as one that can be compared."""
        return int(self.number) if self.number.isdecimal() and self.number.isascii() else None


class ProgressState(msgspec.Struct, array_like=True):
    """Processes by name; of more than there is room for, the first by name."""

    processes: dict[str, Progress] = msgspec.field(default_factory=dict)

    def fold(self, events: FrameworkEvents) -> None:
        """Take in the steps of one object."""
        for batch in events.steps:
            if not batch.numbers:
                continue
            ends = batch.starts_us + batch.durations_us
            newest = int(ends.argmax())
            was = self.processes.get(batch.process)
            steps = len(batch.numbers) + (was.steps if was else 0)
            if was is not None and was.end_us > int(ends[newest]):
                self.processes[batch.process] = Progress(was.end_us, was.number, steps)
                continue
            number = batch.numbers[newest][:LONGEST_NUMBER]
            self.processes[batch.process] = Progress(int(ends[newest]), number, steps)
        if len(self.processes) > MOST_PROCESSES:
            self.processes = dict(sorted(self.processes.items())[:MOST_PROCESSES])
