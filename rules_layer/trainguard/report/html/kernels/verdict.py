"""What stands first on the page: how it goes in a sentence, and the numbers to be seen first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.finding import Severity
from trainguard.kernels.columns import is_cut
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.findings.finding import FAMILY
from trainguard.kernels.findings.trace_quality import TRACE_QUALITY
from trainguard.kernels.words import are, counted
from trainguard.report.html.kernels.findings import ShownFinding
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.numbers import share
from trainguard.report.html.overview import KeyFigure

CAUSES = 2
"""Findings of which the headline says how much of a step they explain."""

_TONES = ((Severity.HIGH.rank, "bad", "Needs attention"), (Severity.MEDIUM.rank, "warn", "Could be faster"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word in a tone, and a sentence."""

    tone: str
    word: str
    sentence: str


def verdict_of(document: KernelProfiles, findings: Sequence[ShownFinding]) -> Verdict:
    """Return the verdict: which findings are the severest, and how much of a step the first ones explain."""
    ranks = document.ranks
    if not any(rank.busy_ns for rank in ranks):
        return Verdict("idle", "Not judged", "No work of a GPU is in the trace, so no rule on GPUs could be judged.")
    window, busy = sum(rank.window_ns for rank in ranks), sum(rank.busy_ns for rank in ranks)
    where = "The GPU is" if len(ranks) == 1 else f"The GPUs of {counted(len(ranks), 'rank')} are"
    cut = sum(is_cut(rank.quality.counts) for rank in ranks)
    sentences = [f"{where} busy {share(busy / window)} of the time."]
    if cut:
        sentences.append(f"{are(cut, 'trace')} cut off, so this is judged in part.")
    judged = [each for each in findings if each.rule != TRACE_QUALITY.removeprefix(FAMILY)]
    if not judged:
        sentence = f"{' '.join(sentences)} No rule fired."
        return Verdict("idle", "Judged in part", sentence) if cut else Verdict("ok", "Healthy", sentence)
    severest = max(each.rank for each in judged)
    if severest >= Severity.MEDIUM.rank:
        having = [each for each in judged if each.rank == severest]
        sentences.append(f"Of {having[0].severity.word} severity: {', '.join(each.rule for each in having)}.")
    sentences += [f"{each.rule}: {each.gain}." for each in judged[:CAUSES] if each.gain is not None]
    tone, word = next(((tone, word) for least, tone, word in _TONES if severest >= least), ("ok", "Healthy"))
    return Verdict(tone, word, " ".join(sentences))


def key_figures(ranks: Sequence[RankProfile]) -> list[KeyFigure]:
    """Return the numbers to be seen first; of several ranks the median."""
    steps = [step.gpu_duration_ns for rank in ranks for step in rank.steps]
    several = f"median of {counted(len(ranks), 'rank')}" if len(ranks) > 1 else ""
    shown = [
        ("GPU busy", [_part(rank, rank.busy_ns) for rank in ranks], "of the window"),
        ("Computes", [_part(rank, rank.compute_ns) for rank in ranks], "of the window"),
        (
            "Exposed communication",
            [_part(rank, rank.exposed_communication_ns) for rank in ranks],
            "without computation",
        ),
    ]
    step = KeyFigure("Median step", nanos(float(np.median(steps))), counted(len(steps), "step")) if steps else None
    made = [KeyFigure(title, share(float(np.median(parts))), several or note) for title, parts, note in shown]
    delays = [rank.launch_delay_ns.median for rank in ranks if rank.launch_delay_ns is not None]
    if delays:
        made.append(KeyFigure("Launch delay", nanos(float(np.median(delays))), several or "median, after the call"))
    return [*([step] if step else []), *made]


def _part(rank: RankProfile, part_ns: int) -> float:
    return part_ns / rank.window_ns if rank.window_ns else 0.0
