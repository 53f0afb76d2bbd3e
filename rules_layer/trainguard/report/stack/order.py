"""Which of a job's reports stays: that of the run that was planned last, whichever is done last.

A job that has ended gets another report when data comes late, and both runs may be under way at once. A run that was
planned later has read all that an earlier one has. Before it writes its report it marks the earlier ones that it finds;
a run that finds its own mark leaves the report as it is::

    earlier run   plan ....................... put together -> is marked: writes nothing
    later run              plan .. put together -> marks -> writes

The mark lies among the files of the run that it is for, and goes with them. A run without a plan is not marked: it will
have read more. Runs that were planned within a second of S3's clock are not told apart: the last one to write stays.
"""

from trainguard.ports import ReportObjects
from trainguard.records import JobRecord
from trainguard.report.stack.parts import PARTS_TYPE, RunPlace

_MARK = "overtaken"


class RunOrder:
    """Knows the runs of a job that are under way by the files that they have."""

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
