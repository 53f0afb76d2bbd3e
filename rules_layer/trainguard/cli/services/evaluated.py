"""Whether anything was judged at all: without a verdict there is no all-clear."""

from collections.abc import Iterable

from trainguard.engine.verdicts.verdict import JUDGED
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of


def has_verdict(rules: Iterable[tuple[str, str, int]]) -> bool:
    """Return whether any rule has judged, by its name, its status and how often it has fired.

    A rule that only informs does not count, nor does ProfilerReport, which sums up the others.
    """
    return any(
        fired > 0 or status in JUDGED
        for name, status, fired in rules
        if name != PROFILER_REPORT and not spec_of(name).informs_only
    )
