"""A tool's answers on a labelled set."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

MOST_FAILURES = 12


@dataclass(frozen=True, slots=True)
class Score:
    """Right answers of those with a cause to name, false alarms of those without; ``failures`` says what is wrong.

    ``ran`` is False where the tool's answers were recorded earlier, so that nothing says what they take.
    """

    tool: str
    right: int
    of: int
    false: int = 0
    healthy: int = 0
    failures: Sequence[str] = field(default_factory=tuple)
    ran: bool = True

    @classmethod
    def of_cases(cls, tool: str, answers: Sequence[tuple[str, bool]], alarms: Sequence[tuple[str, bool]] = ()) -> Self:
        """Count cases by name: whether each is named, and whether each healthy one has an alarm."""
        failures = [f"{name}: not named" for name, named in answers if not named]
        failures += [f"{name}: false alarm" for name, alarm in alarms if alarm]
        right, false = sum(named for _, named in answers), sum(alarm for _, alarm in alarms)
        return cls(tool, right, len(answers), false, len(alarms), failures)


def row(name: str, score: Score, cpu_s: float, peak_mb: int) -> str:
    """Return a line of the table."""
    alarms = f"{score.false} of {score.healthy}" if score.healthy else ""
    took = f"{cpu_s:,.0f} | {peak_mb:,}" if score.ran else " | "
    return f"| {name} | {score.tool} | {score.right} of {score.of} | {alarms} | {took} |"


def failed(name: str, score: Score) -> list[str]:
    """Return the failures as list items, the first ones."""
    if not score.failures:
        return []
    left_out = len(score.failures) - MOST_FAILURES
    more = f"; {left_out} more" if left_out > 0 else ""
    return [f"* {name}, {score.tool}: {'; '.join(score.failures[:MOST_FAILURES])}{more}."]
