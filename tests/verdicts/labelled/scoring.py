"""One job's report held against its label."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tests.claims.check import Checked
from tests.verdicts.labelled import goals
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.ledger_checks import ledger_checks
from tests.verdicts.labelled.meeting import Span, meeting
from tests.verdicts.labelled.profile_files import start_of
from tests.verdicts.labelled.reported import Episode, Finding, Reported
from tests.verdicts.labelled.truth import Fault, Strength

HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class FaultScore:
    """What became of a planted fault.

    ``rule``, ``place`` (from 0), ``score`` and ``episode`` are of the finding that shows it, None without one.
    """

    kind: str
    strength: Strength
    rule: str | None = None
    place: int | None = None
    score: float | None = None
    episode: Episode | None = None
    checks: tuple[Check, ...] = ()

    @property
    def shown_by(self) -> tuple[int | None, Episode | None]:
        """The place and the episode of the finding that shows it."""
        return self.place, self.episode

    @property
    def found(self) -> bool:
        """Whether some finding shows it, by an episode that shows no more severe fault of the job."""
        return self.rule is not None


@dataclass(frozen=True, slots=True)
class JobScore:
    """What a report says about a labelled job.

    ``first`` is the rule that the verdict says to change first, None where nothing fired; ``first_is_right`` is None of
    a job without fault, and one whose most severe fault was missed. ``unexplained`` are findings beside a fault that
    it does not explain; ``together`` are the checks of several faults, ``ledger`` those of the ledger.
    ``claims`` is what was held against the raw data.
    """

    job: Job
    level: str
    first: str | None
    fired: tuple[str, ...]
    faults: tuple[FaultScore, ...]
    first_is_right: bool | None
    unexplained: tuple[str, ...]
    together: tuple[Check, ...]
    ledger: tuple[Check, ...] = ()
    claims: Checked = field(default_factory=Checked)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with what the report says."""
        if not self.faults:
            called = self.level == HEALTHY or not self.job.machine.gpus
            return not self.fired and called and all(check.holds for check in self.checks)
        found = all(fault.found for fault in self.faults) and self.first_is_right is True
        return found and not self.unexplained and all(check.holds for check in self.checks)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All that was checked of its findings."""
        return (*(check for fault in self.faults for check in fault.checks), *self.together, *self.ledger)


def scored(job: Job, report: Reported) -> JobScore:
    """Hold a report against the job's label."""
    alarms = report.findings
    faults: list[FaultScore] = []
    for fault in job.faults:
        faults.append(_fault_score(job, fault, report, [each.shown_by for each in faults]))
    explained = frozenset[str]().union(*(fault.label.seen_by | fault.may_stand_first for fault in job.faults))
    right = None
    if faults and faults[0].found:
        right = report.rule in job.faults[0].may_stand_first and faults[0].rule == report.rule
    return JobScore(
        job=job,
        level=report.level,
        first=report.rule,
        fired=tuple(finding.rule for finding in alarms),
        faults=tuple(faults),
        first_is_right=right,
        unexplained=tuple(each.rule for each in alarms if faults and each.rule not in explained),
        together=tuple(_together(job, faults, report)),
        ledger=tuple(ledger_checks(job, report)),
    )


def _together(job: Job, faults: Sequence[FaultScore], report: Reported) -> Iterator[Check]:
    """Check several faults of one job: the most severe finding comes first, and the job's cost is that of all."""
    if len(job.faults) > 1 and all(fault.found for fault in faults):
        least, most = (sum(fault.wasted[of] for fault in job.faults) for of in (0, 1))
        yield from _loss("job's loss", job, (least, most), report.claimed)
    shown = [(label, fault) for label, fault in zip(job.faults, faults, strict=True) if fault.found]
    for (more_severe, first), (other, second) in combinations(shown, 2):
        if more_severe.wasted[0] >= goals.MORE_SEVERE_COST * other.wasted[1] > 0.0:
            true, said = f"{more_severe.kind} before {other.kind}", f"{second.rule} before {first.rule}"
            yield Check("order", true, said, (first.place or 0) <= (second.place or 0))


