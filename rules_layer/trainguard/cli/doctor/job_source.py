"""How far the source is read that a job names, and run files in its folder: ``<job>/live-source/<name>.json``."""

from collections.abc import Iterator
from itertools import islice

from trainguard.cli.doctor.check import Check, CheckResult, span
from trainguard.cli.doctor.job_case import JobCase
from trainguard.plain_text import one_line
from trainguard.polling.poll import NAME
from trainguard.polling.status import FOLDER, PollStatus, read_status
from trainguard.rules.units import counted

SOURCE = Check("source")
MOST_FILES = 64
BEHIND_S = 900.0
"""A running job's source is read up to two minutes ago."""

_LONGEST = 300
_SUFFIX = ".json"


def check_source(case: JobCase) -> Iterator[CheckResult]:
    """Judge how far a job's sources are read."""
    record = case.record
    prefix = f"{case.root.folder}{FOLDER}/"
    statuses: dict[str, PollStatus | None] = {}
    for each in islice(case.objects.list(record.bucket, prefix, ""), MOST_FILES):
        name = each.key.removeprefix(prefix).removesuffix(_SUFFIX)
        statuses[name] = read_status(case.objects, record.bucket, each.key)
    if record.policy.source and NAME not in statuses:
        yield SOURCE.fail(
            f"{record.policy.source} is not polled",
            "Deploy with -c live_sources, which lists the services that may be read: see docs/sources.md.",
        )
    if not statuses and not record.policy.source:
        yield SOURCE.ok("the job names no source, and no run file lies in its folder")
    for name, status in statuses.items():
        yield from grade_source(name, status, now=case.site.now, final=record.status.is_final)


def grade_source(name: str, status: PollStatus | None, *, now: float, final: bool) -> Iterator[CheckResult]:
    """Judge one status; ``final`` says that the job has ended."""
    if status is None:
        yield SOURCE.warn(f"{FOLDER}/{name}{_SUFFIX} is no status object", "Did something else write it?")
        return
    what = one_line(status.source, _LONGEST)
    if status.fault:
        since = "" if status.failed_since is None else f" for {span(now - status.failed_since)}"
        yield SOURCE.fail(f"{what} is not read{since}: {one_line(status.fault, _LONGEST)}", _ADVICE)
    elif not final and not status.ended and now - status.through > BEHIND_S:
        yield SOURCE.warn(f"{what} is read up to {span(now - status.through)} ago", "Does the source still have data?")
    else:
        wrote = f"{counted(status.minutes, 'minute')} of metrics, {counted(status.scalars, 'row')} of scalars"
        yield SOURCE.ok(f"{what}: {wrote}")
    if status.bad:
        listed = "; ".join(f"{one_line(why, _LONGEST)} ({count:,})" for why, count in islice(status.bad.items(), 3))
        yield SOURCE.warn(f"{what}: not read: {listed}", "See docs/sources.md for what each source has.")


_ADVICE = "May the function reach the service, and does the job's setting `source` name it as live_sources does?"
