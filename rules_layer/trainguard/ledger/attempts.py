"""Attempts of a node's training: processes that ended before others began, and the cost of a restart.

That is the time between attempts, and that of repeated step numbers, estimated at the attempt's mean pace.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainguard.ledger.spans import Span, joined
from trainguard.state.step_time import ProcessTime, StepTime


@dataclass(frozen=True, slots=True)
class Attempts:
    """A node's attempts: ``processes`` are the most at one time, ``savers`` and ``evaluators`` those of an attempt.

    ``restarts`` reach from an attempt's last event to the next one's first; ``again`` are steps that were done again.
    """

    processes: int
    savers: int
    evaluators: int
    restarts: list[Span]
    again: list[Span]


NO_ATTEMPTS = Attempts(0, 0, 0, [], [])


def attempts_of(time: StepTime) -> Attempts:
    """Return the attempts of a node's processes."""
    groups = _groups(each for each in time.processes.values() if each.steps or each.saves or each.evaluates)
    restarts, again, reached = [], [], -1
    for place, group in enumerate(groups):
        if place:
            ended = max(each.last_ms for each in groups[place - 1])
            restarts.append((ended / 1_000, min(each.first_ms for each in group) / 1_000))
            again.extend(_again(group, reached))
        reached = max([reached, *(each.last_number for each in group)])
    return Attempts(
        processes=max((sum(each.steps > 0 for each in group) for group in groups), default=0),
        savers=max((sum(each.saves for each in group) for group in groups), default=0),
        evaluators=max((sum(each.evaluates for each in group) for group in groups), default=0),
        restarts=joined(restarts),
        again=joined(again),
    )


def _groups(processes: Iterable[ProcessTime]) -> list[list[ProcessTime]]:
    groups: list[list[ProcessTime]] = []
    until = -1
    for each in sorted(processes, key=lambda process: (process.first_ms, process.last_ms)):
        if not groups or each.first_ms >= until:
            groups.append([])
        groups[-1].append(each)
        until = max(until, each.last_ms)
    return groups


def _again(group: list[ProcessTime], reached: int) -> list[Span]:
    numbered = [each for each in group if each.first_number >= 0]
    if not numbered:
        return []
    lowest, highest = min(each.first_number for each in numbered), max(each.last_number for each in numbered)
    if lowest > reached:
        return []
    start, end = min(each.first_ms for each in numbered), max(each.last_ms for each in numbered)
    share = min((reached - lowest + 1) / (highest - lowest + 1), 1.0)
    return [(start / 1_000, (start + share * (end - start)) / 1_000)]
