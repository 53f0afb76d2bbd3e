"""A family's half in reports: what was collected of its streams, in words."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from trainguard.engine.family import Family
from trainguard.records import NodeRecord
from trainguard.report.document import NodeCoverage
from trainguard.report.evaluated_job import EvaluatedJob


class FamilyReport(Protocol):
    """What a report asks a family."""

    def title_of(self, stream: str) -> str:
        """Return what people call a stream, for example ``system metrics``."""
        ...

    def coverage(self, record: NodeRecord, judged: EvaluatedJob) -> NodeCoverage:
        """Return what was collected of one stream."""
        ...

    def covered(self, judged: EvaluatedJob) -> Sequence[str]:
        """Say what was collected of the job, a clause each; nothing where there was nothing."""
        ...

    def missing(self, judged: EvaluatedJob) -> Sequence[str]:
        """Say what was not collected, a sentence each."""
        ...


def report_of(family: Family) -> FamilyReport:
    """Return a family's half; raises ImportError or AttributeError where ``family.report`` names none."""
    return _resolved(family.report)


@cache
def _resolved(place: str) -> FamilyReport:
    module, _, name = place.partition(":")
    return cast("FamilyReport", getattr(import_module(module), name))
