"""All that the report says of labelled jobs: each rule's sentence, numbers and details, findings and verdict.

A label says which fault must be found; the recorded answers show in a review whatever else a change does to a report.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.answers.recorded import compare
from tests.verdicts.labelled.analysis import report_of
from tests.verdicts.labelled.catalogue.everything import JOBS
from tests.verdicts.labelled.description import Job

FOLDER = Path(__file__).with_name("jobs")
MOST_SAMPLES, MOST_MINUTES = 300_000, 300
"""Larger jobs take seconds."""

RUNNING = 0.7
"""The share of its time after which a job with one fault is also looked at."""


def _chosen() -> Iterator[Any]:
    """Yield the smallest job of each group and kinds of fault: ended, and where it has one fault, still running."""
    smallest: dict[object, tuple[float, Job]] = {}
    for job in JOBS:
        key = (job.group, tuple(sorted({fault.kind for fault in job.faults})))
        samples = job.minutes * 60.0 / job.interval_s * job.nodes * (2 * job.machine.cores + 2 * job.machine.gpus + 8)
        if job.minutes <= MOST_MINUTES and samples < smallest.get(key, (MOST_SAMPLES + 1.0, job))[0]:
            smallest[key] = samples, job
    for _, job in smallest.values():
        yield pytest.param(job, None, id=job.name)
        if len(job.faults) == 1:
            yield pytest.param(job, RUNNING * job.minutes, id=f"{job.name}-running")


def said(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a report says of its job; parameters are what they are by default."""
    rules = [{key: each[key] for key in each if key not in {"parameters", "changed"}} for each in report["rules"]]
    parts = ("final", "healthy", "verdict", "summary", "findings", "cost", "coverage", "not_collected")
    return {**{part: report[part] for part in parts}, "rules": {each.pop("rule"): each for each in rules}}


@pytest.mark.parametrize(("job", "until_min"), list(_chosen()))
def test_given_a_labelled_job_when_analyzed_then_all_that_its_report_says_is_as_reviewed(
    job: Job, until_min: float | None
) -> None:
    name = job.name if until_min is None else f"{job.name}-running"
    compare(said(report_of(job, until_min=until_min)), FOLDER / f"{name}.json")
