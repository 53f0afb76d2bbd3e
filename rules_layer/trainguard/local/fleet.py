"""The jobs below a folder, each evaluated as a whole."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainguard.core.errors import ProfileSourceError, TrainGuardError, UnreadableRunError
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.formats.tensors.debug.keys import FOLDER as DEBUG_OUTPUT
from trainguard.local.analysis import evaluated_profile
from trainguard.local.engine import evaluation_rows
from trainguard.local.places import open_job, recordings_in, recordings_of
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import Profile
from trainguard.local.settings import GivenSettings, described_job
from trainguard.local.sources import PROFILER_OUTPUT, RESULTS, RecordedRun, refuse_unreadable, safe_name
from trainguard.report.job.coverage import BAD_OBJECTS, UNREAD_PARTS
from trainguard.rules.profiler_report import PROFILER_REPORT

_OUTPUTS = (PROFILER_OUTPUT, DEBUG_OUTPUT)


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """A job with its rows; ``place`` is below the folder of a fleet, ``unread`` counts parts and objects."""

    place: str
    job: JobRecord
    rows: tuple[RuleRow, ...]
    link: str | None = None
    unread: int = 0


def find_jobs(folder: str) -> list[tuple[str, int]]:
    """Return places that `open_job` reads, each with the bytes of its file, 0 of a folder; in order of the places.

    They are at or below a folder, or in a store of many runs. A job is a run of another tool, or a folder with a
    ``profiler-output`` or a ``debug-output``. Raises ProfileSourceError without a job, or where it cannot be read.
    """
    try:
        found = list(_found(folder)) if Path(folder).is_dir() else _stored(recordings_of(Path(folder)))
    except OSError as fault:
        raise ProfileSourceError(folder, f"cannot be read: {fault.strerror or fault}") from fault
    if not found:
        raise ProfileSourceError(folder, "holds no job; expected runs, or folders with a profiler-output")
    return found


def _found(folder: str) -> Iterator[tuple[str, int]]:
    for parent, folders, files in os.walk(folder, onerror=refuse_unreadable):
        if any(name in _OUTPUTS for name in folders):
            yield parent, 0
        folders[:] = sorted(name for name in folders if name not in (RESULTS, *_OUTPUTS))
        yield from _stored(recordings_in(parent, folders, files))


def _stored(recordings: Iterable[RecordedRun]) -> list[tuple[str, int]]:
    return [(each.place, each.size) for each in recordings]


def judged_jobs(
    folder: str, found: Iterable[tuple[str, int]], settings: GivenSettings, pool: WorkerPool
) -> Iterator[JudgedJob]:
    """Yield each job with its rows; one that cannot be read has one row, of status ERROR. Raises WorkerDiedError."""
    names: dict[str, int] = {}
    for each in pool.map(partial(_judged, settings, folder), [place for place, _ in found]):
        names[each.job.job] = number = names.get(each.job.job, 0) + 1
        if number == 1:
            yield each
        else:
            name = f"{each.job.job}-{number}"
            rows = tuple(replace(row, job=name) for row in each.rows)
            yield replace(each, job=replace(each.job, job=name), rows=rows)


def _judged(settings: GivenSettings, folder: str, place: str) -> JudgedJob:
    shown = os.path.relpath(place, folder if Path(folder).is_dir() else Path(folder).parent)
    try:
        judged = evaluated_job(settings, open_job(place))
        return replace(judged, place=shown, job=replace(judged.job, active=False))
    except TrainGuardError as fault:
        job = settings.job(safe_name(Path(place).stem))
        finding = Finding(rule=PROFILER_REPORT, node=None, reason=f"Not read: {fault}")
        unread = fault.parts if isinstance(fault, UnreadableRunError) else 0
        return JudgedJob(shown, replace(job, active=False), (RuleRow(job.job, finding, Status.ERROR),), unread=unread)


def evaluated_job(settings: GivenSettings, profile: Profile) -> JudgedJob:
    """Evaluate a job, active until its file says that it has ended; raises as `evaluated_profile` does."""
    job, _ = described_job(profile.source, settings.job(profile.root.job))
    done = evaluated_profile(profile, job, FAMILIES.plan(job, prices=settings.prices), None, timelines=False)
    rows = tuple(evaluation_rows(done, expires_at=0))
    unread = sum(record.counters.get(name, 0) for record in done.records for name in (BAD_OBJECTS, UNREAD_PARTS))
    active = not done.job.status.is_final
    return JudgedJob(profile.source.place, replace(done.job, active=active), rows, profile.link, unread)
