"""All numbers that the report holds of labelled jobs: each rule's, the findings with their facts, the ledger.

A label says which fault must be found; the recorded answers show in a review whatever else a change does to a report.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.answers.recorded import compare, digest, plain_facts, rounded
from tests.verdicts.labelled.analysis import report_of
from tests.verdicts.labelled.catalogue.everything import JOBS
from tests.verdicts.labelled.description import Job
from trainguard.core.finding import Fact

FOLDER = Path(__file__).with_name("jobs")
# Larger jobs take seconds.
MOST_SAMPLES, MOST_MINUTES, MOST_NODES = 300_000, 300, 4

# The share of its time after which a job is looked at before it ends.
RUNNING = 0.7


# Jobs that are also looked at before they end: one that hangs, and one that is slow.
LOOKED_AT_EARLIER = ("any-interval-hang", "means-disk-40-at-60-s")


def _chosen() -> Iterator[Any]:
    """Yield the smallest job of each kinds of fault; one of several kinds is thorough where each has its own."""
    smallest: dict[tuple[str, ...], tuple[float, Job]] = {}
    for job in JOBS:
        key: tuple[str, ...] = tuple(sorted({fault.kind for fault in job.faults}))
        samples = job.minutes * 60.0 / job.interval_s * job.nodes * (2 * job.machine.cores + 2 * job.machine.gpus + 8)
        if (
            job.minutes <= MOST_MINUTES
            and job.nodes <= MOST_NODES
            and samples < smallest.get(key, (MOST_SAMPLES + 1.0, job))[0]
        ):
            smallest[key] = samples, job
    for kinds, (_, job) in smallest.items():
        has_each = len(kinds) > 1 and all((kind,) in smallest for kind in kinds)
        yield pytest.param(job, None, id=job.name, marks=[pytest.mark.thorough] if has_each else [])
        if job.name in LOOKED_AT_EARLIER:
            yield pytest.param(job, RUNNING * job.minutes, id=f"{job.name}-running")


def said(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a report says about its job, without its sentences; parameters are what they are by default."""
    verdict = {name: report["verdict"].get(name) for name in ("level", "rule", "wasted_share", "lost", "causes")}
    return {
        "final": report["final"],
        "verdict": {name: value for name, value in verdict.items() if value},
        "judged": {name: report["verdict"].get(name) for name in ("judged", "not_judged")},
        "ledger": {each["bucket"]: each["gpu_seconds"] for each in report["ledger"] or [] if each["gpu_seconds"] > 1.0},
        "findings": {each["rule"]: _finding(each) for each in report["findings"]},
        "rules": {each["rule"]: _rule(each) for each in report["rules"]},
    }


def _finding(found: dict[str, Any]) -> dict[str, Any]:
    named = ("finding_kind", "severity", "score", "ongoing", "worst", "nodes_affected", "explained_by", "wasted_share")
    given = {name: found[name] for name in named if found[name]}
    episodes = [[each["start"], each["end"], each["nodes"], each["gpus"]] for each in found["episodes"]]
    facts = plain_facts(msgspec.convert(found["facts"], tuple[Fact, ...]))
    return {**given, "episodes": episodes, "facts": facts}


def _rule(row: dict[str, Any]) -> str:
    """Return a rule's row on one line; its facts are those of the finding."""
    numbers = [name for name in ("measured", "threshold", "violations", "data_points") if row[name]]
    return " ".join([row["status"], *(f"{name} {rounded(row[name])}" for name in numbers), digest(row["details"])])


@pytest.mark.parametrize(("job", "until_min"), list(_chosen()))
def test_report_of_a_labelled_job_matches_the_reviewed(job: Job, until_min: float | None) -> None:
    name = job.name if until_min is None else f"{job.name}-running"
    compare(said(report_of(job, until_min=until_min)), FOLDER / f"{name}.json")
