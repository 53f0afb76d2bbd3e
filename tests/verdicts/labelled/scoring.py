"""One job's report held against its label."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tests.claims.check import Checked
from tests.verdicts.labelled import goals
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.meeting import Span, meeting
from tests.verdicts.labelled.profile_files import start_of
from tests.verdicts.labelled.reported import Episode, Finding, Reported
from tests.verdicts.labelled.sentences import ended_checks, finding_checks, sentence_checks
from tests.verdicts.labelled.truth import Fault, Strength

_CLOCK = re.compile(r"(?<![\d:.])([01]?\d|2[0-3]):([0-5]\d)(?![\d.])")
_EVALUATED = re.compile(r"By [\d: -]+ UTC:")
"""Up to when the job was evaluated, which is no time of a fault."""

_DAY_S = 86_400.0


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
        """Whether some finding shows it, by an episode that shows no graver fault of the job."""
        return self.rule is not None


@dataclass(frozen=True, slots=True)
class JobScore:
    """What a report says of a labelled job.

    ``first`` is the rule that stands first, None where nothing fired; ``first_is_right`` is None of a job without
    fault, and of one whose gravest fault was not found. ``unexplained`` are findings beside a fault that it does not
    explain; ``together`` are the checks of several faults, and ``claims`` what was held against the raw data.
    """

    job: Job
    level: str
    health: str
    first: str | None
    fired: tuple[str, ...]
    faults: tuple[FaultScore, ...]
    first_is_right: bool | None
    unexplained: tuple[str, ...]
    together: tuple[Check, ...]
    claims: Checked = field(default_factory=Checked)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with what the report says."""
        if not self.faults:
            return not self.fired
        found = all(fault.found for fault in self.faults) and self.first_is_right is True
        return found and not self.unexplained and all(check.holds for check in self.checks)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All that was checked of its findings."""
        return (*(check for fault in self.faults for check in fault.checks), *self.together)


def scored(job: Job, report: Reported) -> JobScore:
    """Hold a report against the job's label."""
    alarms = report.alarms
    faults: list[FaultScore] = []
    for fault in job.faults:
        faults.append(_fault_score(job, fault, report, [each.shown_by for each in faults]))
    explained = frozenset[str]().union(*(fault.label.seen_by | fault.may_stand_first for fault in job.faults))
    first = alarms[0].rule if alarms else None
    right = None
    if faults and faults[0].found:
        right = first in job.faults[0].may_stand_first and faults[0].place == 0
    return JobScore(
        job=job,
        level=report.level,
        health=report.health,
        first=first,
        fired=tuple(finding.rule for finding in alarms),
        faults=tuple(faults),
        first_is_right=right,
        unexplained=tuple(each.rule for each in alarms if faults and each.rule not in explained),
        together=(*_together(job, faults, report), *ended_checks(report)),
    )


def _together(job: Job, faults: Sequence[FaultScore], report: Reported) -> Iterator[Check]:
    """Check several faults of one job: the finding of the graver comes first, and the job's cost is that of all."""
    if len(job.faults) > 1 and all(fault.found for fault in faults):
        least, most = (sum(fault.wasted[of] for fault in job.faults) for of in (0, 1))
        yield from _cost("job's cost", job, (least, most), report.lost)
    shown = [(label, fault) for label, fault in zip(job.faults, faults, strict=True) if fault.found]
    for (graver, first), (other, second) in combinations(shown, 2):
        if graver.wasted[0] >= goals.GRAVER_COST * other.wasted[1] > 0.0:
            true, said = f"{graver.kind} before {other.kind}", f"{second.rule} before {first.rule}"
            yield Check("order", true, said, (first.place or 0) <= (second.place or 0))


def _fault_score(
    job: Job, fault: Fault, report: Reported, taken: Sequence[tuple[int | None, Episode | None]]
) -> FaultScore:
    """Return what became of a fault; ``taken`` are the episodes that show graver ones: one verdict is not two."""
    shown = [
        (place, finding, episode)
        for place, finding in enumerate(report.alarms)
        if finding.rule in fault.label.seen_by | fault.may_stand_first
        for episode in [meeting(finding, _span(job, fault))]
        if episode is not None and (place, episode) not in taken
    ]
    if not shown:
        return FaultScore(fault.kind, fault.strength)
    causes = [each for each in shown if each[1].rule in fault.may_stand_first]
    place, finding, episode = (causes or shown)[0]
    checks = [*_times(job, fault, finding, episode), *_places(fault, episode)]
    checks += _cost("cost", job, fault.wasted, episode.lost)
    if len(job.faults) == 1:
        checks += _cost("job's cost", job, fault.wasted, report.lost)
        checks += sentence_checks(job, fault, finding, report)
    else:
        checks += finding_checks(fault, finding)
    return FaultScore(fault.kind, fault.strength, finding.rule, place, finding.score, episode, tuple(checks))


def _span(job: Job, fault: Fault) -> Span:
    end = job.minutes if fault.end_min is None else fault.end_min
    within_s = goals.START_WITHIN_S + goals.START_WITHIN_INTERVALS * job.interval_s
    return Span(start_of(job) + 60.0 * fault.onset_min, start_of(job) + 60.0 * end, within_s)


def _times(job: Job, fault: Fault, finding: Finding, episode: Episode) -> list[Check]:
    span = _span(job, fault)
    checks = [_near("start", job, span.begin, episode.start, span.within_s)]
    if fault.end_min is not None and finding.told:
        checks.append(_near("end", job, span.end, episode.end, span.within_s))
    spans = [_span(job, each) for each in job.faults]
    for hour, minute in _CLOCK.findall(_EVALUATED.sub("", finding.reason)):
        clock = 3600.0 * int(hour) + 60.0 * int(minute)
        holds = any(_on_the_clock(clock, each) for each in spans)
        checks.append(Check("clock", "a time within a planted fault", f"{hour}:{minute}", holds))
    return checks


def _on_the_clock(clock_s: float, span: Span) -> bool:
    """Return whether a time of day lies in a span."""
    return (clock_s - span.begin + span.within_s) % _DAY_S <= span.end - span.begin + 2.0 * span.within_s


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


def _cost(what: str, job: Job, wasted: tuple[float, float], lost: float | None) -> list[Check]:
    """Check a cost; ``wasted`` are the least and the most minutes of one instance that were lost."""
    least, most = (job.usd(minutes) for minutes in wasted)
    if most == 0.0:
        return []
    said = "nothing" if lost is None else f"USD {lost:.2f}"
    share = goals.COST_WITHIN
    holds = lost is not None and (1.0 - share) * least <= lost <= (1.0 + share) * most
    return [Check(what, f"USD {least:.2f} to {most:.2f}" if least < most else f"USD {most:.2f}", said, holds)]
