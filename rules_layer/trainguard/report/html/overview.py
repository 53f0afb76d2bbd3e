"""The top of the page: the verdict in a word, key figures, the job's phases, and the table of rules."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.finding import Severity
from trainguard.records import Status
from trainguard.report.document import FindingEntry, JobSummary, NodeCoverage, Parameter, Report, RuleEntry, Span
from trainguard.report.html.names import shown_name
from trainguard.report.html.numbers import NOTHING, count, duration, money, share
from trainguard.report.html.plots.strips import parts_of_whole
from trainguard.report.html.sections.build import Section, anchor_of, has_fired
from trainguard.rules.parameters import UNSHOWN
from trainguard.rules.registry import spec_of
from trainguard.rules.units import faults_counted

LEVELS: Mapping[str, tuple[str, str]] = {
    "healthy": ("Healthy", "ok"),
    "attention": ("Needs attention", "warn"),
    "unhealthy": ("Unhealthy", "bad"),
    "unknown": ("Not known yet", "idle"),
}
"""The verdict's word, and the tone that it is shown in."""

STATUSES: Mapping[str, tuple[str, str]] = {
    Status.FIRED: ("fired", "bad"),
    Status.ERROR: ("error", "bad"),
    Status.OK: ("ok", "ok"),
    Status.WARMING_UP: ("warming up", "idle"),
    Status.WAITING_FOR_DATA: ("no data yet", "idle"),
    Status.NOT_APPLICABLE: ("not applicable", "idle"),
    Status.DISABLED: ("disabled", "idle"),
}
SEVERITIES: Mapping[str, str] = {
    Severity.CRITICAL: "bad",
    Severity.HIGH: "high",
    Severity.MEDIUM: "warn",
    Severity.LOW: "low",
}
PHASES = (
    ("initialization", "initialization", "s2"),
    ("training_loop", "training loop", "s1"),
    ("finalization", "finalization", "s3"),
)


@dataclass(frozen=True, slots=True)
class Badge:
    """A word in a tone: its icon is the tone's, so that colour alone says nothing."""

    word: str
    tone: str


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number to be seen first, what it is, and a few words more."""

    title: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule as the table shows it; ``anchor`` is where its section is, or the line's own when it has none.

    What a rule has found is told by its finding, here as everywhere on the page: ``measured`` is the worst value of its
    episodes, and of a rule that has found nothing what it measured last.
    """

    entry: RuleEntry
    status: Badge
    severity: Badge | None
    anchor: str
    has_section: bool
    parameters: Sequence[tuple[str, str, bool]]
    finding: FindingEntry | None
    measured: float | None

    @property
    def reason(self) -> str:
        """What the rule has found, else how it judges."""
        return self.entry.reason if self.finding is None else self.finding.reason

    @property
    def advice(self) -> str:
        """What to do, else how it judges."""
        said = self.entry.recommendation if self.finding is None else self.finding.advice or self.entry.recommendation
        return self.reason if said is None else said

    @property
    def episodes(self) -> int:
        """How many episodes there were."""
        if self.finding is None or not self.finding.episodes:
            return self.entry.times_fired
        return len(self.finding.episodes) + self.finding.earlier_episodes

    @property
    def threshold_unit(self) -> str | None:
        """The unit as it stands at the threshold, below what was measured: a long one is not written twice."""
        unit = self.entry.unit
        return unit if unit is not None and len(unit) <= SHORT_UNIT else None


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """A stream of a node: what was not used of it, worst fault first."""

    entry: NodeCoverage
    missing: str
    faults: str


@dataclass(frozen=True, slots=True)
class Overview:
    """What the top of the page shows."""

    level: Badge
    figures: Sequence[KeyFigure]
    phases: Markup | None
    spans: Sequence[tuple[str, Span]]
    rules: Sequence[RuleLine]
    coverage: Sequence[CoverageLine]
    coverage_left_out: int

    @property
    def counts(self) -> str:
        """How many rules there are of each status, in a sentence."""
        held = Counter(line.status.word for line in self.rules)
        parts = ", ".join(f"{amount} {word}" for word, amount in held.most_common())
        return f"{len(self.rules)} rules: {parts}."

    def anchor_of(self, rule: str) -> str | None:
        """Return where a rule is on the page, None for one that is not."""
        return next((line.anchor for line in self.rules if line.entry.rule == rule), None)

    def line_of(self, entry: RuleEntry) -> RuleLine:
        """Return a rule's line."""
        return next(line for line in self.rules if line.entry is entry)


COVERAGE_AT_MOST = 600
SHORT_UNIT = 6
_GAPS = "gaps"


def overview_of(report: Report, sections: Sequence[Section]) -> Overview:
    """Prepare the top of the page."""
    spans = [(title, span) for field, title, _ in PHASES if (span := getattr(report.job, field)) is not None]
    anchors = {id(section.entry): section.anchor for section in sections}
    findings = {finding.rule: finding for finding in report.findings}
    return Overview(
        level=_level(report),
        figures=_figures(report),
        phases=_phase_bar(report.job),
        spans=spans,
        rules=[
            _rule(entry, findings.get(entry.rule), anchors.get(id(entry)), place, final=report.final)
            for place, entry in enumerate(report.rules)
        ],
        coverage=[_coverage(entry) for entry in _ordered(report.coverage)[:COVERAGE_AT_MOST]],
        coverage_left_out=max(len(report.coverage) - COVERAGE_AT_MOST, 0),
    )


