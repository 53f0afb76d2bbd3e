"""All labelled jobs through the product, over all cores."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from tests.verdicts.labelled.analysis import analyzed, report_of
from tests.verdicts.labelled.catalogue.everything import JOBS, resampled
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.figures import Figures, Sampling
from tests.verdicts.labelled.reported import read_report
from tests.verdicts.labelled.scoring import JobScore, scored


def figures_of(jobs: Sequence[Job] = JOBS) -> Figures:
    """Write, analyze and score the jobs, those of every interval at each of them."""
    samplings = [(every_s, number, again) for number, job in enumerate(jobs) for every_s, again in resampled(job)]
    work = [*jobs, *(again for _, _, again in samplings)]
    order = sorted(range(len(work)), key=lambda index: -_size(work[index]))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(_cores()), mp_context=context, initializer=_take_one_core) as pool:
        done = dict(zip(order, pool.map(score, [work[index] for index in order]), strict=True))
    scores = [done[index] for index in range(len(jobs))]
    again = [
        Sampling(every_s, done[len(jobs) + place], scores[number])
        for place, (every_s, number, _) in enumerate(samplings)
    ]
    return Figures(scores, again)


def causes_of(jobs: Sequence[Job] = JOBS) -> Sequence[JobScore]:
    """Score the jobs at their own interval alone, and hold no claim against the raw data: a third of the time."""
    order = sorted(range(len(jobs)), key=lambda index: -_size(jobs[index]))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(_cores()), mp_context=context, initializer=_take_one_core) as pool:
        done = dict(zip(order, pool.map(cause, [jobs[index] for index in order]), strict=True))
    return [done[index] for index in range(len(jobs))]


def cause(job: Job) -> JobScore:
    """Return one job's score, without claims."""
    return scored(job, read_report(report_of(job)))


def score(job: Job) -> JobScore:
    """Return one job's score."""
    report, claims = analyzed(job)
    return replace(scored(job, report), claims=claims)


def _size(job: Job) -> float:
    return job.minutes / job.interval_s * job.nodes * (2 * job.machine.cores + 2 * job.machine.gpus + 8)


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _take_one_core() -> None:
    """Keep this process to one core: the analysis then starts no processes of its own."""
    cores = _cores()
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
