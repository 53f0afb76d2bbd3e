"""The jobs of a fleet with their rows of the whole job, from the tables."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainguard.records import JobRecord, RuleRow
from trainguard.report.fleet import Fleet
from trainguard.stores import Jobs, RuleStates

_READERS = 10
"""Jobs whose rows are read at once: as many connections as a client keeps."""


def read_fleet(fleet: Fleet, jobs: Jobs, rows: RuleStates) -> Iterator[tuple[JobRecord, Sequence[RuleRow]]]:
    """Yield the jobs that the fleet wants; raises PortUnavailableError, StateCodecError."""

    def read(job: JobRecord) -> list[RuleRow]:
        return rows.of_whole_job(job.job)

    wanted = [job for job in jobs.all() if fleet.wants(job)]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="rows") as readers:
        yield from zip(wanted, readers.map(read, wanted), strict=True)
