"""All labelled jobs, and those among them that are sampled at other intervals too."""

from dataclasses import replace

from tests.verdicts.labelled.catalogue import (
    balance,
    batch,
    causes,
    collector,
    deceptive,
    flawed,
    idle,
    intervals,
    loading,
    long_jobs,
    memory,
    mixed,
    startup,
    stepping,
    unseen,
)
from tests.verdicts.labelled.description import Job

JOBS: tuple[Job, ...] = (
    *idle.JOBS,
    *loading.JOBS,
    *balance.JOBS,
    *batch.JOBS,
    *memory.JOBS,
    *startup.JOBS,
    *stepping.JOBS,
    *long_jobs.JOBS,
    *mixed.JOBS,
    *flawed.JOBS,
    *intervals.JOBS,
    *unseen.JOBS,
    *collector.JOBS,
    *causes.JOBS,
    *deceptive.JOBS,
)


def resampled(job: Job) -> list[tuple[float, Job]]:
    """Return the job as other sampling intervals show it, by interval in seconds; the same activity in all of them."""
    if not job.every_interval:
        return []
    return [(every_s, replace(job, interval_s=every_s)) for every_s in intervals.INTERVALS_S]