def _fault_score(
    job: Job, fault: Fault, report: Reported, taken: Sequence[tuple[int | None, Episode | None]]
) -> FaultScore:
    """Return what became of a fault; ``taken`` are the episodes that show more severe ones: one verdict is not two."""
    shown = [
        (place, finding, episode)
        for place, finding in enumerate(report.findings)
        if finding.rule in fault.label.seen_by | fault.may_stand_first
        for episode in [meeting(finding, _span(job, fault))]
        if episode is not None and (place, episode) not in taken
    ]
    if not shown:
        return FaultScore(fault.kind, fault.strength)
    causes = [each for each in shown if each[1].rule in fault.may_stand_first]
    place, finding, episode = (causes or shown)[0]
    checks = [*_times(job, fault, episode), *_places(fault, episode), *_look(fault, finding)]
    checks += _loss("loss", job, fault.wasted, _lost(job, finding, episode))
    if len(job.faults) == 1:
        checks += _loss("job's loss", job, fault.wasted, report.claimed)
    return FaultScore(fault.kind, fault.strength, finding.rule, place, finding.score, episode, tuple(checks))


def _lost(job: Job, finding: Finding, episode: Episode) -> float | None:
    """Return what the finding lost in the fault's time, a share of the paid time: all of it, of one fault alone."""
    if len(job.faults) == 1 or episode.lost_s is None:
        return finding.lost
    return episode.lost_s / (60.0 * job.paid_min)


def _span(job: Job, fault: Fault) -> Span:
    end = job.minutes if fault.end_min is None else fault.end_min
    within_s = goals.START_WITHIN_S + goals.START_WITHIN_INTERVALS * job.interval_s
    return Span(start_of(job) + 60.0 * fault.onset_min, start_of(job) + 60.0 * end, within_s)


def _times(job: Job, fault: Fault, episode: Episode) -> list[Check]:
    span = _span(job, fault)
    checks = [_near("start", job, span.begin, episode.start, span.within_s)]
    if fault.end_min is not None:
        checks.append(_near("end", job, span.end, episode.end, span.within_s))
    return checks


def _look(fault: Fault, finding: Finding) -> list[Check]:
    """Check the kind of a finding: the engineer's advice depends on it."""
    true = fault.looks.get(finding.rule)
    if true is None:
        return []
    return [Check("kind", " or ".join(sorted(true)), f"{finding.rule} {finding.kind}", finding.kind in true)]


def _near(what: str, job: Job, true: float, said: float | None, within_s: float) -> Check:
    holds = said is not None and abs(said - true) <= within_s
    return Check(what, _minute(job, true), "nothing" if said is None else _minute(job, said), holds)


def _minute(job: Job, epoch_s: float) -> str:
    return f"minute {(epoch_s - start_of(job)) / 60.0:.1f}"


def _places(fault: Fault, episode: Episode) -> list[Check]:
    checks = []
    for what, planted, said in (
        ("node", {f"algo-{node}" for node in fault.nodes}, episode.nodes),
        ("gpu", {f"gpu{gpu}" for gpu in fault.gpus}, episode.gpus),
    ):
        if planted:
            holds = bool(said) and planted.issuperset(said)
            checks.append(Check(what, ", ".join(sorted(planted)), ", ".join(said) or "none", holds))
    return checks


def _loss(what: str, job: Job, wasted: tuple[float, float], lost: float | None) -> list[Check]:
    """Check a share of the paid time; ``wasted`` are the least and the most minutes of one instance that were lost."""
    least, most = (minutes / job.paid_min for minutes in wasted)
    if most == 0.0:
        return []
    said = "nothing" if lost is None else f"{100.0 * lost:.1f} %"
    within = goals.LOSS_WITHIN
    point = goals.LEDGER_WITHIN
    holds = (1.0 - within) * least - point <= (lost or 0.0) <= (1.0 + within) * most + point
    true = f"{100.0 * most:.1f} %" if least == most else f"{100.0 * least:.1f} to {100.0 * most:.1f} %"
    return [Check(what, true, said, holds)]
