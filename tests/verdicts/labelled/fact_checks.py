"""The facts of a report's findings held against what was sampled: times within the job, means of all samples."""

from collections.abc import Iterator

from tests.verdicts.labelled import goals
from tests.verdicts.labelled.activity import NodeCounters, node_counters
from tests.verdicts.labelled.checks import Check
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.profile_files import start_of
from tests.verdicts.labelled.reported import Reported
from trainguard.finding import Fact

AHEAD = frozenset({"time_left"})
"""Facts that are of the time to come."""

MEANS = frozenset({"mean_utilization", "highest_mean_utilization"})


def fact_checks(job: Job, report: Reported) -> Iterator[Check]:
    """Check when facts are of, and the means of utilization among them."""
    nodes: dict[str, NodeCounters] = {}
    if job.flaws.clock_jump is not None:
        return
    for finding in report.findings:
        for fact in finding.facts:
            yield from _times(job, finding.rule, fact)
            if fact.name in MEANS and fact.series == "GPUUtilization" and fact.node and fact.device:
                if fact.node not in nodes:
                    nodes[fact.node] = node_counters(job, int(fact.node.removeprefix("algo-")))
                yield from _mean(job, finding.rule, fact, nodes[fact.node])


def _times(job: Job, rule: str, fact: Fact) -> Iterator[Check]:
    times = [fact.start, fact.end, fact.value if fact.unit == "time" else None]
    told = [float(at) - start_of(job) for at in times if at is not None]
    if told:
        holds = min(told) >= -1.0 and max(told) <= 60.0 * job.minutes + 1.0
        said = f"{rule} {fact.name} of minutes {min(told) / 60.0:.1f} to {max(told) / 60.0:.1f}"
        yield Check("fact's time", f"minutes 0 to {job.minutes:g}", said, holds)
    if fact.unit == "s" and fact.name not in AHEAD and not isinstance(fact.value, str):
        holds = fact.value <= 60.0 * job.minutes + 1.0
        yield Check("fact's time", f"at most {job.minutes:g} min", f"{rule} {fact.name} {fact.value / 60.0:.1f}", holds)


def _mean(job: Job, rule: str, fact: Fact, counters: NodeCounters) -> Iterator[Check]:
    if fact.start is None or fact.end is None:
        return
    begin, end = fact.start - start_of(job) - 1.0, fact.end - start_of(job) + 1.0
    within = (counters.at_s >= begin) & (counters.at_s <= end)
    true = float(counters.gpus[within, int(str(fact.device).removeprefix("gpu"))].mean())
    holds = abs(float(fact.value) - true) <= goals.MEAN_WITHIN
    yield Check("fact's mean", f"{true:.1f} %", f"{rule} {fact.name} {float(fact.value):.1f} %", holds)
