"""Several runs, each evaluated as a whole."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainguard.core.errors import TrainGuardError, UnreadableRunError, error_text
from trainguard.core.finding import Finding
from trainguard.core.layout import S3
from trainguard.core.records import RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.engine import ProfileEvaluation, evaluation_rows
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import FoundRun, Profile
from trainguard.local.settings import GivenSettings, described_job
from trainguard.local.sources import safe_name
from trainguard.report.fleet.fleet import JudgedJob
from trainguard.report.job.build import BuiltReport
from trainguard.report.job.coverage import BAD_OBJECTS, UNREAD_PARTS
from trainguard.rules.profiler_report import PROFILER_REPORT

# Writes a report into a folder of a name, and returns where its page lies.
WriteReport = Callable[[str, BuiltReport], str]

_ENDING = re.compile(r"\.(?:csv|json|jsonl|log|ndjson|txt|wandb)$|#")


def shown_places(place: str, runs: Sequence[FoundRun]) -> list[str]:
    """Return the places of runs below the place at which they were found; the whole place of one that is elsewhere."""
    if place.startswith(S3):
        return [each.place.removeprefix(place.rstrip("/") + "/") for each in runs]
    top = place if Path(place).is_dir() else Path(place).parent
    return [os.path.relpath(each.place, top) for each in runs]


def folder_names(place: str, shown: Sequence[str]) -> list[str]:
    """Return a folder for the report of each run at a place, called as the run's place and unlike the others."""
    top = safe_name(Path(place).resolve().name)
    names: dict[str, None] = {}
    for each in shown:
        parts = [safe_name(part) for part in _ENDING.sub("/", each).split("/") if part.strip(".")]
        name = "/".join(parts) or top
        number = 1
        while (unlike := name if number == 1 else f"{name}-{number}") in names:
            number += 1
        names[unlike] = None
    return list(names)


def judged_jobs(
    place: str,
    found: Sequence[FoundRun],
    settings: GivenSettings,
    pool: WorkerPool,
    write: WriteReport | None = None,
) -> Iterator[JudgedJob]:
    """Yield each job with its rows; one that cannot be read has one row, of status ERROR. Raises WorkerDiedError.

    ``write`` writes the report of each, with time lines, in the process that has evaluated it.
    """
    names: dict[str, int] = {}
    shown = shown_places(place, found)
    tasks = list(zip(found, shown, folder_names(place, shown), strict=True))
    for each in pool.map(partial(_judged, settings, write), tasks):
        names[each.job.job] = number = names.get(each.job.job, 0) + 1
        if number == 1:
            yield each
        else:
            name = f"{each.job.job}-{number}"
            rows = tuple(replace(row, job=name) for row in each.rows)
            yield replace(each, job=replace(each.job, job=name), rows=rows)


def _judged(settings: GivenSettings, write: WriteReport | None, task: tuple[FoundRun, str, str]) -> JudgedJob:
    run, shown, folder = task
    try:
        judged, done = evaluated(settings, run.open(), timelines=write is not None)
        page = None if write is None else write(folder, report_of(done))
        return replace(judged, place=shown, job=replace(judged.job, active=False), report=page)
    except TrainGuardError as fault:
        return _not_judged(settings, run, shown, f"Not read: {fault}", fault)
    except Exception as fault:
        # A reader that fails in a way nobody thought of costs its own job and no other.
        return _not_judged(settings, run, shown, f"Not read: {error_text(fault)}", fault)


def _not_judged(settings: GivenSettings, run: FoundRun, shown: str, why: str, fault: Exception) -> JudgedJob:
    job = settings.job(safe_name(Path(run.place).stem))
    row = RuleRow(job.job, Finding(rule=PROFILER_REPORT, node=None, reason=why), Status.ERROR)
    unread = fault.parts if isinstance(fault, UnreadableRunError) else 0
    return JudgedJob(shown, replace(job, active=False), (row,), unread=unread)


def evaluated(
    settings: GivenSettings, profile: Profile, *, timelines: bool = False
) -> tuple[JudgedJob, ProfileEvaluation]:
    """Evaluate a job, active until its file says that it has ended; raises as `evaluated_profile` does."""
    job, _ = described_job(profile.source, settings.job(profile.root.job))
    plan = FAMILIES.plan(job, prices=settings.prices)
    done = evaluated_profile(profile, job, plan, None, timelines=timelines, training=timelines)
    rows = tuple(evaluation_rows(done, expires_at=0))
    unread = sum(record.counters.get(name, 0) for record in done.records for name in (BAD_OBJECTS, UNREAD_PARTS))
    active = not done.job.status.is_final
    return JudgedJob(profile.source.place, replace(done.job, active=active), rows, profile.link, unread), done
