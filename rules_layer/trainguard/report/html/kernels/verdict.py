"""The verdict of the page in a sentence, the numbers to be seen first, and what is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainguard.core.finding import Severity
from trainguard.core.units import counted
from trainguard.kernels.document import AcrossRanks, KernelProfiles, RankProfile
from trainguard.kernels.entries import Evidence, KernelFinding
from trainguard.kernels.memory.entries import SnapshotProfile
from trainguard.kernels.overview import summary_of
from trainguard.kernels.ranking import place_of
from trainguard.kernels.rules.finding import FAMILY
from trainguard.kernels.rules.ranks import by_rule
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.render.numbers import nanos, share
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.page import Badge, KeyFigure

NAMED_RANKS = 8


# A finding of the rank where it explains most, as the template reads it.
#
# ``rule`` is without its family, ``gain`` says what can be won, ``where`` has the other ranks, and ``process`` is its
# place in the timeline.
ShownFinding = Mapping[str, Any]


def _shown(
    finding: KernelFinding,
    severity: Severity,
    evidence: Sequence[Evidence],
    *,
    by_step: bool,
    where: str | None,
    process: int | None = None,
) -> ShownFinding:
    gain, each = finding.gain, "of each step" if by_step else "of the window"
    won = f"{nanos(gain.ns_per_step)} {each}, {share(gain.share)} of the time" if gain.ns_per_step else None
    return {
        "finding": finding,
        "rule": finding.id.removeprefix(FAMILY),
        "severity": severity,
        "gain": won,
        "where": where,
        "evidence": evidence,
        "process": process,
    }


def shown_findings(
    ranks: Sequence[RankProfile | SnapshotProfile], drawn: Sequence[RankProfile], across: AcrossRanks | None = None
) -> list[ShownFinding]:
    """Return a finding a rule, in the order of `trainguard.kernels.ranking`.

    ``ranks`` are traces and snapshots, ``drawn`` the ranks that the timeline shows, in its order; ``across`` is what
    fires across the ranks.
    """
    places = {rank.trace: place for place, rank in enumerate(drawn)}
    shown = []
    for entries in by_rule(ranks, across).values():
        of_ranks = [(rank, finding) for rank, finding in entries if rank is not None]
        if of_ranks:
            shown.append(_of_ranks(of_ranks, len(ranks), places))
        if between := [finding for rank, finding in entries if rank is None]:
            shown.append(_between_ranks(between))

    def place(each: ShownFinding) -> tuple[Any, ...]:
        gain, sure = each["finding"].gain, each["finding"].confidence == "normal"
        return place_of(
            each["rule"], sure=sure, gain_share=gain.share, severity=each["severity"], gain_ns=gain.ns_per_step
        )

    return sorted(shown, key=place)


def _of_ranks(
    entries: list[tuple[RankProfile | SnapshotProfile, KernelFinding]], ranks: int, places: dict[str, int]
) -> ShownFinding:
    sure = [each for each in entries if each[1].confidence == "normal"] or entries
    rank, finding = max(sure, key=lambda each: (each[1].gain.share, each[1].severity.rank))
    return _shown(
        finding,
        max((each.severity for _, each in sure), key=lambda each: each.rank),
        finding.evidence,
        by_step=isinstance(rank, RankProfile) and bool(rank.steps),
        where=_where([each for each, _ in entries], rank, ranks) if ranks > 1 else None,
        process=places.get(rank.trace),
    )


def _between_ranks(entries: Sequence[KernelFinding]) -> ShownFinding:
    first = max(entries, key=lambda each: (each.severity.rank, each.gain.share))
    others = [each for each in entries if each is not first]
    evidence = [line for each in (first, *others[: NAMED_RANKS - 1]) for line in each.evidence]
    where = f"{len(entries):,} findings; the numbers are those of the first" if others else None
    return _shown(first, first.severity, evidence, by_step=True, where=where)


def _where(having: list[RankProfile | SnapshotProfile], worst: RankProfile | SnapshotProfile, ranks: int) -> str:
    named = ", ".join(rank_name(each).removeprefix("rank ") for each in having[:NAMED_RANKS])
    more = f" and {len(having) - NAMED_RANKS:,} more" if len(having) > NAMED_RANKS else ""
    return f"{len(having):,} of {counted(ranks, 'rank')} ({named}{more}); the numbers are those of {rank_name(worst)}"


CAUSES = 2


def shown_verdict(document: KernelProfiles, findings: Sequence[ShownFinding]) -> tuple[Badge, str]:
    """Return the verdict: which findings are the severest, and how much of a step the first ones explain."""
    judged = [each for each in findings if each["rule"] != TraceQuality.__name__]
    verdict = summary_of(document, [(each["rule"], each["severity"]) for each in judged])
    gains = [f"{each['rule']}: {each['gain']}." for each in judged[:CAUSES] if each["gain"] is not None]
    return (verdict.word, verdict.tone), " ".join([*verdict.sentences, *gains])


def key_figures(ranks: Sequence[RankProfile]) -> list[KeyFigure]:
    several = f"median of {counted(len(ranks), 'rank')}" if len(ranks) > 1 else ""
    steps = [step.gpu_duration_ns for rank in ranks for step in rank.steps]
    made = [("Median step", nanos(float(np.median(steps))), counted(len(steps), "step"))] if steps else []
    for title, field, note in (
        ("GPU busy", "busy_ns", "of the window"),
        ("Computes", "compute_ns", "of the window"),
        ("Exposed communication", "exposed_communication_ns", "without computation"),
    ):
        parts = [getattr(rank, field) / rank.window_ns if rank.window_ns else 0.0 for rank in ranks]
        made.append((title, share(float(np.median(parts))), several or note))
    delays = [rank.launch_delay_ns.median for rank in ranks if rank.launch_delay_ns is not None]
    if delays:
        made.append(("Launch delay", nanos(float(np.median(delays))), several or "median, after the call"))
    return made


MOST_FILES = 20


def lacking(ranks: Sequence[RankProfile]) -> list[tuple[str, str]]:
    """Return pairs of a trace, or how many, and what it lacks or what is damaged in it."""
    by_line: dict[str, list[str]] = {}
    for rank in ranks:
        for line in (*rank.quality.missing, *rank.quality.damaged):
            by_line.setdefault(line, []).append(rank_name(rank))
    lines = []
    for line, names in by_line.items():
        who = names[0] if len(names) == 1 else "all ranks" if len(names) == len(ranks) else counted(len(names), "rank")
        lines.append((who, f"{line[:1].upper()}{line[1:]}."))
    return lines if len(lines) <= MOST_FILES else [*lines[:MOST_FILES], ("Others", "kernels.json has them.")]
