"""How many streams and jobs names can make: whoever writes objects may invent names without end.

A stream costs an item, rows, and time of every tick; a job costs an item, a question to SageMaker and a look every
minute. Nodes and jobs that SageMaker names need no admission: their number is what their owner pays for.
"""

import re

from trainguard.engine.streams.job_streams import JobStreams
from trainguard.errors import TooManyNamesError
from trainguard.job_limits import MOST_NEW_JOBS, MOST_OTHER_STREAMS
from trainguard.records import JobRecord, NodeRecord, StreamKey
from trainguard.stores import Jobs

LEFT_OUT = "streams_left_out"
_NAMED = re.compile(r"algo-([1-9][0-9]{0,5})")


def check_stream(job: JobRecord, record: NodeRecord, jobs: Jobs) -> None:
    """Admit the stream of an item; raises TooManyNamesError for a new one beyond the job's limit."""
    if record.version or record.key.is_own or is_named(job, record.key):
        return
    known_full = job.streams_left_out and job.other_streams >= MOST_OTHER_STREAMS
    if known_full or not jobs.admit_stream(job.job, MOST_OTHER_STREAMS):
        raise TooManyNamesError(
            f"streams of job {job.job}", MOST_OTHER_STREAMS, "beside those of the nodes that SageMaker names"
        )


def check_new_job(jobs: Jobs, now: float) -> None:
    """Admit a name that objects brought, at ``now`` (epoch seconds); raises TooManyNamesError beyond the limit."""
    if not jobs.meet(now, MOST_NEW_JOBS):
        raise TooManyNamesError("new names of jobs", MOST_NEW_JOBS, "within an hour")


def is_named(job: JobRecord, key: StreamKey) -> bool:
    """Whether SageMaker names the node of a stream: ``algo-1`` to ``algo-<instance count>``."""
    match = None if job.is_outside else _NAMED.fullmatch(key.node)
    return match is not None and int(match[1]) <= (job.instance_count or 0)


def recount(job: JobRecord, streams: JobStreams, jobs: Jobs) -> None:
    """Correct the number of a job's other streams: an evaluation that failed may have counted one twice."""
    actual = sum(not is_named(job, key) for key in streams.records)
    if job.other_streams > actual:
        jobs.recount_streams(job.job, job.other_streams, actual)


def left_out(job: JobRecord) -> dict[str, int]:
    """Return the counter that a job's rows show when some of its streams are not evaluated."""
    return {LEFT_OUT: 1} if job.streams_left_out else {}
