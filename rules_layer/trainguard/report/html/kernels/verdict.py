"""The verdict of the page in a sentence, and the numbers to be seen first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainguard.core.finding import Severity
from trainguard.kernels.columns import is_cut
from trainguard.kernels.document import JobEntry, KernelProfiles, RankProfile
from trainguard.kernels.ranks.entries import AcrossRanks
from trainguard.kernels.rules.finding import FAMILY, Evidence, KernelFinding
from trainguard.kernels.rules.ranks import beside_late_rank
from trainguard.kernels.rules.trace_quality import TraceQuality
from trainguard.kernels.timeline.build import DEEPEST, Timeline
from trainguard.kernels.words import are, counted
from trainguard.render.names import shown_name
from trainguard.render.numbers import share
from trainguard.report.html.kernels.island import nanos, rank_name
from trainguard.report.html.page import KeyFigure
from trainguard.report.html.rule_sections import SEVERITIES, Badge

NAMED_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of evidence; ``start`` and ``end`` are in ns, ``shows`` names the stretch of the timeline."""

    what: str
    where: str
    duration: str
    process: int | None = None
    start: int = 0
    end: int = 0
    shows: str = "Show in the timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """A finding of the rank where it explains most; ``where`` names the others, ``unsure`` means too few steps."""

    finding: KernelFinding
    severity: Severity
    gain: str | None
    where: str | None
    evidence: Sequence[Line]

    @property
    def rule(self) -> str:
        """The rule without its family."""
        return self.finding.id.removeprefix(FAMILY)

    @property
    def anchor(self) -> str:
        """Where the finding is on the page."""
        return f"finding-{self.rule}"

    @property
    def badge(self) -> Badge:
        """The severity in its tone."""
        return Badge(self.severity, SEVERITIES.get(self.severity, "idle"))

    @property
    def unsure(self) -> bool:
        """Whether it is from too few steps."""
        return self.finding.confidence == "low"


def shown_findings(
    ranks: Sequence[RankProfile], drawn: Sequence[RankProfile], across: AcrossRanks | None = None
) -> list[ShownFinding]:
    """Return a finding a rule: by what it explains, then by severity; the trace's quality comes last.

    ``drawn`` are the ranks that the timeline shows, in its order; ``across`` is what fires across the ranks.
    """
    found: dict[str, list[tuple[RankProfile, KernelFinding]]] = {}
    for rank in ranks:
        for finding in beside_late_rank(rank.findings, across):
            found.setdefault(finding.id, []).append((rank, finding))
    between: dict[str, list[KernelFinding]] = {}
    for finding in [] if across is None else across.findings:
        between.setdefault(finding.id, []).append(finding)
    places = {rank.trace: place for place, rank in enumerate(drawn)}
    shown = [_of_ranks(entries, len(ranks), places) for entries in found.values()]
    shown += [_between_ranks(entries) for entries in between.values()]
    quality = TraceQuality.__name__
    return sorted(
        shown,
        key=lambda each: (each.rule == quality, -round(each.finding.gain.share, 2), -each.severity.rank, each.rule),
    )


def _of_ranks(entries: list[tuple[RankProfile, KernelFinding]], ranks: int, places: dict[str, int]) -> ShownFinding:
    rank, finding = max(entries, key=lambda each: (each[1].gain.share, each[1].severity.rank))
    return ShownFinding(
        finding=finding,
        severity=max((each.severity for _, each in entries), key=lambda each: each.rank),
        gain=_gain(finding, by_step=bool(rank.steps)),
        where=_where([each for each, _ in entries], rank, ranks) if ranks > 1 else None,
        evidence=[_line(each, places.get(rank.trace)) for each in finding.evidence],
    )


def _between_ranks(entries: Sequence[KernelFinding]) -> ShownFinding:
    first = max(entries, key=lambda each: (each.severity.rank, each.gain.share))
    others = [each for each in entries if each is not first]
    return ShownFinding(
        finding=first,
        severity=first.severity,
        gain=_gain(first, by_step=True),
        where=f"{len(entries):,} findings; the numbers are those of the first" if others else None,
        evidence=[_line(line, None) for each in (first, *others[: NAMED_RANKS - 1]) for line in each.evidence],
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


CAUSES = 2

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
    judged = [each for each in findings if each.rule != TraceQuality.__name__]
    if not judged:
        sentence = f"{' '.join(sentences)} No rule fired."
        return Verdict("idle", "Judged in part", sentence) if cut else Verdict("ok", "Healthy", sentence)
    severest = max(each.severity.rank for each in judged)
    if severest >= Severity.MEDIUM.rank:
        having = [each for each in judged if each.severity.rank == severest]
        sentences.append(f"Of {having[0].severity} severity: {', '.join(each.rule for each in having)}.")
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


LONGEST = 200


@dataclass(frozen=True, slots=True)
class JobHead:
    """Pairs of a name and a value."""

    facts: Sequence[tuple[str, str]]
    hyperparameters: Sequence[tuple[str, str]]
    left_out: int


def job_head(job: JobEntry | None) -> JobHead | None:
    """Return the job's status, ARN, instances and hyperparameters; None where nothing is known of it."""
    if job is None:
        return None
    facts = [("Status when judged", job.status), ("ARN", job.arn)]
    if job.instance_type is not None:
        count = "" if job.instance_count is None else f"{job.instance_count:,} of "
        facts.append(("Instances", f"{count}{job.instance_type}"))
    return JobHead(
        facts=[(name, shown_name(value, LONGEST)) for name, value in facts],
        hyperparameters=[(shown_name(name), shown_name(value, LONGEST)) for name, value in job.hyperparameters.items()],
        left_out=job.hyperparameters_left_out,
    )


