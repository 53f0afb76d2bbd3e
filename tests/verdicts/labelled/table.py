"""The figures as a table, the classes of jobs, and a line for each job that is not judged as it should be."""

from collections import Counter
from collections.abc import Iterator

from tests.verdicts.labelled import goals
from tests.verdicts.labelled.figures import Figures, Sampling
from tests.verdicts.labelled.scoring import HEALTHY, JobScore

LONGEST = 110


def table(figures: Figures) -> str:
    """Return the figures beside their goals, how many jobs of each class are right in all, and the failures by job."""
    return "\n".join([*_rows(figures), "", *_classes(figures), "", *_failures(figures), ""])


def _rows(figures: Figures) -> Iterator[str]:
    faulty = sum(bool(job.faults) for job in figures.jobs)
    yield f"{len(figures.jobs)} labelled jobs, {faulty} of them with faults"
    yield ""
    yield _row("strong faults found", figures.found("strong"), _percent(goals.FOUND))
    yield _row("medium faults found", figures.found("medium"), _percent(goals.FOUND))
    yield _row("healthy jobs with a fire", figures.healthy_fires, f"at most {_percent(goals.HEALTHY_FIRES)}")
    yield _row("planted cause stands first", figures.planted_first, f"at least {_percent(goals.PLANTED_FIRST)}")
    order = f"{len(figures.out_of_order)} of {len(figures.pairs)} pairs"
    yield _row("severities out of order", order, goals.OUT_OF_ORDER)
    yield _row("other verdict at another interval", figures.lost, goals.LOST_BY_INTERVAL)
    yield _row("healthy jobs called healthy", figures.called_healthy, f"at least {_percent(goals.CALLED_HEALTHY)}")
    yield _row("findings that nothing explains", figures.unexplained, goals.UNEXPLAINED)
    yield _row("what is said and true", figures.true_checks(), f"{goals.UNTRUE} untrue")
    for what in figures.checked:
        yield _row(f"  {what}", figures.true_checks(what), "")


def _classes(figures: Figures) -> Iterator[str]:
    yield "class, and how many of its jobs are right in everything that is said about them"
    jobs = Counter(score.job.group for score in figures.jobs)
    right = Counter(score.job.group for score in figures.jobs if score.is_right)
    for group, count in jobs.items():
        yield _row(f"  {group}", f"{right[group]} of {count}", "")


def _row(name: str, figure: object, goal: object) -> str:
    return f"{name:<36}{figure!s:<24}{goal}".rstrip()


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"


def _failures(figures: Figures) -> Iterator[str]:
    for job in figures.jobs:
        yield from _of_job(job)
    for sampling in figures.samplings:
        if sampling.lost:
            yield _of_sampling(sampling)
    pairs = figures.out_of_order
    for one, other in pairs:
        scores = f"{one.faults[0].score:.1f} < {other.faults[0].score:.1f}"
        yield f"{one.job.name}: more severe than {other.job.name}, but {scores}"


def _of_job(job: JobScore) -> Iterator[str]:
    fired = ", ".join(job.fired) or f"nothing ({job.level})"
    if not job.job.faults and (job.fired or (job.level != HEALTHY and job.job.machine.gpus)):
        yield f"{job.job.name}: healthy, but {job.level}: {fired}"
    for fault in job.faults:
        if not fault.found:
            yield f"{job.job.name}: {fault.strength} {fault.kind} not found, said {fired}"
        for check in fault.checks:
            if not check.holds:
                yield f"{job.job.name}: {fault.rule} {check.what}: true {check.true}; said {_short(check.said)}"
    for check in (*job.together, *job.ledger):
        if not check.holds:
            yield f"{job.job.name}: {check.what}: true {check.true}; said {check.said}"
    if job.first_is_right is False:
        expected = ", ".join(sorted(job.job.faults[0].may_stand_first))
        yield f"{job.job.name}: expected first {expected}, said {fired}"
    if job.unexplained:
        yield f"{job.job.name}: nothing planted explains {', '.join(job.unexplained)}"


def _of_sampling(sampling: Sampling) -> str:
    job = sampling.score.job
    right = sampling.described.first_is_right
    rules = ", ".join(sorted(job.faults[0].may_stand_first)) if job.faults else "nothing"
    expected = sampling.described.first if right else rules
    return f"{job.name} at {sampling.every_s:g} s: expected {expected}, said {sampling.score.first or 'nothing'}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
