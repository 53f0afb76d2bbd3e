"""Which of a job's reports stays: that of the run that was planned last, whichever is done last.

A run that was planned later has read all that an earlier one has. Before it writes it marks the earlier ones; a run
that finds its own mark leaves the report as it is::

    earlier run   plan ....................... put together -> is marked: writes nothing
    later run              plan .. put together -> marks -> writes

Of runs planned within a second of S3's clock, the last one to write stays.
"""

from trainguard.core.ports import ReportObjects
from trainguard.core.records import JobRecord
from trainguard.stack.report.parts import PARTS_TYPE, RunPlace

_MARK = "overtaken"


class RunOrder:
    """The runs of a job that are under way, by their files."""

    def __init__(self, *, objects: ReportObjects) -> None:
        self._objects = objects

    def may_write(self, job: JobRecord, run: str) -> bool:
        """Whether the report of a run is to be written; marks the runs that were planned before it."""
        place = RunPlace(job.root, run)
        planned: dict[str, float] = {}
        overtaken = set()
        for listed in self._objects.list(job.bucket, place.all_runs, ""):
            name, _, file = listed.key.removeprefix(place.all_runs).partition("/")
            if file == place.items.removeprefix(place.folder):
                planned[name] = listed.last_modified
            elif file == _MARK:
                overtaken.add(name)
        for name in sorted(planned.keys() - overtaken):
            if planned[name] < planned.get(run, 0.0):
                self._objects.put(job.bucket, f"{place.all_runs}{name}/{_MARK}", b"", PARTS_TYPE)
        return run not in overtaken
