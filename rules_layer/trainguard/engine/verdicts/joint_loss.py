"""What several findings lost together: what two lose at the same time, on the same GPUs, is lost once."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.finding import Episode

_WHOLE_JOB = ""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of one finding on one node; ``rate`` is the seconds of the node's time that each second lost."""

    finding: int
    start: float
    end: float
    rate: float
    gpus: frozenset[str]


def joint_nodes(findings: Sequence[RankedFinding], until: float | None) -> float | None:
    """Return how many nodes' whole time findings lost together; None where none of them lost any.

    Where the times of one are not known, it is the largest loss: the others may be a part of it.

    Parameters
    ----------
    findings : sequence of RankedFinding
        Findings that no rule explains in whole.
    until : float or None
        Where episodes end that go on, epoch seconds.
    """
    losing = [each for each in findings if each.charged_nodes is not None]
    if not losing:
        return None
    added = sum(each.charged_nodes or 0.0 for each in losing)
    if until is None or not all(each.unexplained for each in losing):
        return max(each.charged_nodes or 0.0 for each in losing)
    stretches = _by_node(losing, until)
    alone_s = sum(each.rate * (each.end - each.start) for of_node in stretches for each in of_node)
    return added * sum(map(_together_s, stretches)) / alone_s if alone_s else added


def _by_node(findings: Sequence[RankedFinding], until: float) -> list[list[_Stretch]]:
    """Return the findings' stretches by node; those of the job as a whole are on all nodes that are named."""
    found = [(number, each) for number, finding in enumerate(findings) for each in finding.unexplained]
    names = sorted({node for _, each in found for node in each.nodes}) or [_WHOLE_JOB]
    return [
        [_stretch(number, each, node, len(each.nodes or names), until) for number, each in _on(node, found)]
        for node in names
    ]


def _on(node: str, found: Sequence[tuple[int, Episode]]) -> Iterator[tuple[int, Episode]]:
    return ((number, each) for number, each in found if not each.nodes or node in each.nodes)


def _stretch(number: int, episode: Episode, node: str, nodes: int, until: float) -> _Stretch:
    end = max(until if episode.end is None else episode.end, episode.start)
    length_s = end - episode.start
    rate = (episode.wasted_s or 0.0) / nodes / length_s if length_s else 0.0
    own = {gpu for gpu in episode.gpus if "/" not in gpu or gpu.startswith(f"{node}/")}
    return _Stretch(number, episode.start, end, rate, frozenset(gpu.rpartition("/")[2] for gpu in own))


def _together_s(stretches: Sequence[_Stretch]) -> float:
    """Return what was lost on one node: at each time that of the gravest, and of others on other GPUs."""
    marks = sorted({mark for each in stretches for mark in (each.start, each.end)})
    lost_s = 0.0
    for begin, end in itertools.pairwise(marks):
        here = [each for each in stretches if each.start <= begin and each.end >= end]
        taken: list[_Stretch] = []
        for each in sorted(here, key=lambda one: -one.rate):
            apart = each.gpus and all(other.gpus and each.gpus.isdisjoint(other.gpus) for other in taken)
            if not taken or apart or each.finding in {other.finding for other in taken}:
                taken.append(each)
        lost_s += min(sum(each.rate for each in taken), 1.0) * (end - begin)
    return lost_s
