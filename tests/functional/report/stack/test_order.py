"""Two reports of one job that are made at once: that of more data stays, whichever is written last."""

import json
from typing import Any

import pytest

from tests.support.report_runs import FOLDER, NOW, ReportRun, finished_world
from tests.support.small_job import BUCKET, JOB

EARLIER, LATER = "report-earlier", "report-later"
PARTS = f"{FOLDER}parts/"


class Runs:
    """Two executions over one world; the second is planned so many seconds after the first."""

    def __init__(self, apart_s: float = 60.0) -> None:
        self.world = finished_world()
        self.apart_s = apart_s
        self._runs = {name: ReportRun(self.world, name=name) for name in (EARLIER, LATER)}
        self._planned: dict[str, Any] = {}

    def plan(self, *names: str) -> None:
        """Plan the runs; the digests of each say by what they left out which run they are of."""
        for name in names:
            self.world.objects.now = NOW + (self.apart_s if name == LATER else 0.0)
            self._planned[name] = self._runs[name].plan({"job": JOB, "run": name})

    def build(self, name: str) -> None:
        """Digest the first run's first node alone, the second run's both, and build the report."""
        self.world.objects.now += 1.0
        for item in self._planned[name]["items"][: 1 if name == EARLIER else 2]:
            self._runs[name].digest(item)
        self._runs[name].build({"job": JOB, "run": name})

    def drop(self, name: str) -> None:
        self._runs[name].build({"job": JOB, "run": name, "drop": True})

    def is_later(self) -> bool:
        """Whether the report that lies there is that of the later run."""
        report = json.loads(self.world.objects.get(BUCKET, f"{FOLDER}report.json", 100_000_000))
        return not report["timelines"]["left_out"]

    def parts(self) -> list[str]:
        return [listed.key for listed in self.world.objects.list(BUCKET, PARTS, "")]


@pytest.mark.parametrize(
    "order", [(EARLIER, LATER), (LATER, EARLIER), (LATER, EARLIER, LATER), (EARLIER, LATER, EARLIER)]
)
@pytest.mark.parametrize("dropping", [True, False])
def test_later_planned_of_two_runs_stays_in_any_build_order(order: tuple[str, ...], dropping: bool) -> None:
    runs = Runs()
    runs.plan(EARLIER, LATER)
    for step, name in enumerate(order):
        runs.build(name)
        if dropping and name not in order[step + 1 :]:
            runs.drop(name)
    assert runs.is_later()


def test_two_dropped_runs_leave_nothing() -> None:
    runs = Runs()
    runs.plan(EARLIER, LATER)
    for name in (LATER, EARLIER):
        runs.build(name)
        runs.drop(name)
    assert runs.parts() == []


def test_planned_run_writes_its_report_after_the_other() -> None:
    runs = Runs(apart_s=-60.0)
    runs.plan(LATER)
    runs.build(LATER)
    runs.drop(LATER)
    runs.plan(EARLIER)
    runs.build(EARLIER)
    assert not runs.is_later()


def test_last_of_runs_planned_within_a_second_stays() -> None:
    runs = Runs(apart_s=0.0)
    runs.plan(EARLIER, LATER)
    runs.build(EARLIER)
    runs.build(LATER)
    assert runs.is_later()


def test_earlier_report_stays_until_the_later_run_is_done() -> None:
    runs = Runs()
    runs.plan(EARLIER, LATER)
    runs.build(EARLIER)
    assert not runs.is_later()
