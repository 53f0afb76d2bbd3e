"""What was collected of a job, stream by stream, and what was missing or could not be used, in words."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from trainguard.engine.streams.session import DEGRADED, HARMLESS_COUNTERS
from trainguard.report.document import NodeCoverage
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.family_report import report_of
from trainguard.report.phrasing import by_node
from trainguard.rules.units import counted, faults_counted

IN_MINUTES = frozenset({"gaps", "late"})


def coverage(judged: EvaluatedJob) -> list[NodeCoverage]:
    """Return one entry a stream, in order of unit and stream."""
    families = judged.families
    return [report_of(families.of(key)).coverage(record, judged) for key, record in judged.streams.records.items()]


def data_covered(judged: EvaluatedJob) -> str:
    """Say what was collected, in a sentence."""
    parts = [part for family in judged.families for part in report_of(family).covered(judged)]
    text = "; ".join(parts) or "nothing was collected yet"
    return f"{text[0].upper()}{text[1:]}."


def data_missing(judged: EvaluatedJob) -> list[str]:
    """Say what was not collected or could not be used, a sentence each."""
    missing = [sentence for family in judged.families for sentence in report_of(family).missing(judged)]
    return [*missing, *_counted_faults(judged)]


def _counted_faults(judged: EvaluatedJob) -> Iterator[str]:
    amounts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for record in judged.streams.records.values():
        for name, amount in record.counters.items():
            if amount and name not in HARMLESS_COUNTERS:
                title = report_of(judged.families.of(record.key)).title_of(record.key.stream)
                amounts[title, name][record.key.node] = amount
    for (stream, name), nodes in sorted(amounts.items()):
        yield _fault(stream, name, nodes)


def _fault(stream: str, name: str, nodes: Mapping[str, int]) -> str:
    total = sum(nodes.values())
    if name in IN_MINUTES:
        verb = "missing" if name == "gaps" else "left out for being late"
        return f"{counted(total, 'minute')} of {stream} {'is' if total == 1 else 'are'} {verb}: {by_node(nodes)}."
    if name.startswith(DEGRADED):
        return f"State of {stream} was shortened to keep it small ({name.replace('_', ' ')}): {by_node(nodes)}."
    return f"Not used of {stream}: {faults_counted(total, name)}, {by_node(nodes)}."
