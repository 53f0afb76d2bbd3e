"""What a check found: a level, a sentence with numbers, and what to do about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a finding stands; FAIL is what keeps TrainGuard from working."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found: one line of the diagnosis.

    Attributes
    ----------
    check : str
        The name of the check that found it.
    level : Level
    found : str
        What is, with numbers.
    advice : str or None
        What to do, as a sentence; None where all is well.
    command : str or None
        The command that does it, ready for a shell.
    """

    check: str
    level: Level
    found: str
    advice: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A check by its name, in a word or two; it makes its results."""

    name: str

    def ok(self, found: str) -> CheckResult:
        """Return that all is well."""
        return CheckResult(check=self.name, level=Level.OK, found=found)

    def warn(self, found: str, advice: str, command: str | None = None) -> CheckResult:
        """Return what may do harm, or could not be looked at."""
        return CheckResult(check=self.name, level=Level.WARN, found=found, advice=advice, command=command)

    def fail(self, found: str, advice: str, command: str | None = None) -> CheckResult:
        """Return what keeps TrainGuard from working."""
        return CheckResult(check=self.name, level=Level.FAIL, found=found, advice=advice, command=command)

    def unless(self, faults: Sequence[CheckResult], found: str) -> Iterator[CheckResult]:
        """Yield the faults; where there is none, that all is well."""
        yield from faults or (self.ok(found),)


def span(seconds: float) -> str:
    """Return a duration as people say it, for example ``12 min``."""
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