MOST_FILES = 20


def missing_lines(document: KernelProfiles) -> list[tuple[str, str]]:
    """Return pairs of a trace and what it lacks, what is damaged in it, or why it could not be read."""
    ranks = document.ranks
    found = [(rank_name(rank), line) for rank in ranks for line in (*rank.quality.missing, *rank.quality.damaged)]
    lines = _grouped(found, len(ranks))
    unread = [(name, f"It was not read: {reason}.") for name, reason in document.unread.items()]
    if len(unread) > MOST_FILES:
        unread = [
            *unread[:MOST_FILES],
            (f"{len(unread) - MOST_FILES:,} more files", "They were not read; kernels.json says why."),
        ]
    joined = document.ranks_left_out
    more = [(f"{joined:,} more ranks", "They are in the table of ranks alone.")] if joined else []
    return [*unread, *more, *lines]


def _grouped(found: Sequence[tuple[str, str]], ranks: int) -> list[tuple[str, str]]:
    by_line: dict[str, list[str]] = {}
    for name, line in found:
        by_line.setdefault(line, []).append(name)
    lines = []
    for line, names in by_line.items():
        who = names[0] if len(names) == 1 else "all ranks" if len(names) == ranks else counted(len(names), "rank")
        lines.append((who, f"{line[:1].upper()}{line[1:]}."))
    return (
        lines[:MOST_FILES] if len(lines) <= MOST_FILES else [*lines[:MOST_FILES], ("Others", "kernels.json has them.")]
    )


def timeline_notes(document: KernelProfiles, drawn: Sequence[tuple[RankProfile, Timeline]], omitted: int) -> list[str]:
    """Return sentences on what the timeline leaves out or shows coarsely."""
    notes = []
    left = len(document.ranks) - len(drawn)
    if left:
        shown = f"The timeline has {counted(len(drawn), 'rank')}; " if drawn else ""
        notes.append(f"{shown}{are(left, 'rank')} not drawn. `trainguard kernels` with one trace draws that rank.")
    for rank, timeline in drawn:
        who = f"{rank_name(rank)}: " if len(drawn) > 1 else ""
        notes += [f"{who}{line}" for line in _of(timeline)]
    if omitted:
        notes.append(
            f"{omitted:,} names are left out, as all together would be too large; kernels.json has those of kernels."
        )
    return notes


def _of(timeline: Timeline) -> list[str]:
    left, notes = timeline.left_out, []
    if left.joined:
        held = sum(end - start for start, end in timeline.detail)
        notes.append(
            f"every event of {nanos(held)} is drawn, the slowest step first. "
            f"Elsewhere {left.joined:,} short events are drawn as {left.joins:,} rectangles."
        )
    if left.lanes:
        notes.append(f"{are(left.lanes, 'lane')} left out, with the least time and {counted(left.lane_rows, 'event')}.")
    if left.deep:
        notes.append(f"{are(left.deep, 'event')} left out, inside of more than {DEEPEST} others.")
    if left.outside:
        notes.append(f"{are(left.outside, 'event')} left out, before or after the window.")
    return notes