def _level(report: Report) -> Badge:
    """Return the verdict's word; what is not known of a job that was evaluated to its end stays unknown."""
    word, tone = LEVELS.get(report.verdict.level, LEVELS["unknown"])
    return Badge(word.removesuffix(" yet") if report.final else word, tone)


def severity_badge(severity: str | None) -> Badge | None:
    """Return the badge of a severity, None for none."""
    return None if severity is None else Badge(severity, SEVERITIES.get(severity, "idle"))


def status_badge(entry: RuleEntry, *, ongoing: bool, final: bool) -> Badge:
    """Return the badge of a rule's status; while the job runs, one that has fired says whether that is over.

    A job that has ended warms up no more: it was too short for a verdict.
    """
    if entry.status != Status.ERROR and has_fired(entry):
        return Badge("fired", "bad") if ongoing or final else Badge("fired, over", "warn")
    if final and entry.status == Status.WARMING_UP:
        return Badge("too short", "idle")
    return Badge(*STATUSES.get(entry.status, (shown_name(entry.status.lower(), 24), "idle")))


def _figures(report: Report) -> list[KeyFigure]:
    """Return what the job cost, how much of it was wasted, how large it was, and how long it took."""
    verdict, job, cost = report.verdict, report.job, report.cost
    paid = cost.note if cost.spent is None else "of all nodes"
    figures = [KeyFigure("Cost so far" if not report.final else "Cost", money(cost.spent, cost.currency), paid)]
    lost = money(verdict.lost, cost.currency)
    wasted = "of the paid time" if verdict.lost is None else f"{lost} of the paid time"
    figures.append(KeyFigure("Wasted", share(verdict.wasted_share), wasted))
    nodes = "" if job.instance_count is None else f"{count(job.instance_count)} \N{MULTIPLICATION SIGN} "
    if job.gpus or report.training is None:
        kind = f"{nodes}{shown_name(job.instance_type or 'instance type unknown')}"
        figures.append(KeyFigure("GPUs", count(job.gpus), kind))
    else:
        figures.append(KeyFigure("Saved steps", count(report.training.steps), "of the training"))
    judged = "so far" if not report.final else f"{count(job.steps)} steps" if job.steps else "from start to end"
    figures.append(KeyFigure("Duration", duration(job.duration_s), judged))
    return [each for each in figures if each.value != NOTHING or each.title.startswith("Cost")]


def _phase_bar(job: JobSummary) -> Markup | None:
    """Draw initialization, training loop and finalization; None when the job's steps are not known."""
    spans = [(title, span, tone) for field, title, tone in PHASES if (span := getattr(job, field)) is not None]
    total = sum(span.duration_s for _, span, _ in spans)
    if not total:
        return None
    parts = [(title, span.duration_s / total, tone) for title, span, tone in spans]
    said = ", ".join(f"{title} {duration(span.duration_s)}" for title, span, _ in spans)
    return parts_of_whole(parts, said=f"The job's time: {said}")


def _rule(entry: RuleEntry, finding: FindingEntry | None, anchor: str | None, place: int, *, final: bool) -> RuleLine:
    changed = set(entry.changed)
    set_ones = [item for item in entry.parameters.items() if item[1] is not None]
    told = [item for item in set_ones if item[0] not in UNSHOWN or item[0] in changed]
    ordered = sorted(told, key=lambda item: item[0] not in changed)
    return RuleLine(
        entry=entry,
        status=status_badge(entry, ongoing=_is_ongoing(entry, finding), final=final),
        severity=severity_badge(entry.severity if finding is None else finding.severity),
        anchor=anchor or anchor_of(entry.rule, place),
        has_section=anchor is not None,
        parameters=[(name, _setting(entry.rule, name, value), name in changed) for name, value in ordered],
        finding=finding,
        measured=entry.measured if finding is None else _worst(entry, finding),
    )


def _is_ongoing(entry: RuleEntry, finding: FindingEntry | None) -> bool:
    return entry.status == Status.FIRED if finding is None else finding.ongoing


def _worst(entry: RuleEntry, finding: FindingEntry) -> float | None:
    """Return what the episodes measured furthest from the threshold; what the rule measured last where none says."""
    measured = [each.measured for each in finding.episodes if each.measured is not None]
    return max(measured, key=lambda value: abs(value - (entry.threshold or 0.0)), default=entry.measured)


def _setting(rule: str, name: str, value: Parameter) -> str:
    """Write a parameter with its unit, where it is a number that has one."""
    if isinstance(value, str) or value is None:
        return NOTHING if value is None else value
    if isinstance(value, bool | list):
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value).lower()
    written = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    said = spec_of(rule).parameters.get(name)
    return written if said is None else f"{written} {said.unit}".strip()


def _ordered(coverage: Sequence[NodeCoverage]) -> list[NodeCoverage]:
    """Order streams with faults first, then by what is missing."""
    return sorted(
        coverage, key=lambda entry: (entry.last_fault is None, entry.share if entry.share is not None else 1.0)
    )


def _coverage(entry: NodeCoverage) -> CoverageLine:
    gaps = entry.counters.get(_GAPS, 0)
    faults = {name: held for name, held in entry.counters.items() if held and name not in {_GAPS, *HARMLESS_COUNTERS}}
    ranked = sorted(faults.items(), key=lambda item: -item[1])
    said = ", ".join(shown_name(faults_counted(held, name)) for name, held in ranked)
    return CoverageLine(entry, f"{count(gaps)} min" if gaps else "none", said or "none")
