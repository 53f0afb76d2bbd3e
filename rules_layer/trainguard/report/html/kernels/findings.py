"""The findings of all ranks as a page shows them: one entry a rule, by what it explains."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainguard.kernels.document import RankProfile
from trainguard.kernels.findings.finding import FAMILY, Evidence, KernelFinding
from trainguard.kernels.findings.trace_quality import TRACE_QUALITY
from trainguard.kernels.ranks.entries import AcrossRanks
from trainguard.kernels.ranks.late import beside_late_rank
from trainguard.kernels.words import counted
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos
from trainguard.report.html.numbers import share
from trainguard.report.html.overview import SEVERITIES, Badge

NAMED_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of evidence; ``process``, ``start`` and ``end`` say which stretch of the timeline, in ns.

    ``shows`` is what the stretch is: the evidence itself, or the longest of several.
    """

    what: str
    where: str
    duration: str
    process: int | None = None
    start: int = 0
    end: int = 0
    shows: str = "Show in the timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """A finding: of the rank where it explains most, with the severest severity and the ranks that have it.

    ``share`` is the part of the window that only it explains, ``rank`` that of the severity.
    """

    anchor: str
    rule: str
    severity: Badge
    summary: str
    gain: str | None
    ranks: str | None
    recommendation: str
    unsure: bool
    evidence: Sequence[Line]
    share: float
    rank: int


def shown_findings(
    ranks: Sequence[RankProfile], drawn: Sequence[RankProfile], across: AcrossRanks | None = None
) -> list[ShownFinding]:
    """Return a finding a rule: by what it explains in whole percents, then by severity; the trace's quality comes last.

    Parameters
    ----------
    ranks : sequence of RankProfile
    drawn : sequence of RankProfile
        Those that the timeline shows, in its order.
    across : AcrossRanks, optional
        What fires across the ranks.
    """
    found: dict[str, list[tuple[RankProfile, KernelFinding]]] = {}
    for rank in ranks:
        for finding in beside_late_rank(rank.findings, across):
            found.setdefault(finding.id, []).append((rank, finding))
    places = {rank.trace: place for place, rank in enumerate(drawn)}
    shown = [_shown(entries, len(ranks), places) for entries in found.values()]
    shown += _between(across)
    quality = TRACE_QUALITY.removeprefix(FAMILY)
    return sorted(shown, key=lambda each: (each.rule == quality, -round(each.share, 2), -each.rank, each.rule))


def _shown(entries: list[tuple[RankProfile, KernelFinding]], ranks: int, places: dict[str, int]) -> ShownFinding:
    rank, finding = max(entries, key=lambda each: (each[1].gain.share, each[1].severity.rank))
    severest = max((each.severity for _, each in entries), key=lambda each: each.rank)
    rule = finding.id.removeprefix(FAMILY)
    return ShownFinding(
        anchor=f"finding-{rule}",
        rule=rule,
        severity=Badge(severest, SEVERITIES.get(severest, "idle")),
        summary=finding.summary,
        gain=_gain(finding, by_step=bool(rank.steps)),
        ranks=_where([each for each, _ in entries], rank, ranks) if ranks > 1 else None,
        recommendation=finding.recommendation,
        unsure=finding.confidence == "low",
        evidence=[_line(each, places.get(rank.trace)) for each in finding.evidence],
        share=finding.gain.share,
        rank=severest.rank,
    )


def _between(across: AcrossRanks | None) -> list[ShownFinding]:
    """Return what fires across ranks: one a rule, the severest, and how many it has."""
    found: dict[str, list[KernelFinding]] = {}
    for finding in [] if across is None else across.findings:
        found.setdefault(finding.id, []).append(finding)
    return [_of_several(entries) for entries in found.values()]


def _of_several(entries: Sequence[KernelFinding]) -> ShownFinding:
    first = max(entries, key=lambda each: (each.severity.rank, each.gain.share))
    rule = first.id.removeprefix(FAMILY)
    others = [each for each in entries if each is not first]
    return ShownFinding(
        anchor=f"finding-{rule}",
        rule=rule,
        severity=Badge(first.severity, SEVERITIES.get(first.severity, "idle")),
        summary=first.summary,
        gain=_gain(first, by_step=True),
        ranks=f"{len(entries):,} findings; the numbers are those of the first" if others else None,
        recommendation=first.recommendation,
        unsure=first.confidence == "low",
        evidence=[_line(line, None) for each in (first, *others[: NAMED_RANKS - 1]) for line in each.evidence],
        share=first.gain.share,
        rank=first.severity.rank,
    )


def _gain(finding: KernelFinding, *, by_step: bool) -> str | None:
    if not finding.gain.ns_per_step:
        return None
    each = "of each step" if by_step else "of the window"
    return f"{nanos(finding.gain.ns_per_step)} {each}, {share(finding.gain.share)} of the time"


def _where(having: list[RankProfile], worst: RankProfile, ranks: int) -> str:
    named = ", ".join(rank_name(each).removeprefix("rank ") for each in having[:NAMED_RANKS])
    more = f" and {len(having) - NAMED_RANKS:,} more" if len(having) > NAMED_RANKS else ""
    return f"{len(having):,} of {counted(ranks, 'rank')} ({named}{more}); the numbers are those of {rank_name(worst)}"


def _line(evidence: Evidence, process: int | None) -> Line:
    times = f", {counted(evidence.count, 'time')}" if evidence.count > 1 else ""
    start, lasts = evidence.start_ns, evidence.duration_ns
    if start is None and evidence.longest_ns is not None:
        start, lasts = evidence.longest_start_ns, evidence.longest_ns
    return Line(
        what=evidence.what,
        where="" if evidence.step is None else f"step {evidence.step}",
        duration=nanos(evidence.duration_ns) + times if evidence.duration_ns else "",
        process=process if start is not None and lasts else None,
        start=start or 0,
        end=(start or 0) + lasts,
        shows="Show the longest in the timeline" if evidence.count > 1 else "Show in the timeline",
    )
