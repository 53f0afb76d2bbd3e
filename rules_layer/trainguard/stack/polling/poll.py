"""One poll of a job's source: a bounded time behind the last one, up to a minute and a half ago."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from trainguard.core.errors import PortUnavailableError, ProfileSourceError
from trainguard.core.ports import Journal, ProfileObjects
from trainguard.core.records import JobRecord
from trainguard.core.stores import Jobs
from trainguard.formats.runs.named import EXPECTED, NamedSource, named_source
from trainguard.formats.runs.run import SourceRun
from trainguard.stack.polling.delivery import (
    JobFolder,
    PollStatus,
    added,
    between,
    deliver,
    deliver_end,
    failed,
    read_status,
    status_key,
    write_status,
)

NAME = "source"

MINUTE_S = 60.0
# A minute is read this long after it has begun to be over: services accept samples late.
HOLD_S = 90.0

# One poll reads this much; a longer backlog takes several.
MOST_S = 1_800.0

# A job whose start is not known is read from this long ago on.
FIRST_S = 3_600.0

LONGEST_AGO_S = 14 * 24 * 3_600.0
# A source that gives its whole history with each answer is asked this rarely.
RARELY_S = 300.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for data from ``start`` on and before ``end``, epoch seconds.

    ``counted`` is as in `PollStatus`; the source counts on in it.
    """

    job: JobRecord
    source: NamedSource
    start: float
    end: float
    counted: dict[str, int]


@dataclass(frozen=True, slots=True)
class SourcePoll:
    """Polls the sources of jobs, one at a time.

    ``read`` returns a source's data, which may be of other times, too; it raises ProfileSourceError where that is not
    permitted or refused, and PortUnavailableError.
    """

    jobs: Jobs
    objects: ProfileObjects
    read: Callable[[Asked], SourceRun]
    journal: Journal

    def run(self, name: str, at: float) -> PollStatus | None:
        """Poll for a job at ``at``, epoch seconds; None if not due. A failed poll stores its reason."""
        job = self.jobs.load(name)
        if job is None or not job.active or not job.policy.evaluated or not job.policy.source:
            return None
        key = status_key(job.root, NAME)
        status = read_status(self.objects, job.bucket, key)
        if status is None or status.source != job.policy.source:
            status = PollStatus(source=job.policy.source, through=_first(job, at))
        end = _until(job, status, at)
        if status.ended or (end <= status.through and not _is_over(job, status)):
            return None
        polled: PollStatus | None
        try:
            polled = self._poll(job, status, end, at)
        except (ProfileSourceError, PortUnavailableError) as fault:
            polled = failed(status, fault, at)
            self.journal.count("source_polls_failed", job=job.job, reason=polled.fault)
        if polled is not None:
            write_status(self.objects, job.bucket, key, polled)
        return polled

    def _poll(self, job: JobRecord, status: PollStatus, end: float, at: float) -> PollStatus | None:
        source = named_source(job.policy.source)
        if source is None:
            raise ProfileSourceError(job.policy.source, f"names no source, expected {EXPECTED}")
        ending = job.closing or job.status.is_final
        if source.gives_all and not ending and at - status.polled_at < RARELY_S:
            return None
        place = JobFolder(self.objects, job.bucket, job.root)
        ended = False
        if end > status.through:
            asked = Asked(job, source, status.through, end, dict(status.counted))
            run = self.read(asked)
            status = deliver(place, between(run, status.through, end), status)
            bad = run.bad if source.gives_all else added(status.bad, run.bad)
            status = msgspec.structs.replace(status, through=end, counted=asked.counted, bad=dict(bad))
            ended = run.outcome is not None and run.ended_at is not None and run.ended_at < end
        ended = ended or _is_over(job, status)
        if ended:
            deliver_end(place)
        return msgspec.structs.replace(status, polled_at=at, fault="", failed_since=None, ended=ended)


def _minute(at: float) -> float:
    return at // MINUTE_S * MINUTE_S


def _first(job: JobRecord, at: float) -> float:
    begun = job.started_at or job.created_at or at - FIRST_S
    return _minute(max(begun, at - LONGEST_AGO_S))


def _until(job: JobRecord, status: PollStatus, at: float) -> float:
    """Return the time up to which a poll reads: whole minutes, which are settled, no more than `MOST_S` at once."""
    settled = _minute(at - HOLD_S)
    if job.ended_at is not None:
        settled = min(settled, _minute(job.ended_at) + MINUTE_S)
    return min(settled, status.through + MOST_S)


def _is_over(job: JobRecord, status: PollStatus) -> bool:
    return job.ended_at is not None and job.status.is_final and status.through > job.ended_at


class _Call(msgspec.Struct):
    job: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    at: float | None = None


def poll_of(event: object, *, now: float) -> tuple[str, float]:
    """Return job and time of an event, by default ``now``; raises msgspec.ValidationError."""
    call = msgspec.convert(event, _Call)
    return call.job, now if call.at is None else call.at


def written_object(event: Any) -> tuple[str, str] | None:
    """Return bucket and key of the object that an event of S3 names; None for any other event."""
    detail = event.get("detail") if isinstance(event, dict) else None
    if not isinstance(detail, dict):
        return None
    parts = ((detail.get(part), name) for part, name in (("bucket", "name"), ("object", "key")))
    bucket, key = (part.get(name) if isinstance(part, dict) else None for part, name in parts)
    return (bucket, key) if isinstance(bucket, str) and isinstance(key, str) else None
