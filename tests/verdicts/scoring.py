"""One job's report held against its label."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.verdicts import goals
from tests.verdicts.checks import Check
from tests.verdicts.description import Job
from tests.verdicts.profile_files import START
from tests.verdicts.reported import Episode, Finding, Reported
from tests.verdicts.sentences import sentence_checks
from tests.verdicts.truth import Fault, Strength

_CLOCK = re.compile(r"(?<![\d:.])([01]?\d|2[0-3]):([0-5]\d)(?![\d.])")
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
    def found(self) -> bool:
        """Whether some finding shows it."""
        return self.rule is not None


@dataclass(frozen=True, slots=True)
class JobScore:
    """What a report says of a labelled job.

    ``first`` is the rule that stands first, None where nothing fired; ``first_is_right`` is None of a job without
    fault, and of one whose gravest fault was not found. ``unexplained`` are findings beside a fault that it does not
    explain; ``together`` are the checks of several faults.
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


def scored(job: Job, report: Reported, *, busy: float) -> JobScore:
    """Hold a report against the job's label; ``busy`` is the true mean utilization of its GPUs, percent."""
    alarms = report.alarms
    faults = tuple(_fault_score(job, fault, report, busy) for fault in job.faults)
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
        faults=faults,
        first_is_right=right,
        unexplained=tuple(each.rule for each in alarms if faults and each.rule not in explained),
        together=tuple(_together(job, faults)),
    )


def _together(job: Job, faults: Sequence[FaultScore]) -> Iterator[Check]:
    """Check several faults of one job: each is shown by an episode of its own, and the graver finding comes first."""
    shown = [(label, fault) for label, fault in zip(job.faults, faults, strict=True) if fault.found]
    for (graver, first), (other, second) in combinations(shown, 2):
        apart = (first.place, first.episode) != (second.place, second.episode)
        yield Check("apart", f"{graver.kind} and {other.kind} apart", f"{second.rule} is both", apart)
        if graver.wasted[0] >= goals.GRAVER_COST * other.wasted[1] > 0.0:
            true, said = f"{graver.kind} before {other.kind}", f"{second.rule} before {first.rule}"
            yield Check("order", true, said, (first.place or 0) <= (second.place or 0))


def _fault_score(job: Job, fault: Fault, report: Reported, busy: float) -> FaultScore:
    shown = [
        (place, finding, episode)
        for place, finding in enumerate(report.alarms)
        if finding.rule in fault.label.seen_by | fault.may_stand_first
        for episode in [_episode_of(job, fault, finding)]
        if episode is not None
    ]
    if not shown:
        return FaultScore(fault.kind, fault.strength)
    causes = [each for each in shown if each[1].rule in fault.may_stand_first]
    place, finding, episode = (causes or shown)[0]
    checks = [*_times(job, fault, finding, episode), *_places(fault, episode)]
    checks += _cost("cost", job, fault, episode.lost)
    if len(job.faults) == 1:
        checks += _cost("job's cost", job, fault, report.lost)
        checks += sentence_checks(job, fault, finding, report, busy=busy)
    return FaultScore(fault.kind, fault.strength, finding.rule, place, finding.score, episode, tuple(checks))


def _span(job: Job, fault: Fault) -> tuple[float, float]:
    """Return when the fault began and ended, epoch seconds."""
    end = job.minutes if fault.end_min is None else fault.end_min
    return START + 60.0 * fault.onset_min, START + 60.0 * end


def _tolerance_s(job: Job) -> float:
    return goals.START_WITHIN_S + goals.START_WITHIN_INTERVALS * job.interval_s


def _episode_of(job: Job, fault: Fault, finding: Finding) -> Episode | None:
    """Return the finding's episode that meets the fault the longest; None where none does."""
    onset, end = _span(job, fault)
    within_s = _tolerance_s(job)
    if not finding.told:
        episode = finding.episodes[0]
        return episode if episode.start is None or episode.start >= onset - within_s else None
    finish = START + 60.0 * job.minutes

    def shared(episode: Episode) -> float:
        begin = onset if episode.start is None else episode.start
        return min(end, finish if episode.end is None else episode.end) - max(onset, begin)

    best = max(finding.episodes, key=shared)
    return best if shared(best) > -within_s else None


def _times(job: Job, fault: Fault, finding: Finding, episode: Episode) -> list[Check]:
    onset, end = _span(job, fault)
    within_s = _tolerance_s(job)
    checks = [_near("start", onset, episode.start, within_s)]
    if fault.end_min is not None and finding.told:
        checks.append(_near("end", end, episode.end, within_s))
    spans = [_span(job, each) for each in job.faults]
    for hour, minute in _CLOCK.findall(finding.reason):
        clock = 3600.0 * int(hour) + 60.0 * int(minute)
        holds = any(_on_the_clock(clock, begin - within_s, finish + within_s) for begin, finish in spans)
        checks.append(Check("clock", "a time within a planted fault", f"{hour}:{minute}", holds))
    return checks


def _on_the_clock(clock_s: float, begin: float, end: float) -> bool:
    """Return whether a time of day lies in a stretch of epoch seconds."""
    return (clock_s - begin) % _DAY_S <= end - begin


def _near(what: str, true: float, said: float | None, within_s: float) -> Check:
    holds = said is not None and abs(said - true) <= within_s
    return Check(what, _minute(true), "nothing" if said is None else _minute(said), holds)


def _minute(epoch_s: float) -> str:
    return f"minute {(epoch_s - START) / 60.0:.1f}"


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


def _cost(what: str, job: Job, fault: Fault, lost: float | None) -> list[Check]:
    least, most = (job.usd(minutes) for minutes in fault.wasted)
    if most == 0.0:
        return []
    said = "nothing" if lost is None else f"USD {lost:.2f}"
    share = goals.COST_WITHIN
    holds = lost is not None and (1.0 - share) * least <= lost <= (1.0 + share) * most
    return [Check(what, f"USD {least:.2f} to {most:.2f}" if least < most else f"USD {most:.2f}", said, holds)]
