"""The family's half in reports."""

from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.job.coverage import FamilyCoverage


def _covered(judged: EvaluatedJob) -> list[str]:
    workers = judged.streams.families["pulse"].streams
    return [f"the pulse of {len(workers)} workers"] if workers else []


REPORT_PARTS = FamilyCoverage({}, _covered, lambda _: [])
