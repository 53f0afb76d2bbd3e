"""The verdict on a profile as a whole: the same on the page and on the command line."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from trainguard.core.finding import Severity
from trainguard.core.units import counted
from trainguard.kernels.columns import is_cut
from trainguard.kernels.comparison.text import headline
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.words import are
from trainguard.render.numbers import share, size


class CaptureSummary(NamedTuple):
    """A word, its tone on a page, and the sentences that it stands for."""

    word: str
    tone: Literal["ok", "warn", "bad", "idle"]
    sentences: list[str]


def summary_of(document: KernelProfiles, fired: Sequence[tuple[str, Severity]]) -> CaptureSummary:
    """Return the verdict; ``fired`` are rules without their family, each with its highest severity, and no more."""
    ranks = document.ranks
    if not ranks and document.snapshots:
        return _of_memory(document.snapshots, fired)
    if not any(rank.busy_ns for rank in ranks):
        return CaptureSummary(
            "Not judged", "idle", ["No work of a GPU is in the trace, so no rule on GPUs could be judged."]
        )
    window, busy = sum(rank.window_ns for rank in ranks), sum(rank.busy_ns for rank in ranks)
    where = "The GPU is" if len(ranks) == 1 else f"The GPUs of {counted(len(ranks), 'rank')} are"
    lost = sum(rank.quality.work_lost for rank in ranks if not rank.quality.is_whole)
    least = "at least " if lost else ""
    sentences = [f"{where} busy {least}{share(busy / window)} of the time."]
    if cut := sum(is_cut(rank.quality.counts) for rank in ranks):
        sentences.append(f"{are(cut, 'trace')} cut off, so this is judged in part.")
    if lost:
        sentences.append(f"{counted(lost, 'piece')} of work {'is' if lost == 1 else 'are'} missing in the trace.")
    severest = max((severity.rank for _, severity in fired), default=-1)
    if severest >= Severity.MEDIUM.rank:
        having = [(rule, severity) for rule, severity in fired if severity.rank == severest]
        sentences.append(f"Of {having[0][1]} severity: {', '.join(rule for rule, _ in having)}.")
    if not fired:
        sentences.append("No rule fired.")
    return _worse(document, _marked(severest, sentences, in_part=bool(cut or lost)))


def _of_memory(snapshots: Sequence[SnapshotProfile], fired: Sequence[tuple[str, Severity]]) -> CaptureSummary:
    """Return the verdict on snapshots alone, which say nothing about the GPU's time."""
    most = max((memory for each in snapshots for memory in each.memory), key=lambda memory: memory.peak)
    said = f"{most.name} holds {size(most.peak)} at most."
    said = said[:1].upper() + said[1:]
    if all(memory.source == "timeline" for each in snapshots for memory in each.memory):
        return CaptureSummary("Not judged", "idle", [said, most.unknown])
    if not fired:
        silent = "No rule on memory fired; a snapshot says nothing about the GPU's time."
        return CaptureSummary("No finding", "ok", [said, silent])
    rules = f"Fired: {', '.join(rule for rule, _ in fired)}."
    if max(severity.rank for _, severity in fired) >= Severity.HIGH.rank:
        return CaptureSummary("Needs attention", "bad", [said, rules])
    return CaptureSummary("Memory could be used better", "warn", [said, rules])


def _marked(severest: int, sentences: list[str], *, in_part: bool) -> CaptureSummary:
    if severest >= Severity.HIGH.rank:
        return CaptureSummary("Needs attention", "bad", sentences)
    if severest >= Severity.MEDIUM.rank:
        return CaptureSummary("Could be faster", "warn", sentences)
    if severest < 0 and in_part:
        return CaptureSummary("Judged in part", "idle", sentences)
    return CaptureSummary("Healthy", "ok", sentences)


def _worse(document: KernelProfiles, found: CaptureSummary) -> CaptureSummary:
    """Return the verdict, with the rank that differs most from the older profile: what got slower is not healthy."""
    ranks = [] if document.comparison is None else document.comparison.ranks
    slower = [rank for rank in ranks if rank.is_worse]
    if not slower:
        all_other = bool(ranks) and all(rank.comparable.verdict == "no" for rank in ranks)
        other = ["The older profile is of other work or another machine."] if all_other else []
        return found._replace(sentences=[*found.sentences, *other])
    worst = max(slower, key=lambda rank: rank.worsened)
    name = "" if worst.rank is None or len(ranks) == 1 else f"Rank {worst.rank}: "
    sentences = [f"{name}{headline(worst)}", *found.sentences]
    if found.tone in ("ok", "idle"):
        return CaptureSummary("Slower than before", "warn", sentences)
    return found._replace(sentences=sentences)
