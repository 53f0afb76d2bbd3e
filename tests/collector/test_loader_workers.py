"""Workers of loaders record in their own processes: without torch, whose fetchers a stand-in replaces."""

import multiprocessing
import os
import pickle
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from tests.collector.test_recorder import timelines
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard_collector.objects import SHARED, Handover, TimelineFile, objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.harmless import Faults
from trainguard_collector.recorder.loader_workers import LABEL, Owner, WorkerStart
from trainguard_collector.recorder.timeline import EventLog

FETCHERS = "torch.utils.data._utils.fetch"


class Fetcher:
    """As torch's, and with a loader of its own for each second batch."""

    def fetch(self, index: int) -> int:
        if index < 0:
            raise StopIteration
        if index % 2:
            self.fetch(index - 1)
        time.sleep(0.002)
        return 10 * index


def started(number: int) -> None:
    os.environ["STARTED"] = str(number)


def owner_in(folder: Path, pid: int | None = None) -> Owner:
    pid = os.getpid() if pid is None else pid
    return Owner(str(folder), 1_000_000, "run-1", "node-1", "rank3", pid, time.time_ns() // 1_000 - 1_000_000)


def work(text: bytes, number: int, batches: int, found: Any) -> None:
    """Do what a worker of torch does."""
    fetchers: Any = types.ModuleType(FETCHERS)
    fetchers._MapDatasetFetcher = fetchers._IterableDatasetFetcher = Fetcher
    sys.modules[FETCHERS] = fetchers
    pickle.loads(text)(number)  # noqa: S301 - the test's own
    fetcher = fetchers._MapDatasetFetcher()
    batch = [fetcher.fetch(index) for index in range(batches)]
    with pytest.raises(StopIteration):
        fetcher.fetch(-1)
    found.put((batch, os.environ["STARTED"], os.getpid()))


def run(start: WorkerStart, workers: int, batches: int) -> list[Any]:
    context = multiprocessing.get_context("fork")
    found: Any = context.SimpleQueue()
    processes: list[Any] = [
        context.Process(target=work, args=(pickle.dumps(start), number, batches, found)) for number in range(workers)
    ]
    for process in processes:
        process.start()
    results = [found.get() for _ in processes]
    for process in processes:
        process.join(10.0)
        assert process.exitcode == 0
    return results


def test_one_object_has_fetches_of_all_workers_in_order(tmp_path: Path) -> None:
    folder = objects_folder(str(tmp_path), "run-1", "node-1")
    Handover(folder, 1_000).register()
    results = run(WorkerStart(started, owner_in(folder)), workers=3, batches=4)
    assert sorted(results)[0][:2] == ([0, 10, 20, 30], "0")
    assert {number for _, number, _ in results} == {"0", "1", "2"}
    (events,) = timelines(folder)
    assert (events.table.process, set(events.table.phases)) == ("node-1-rank3w", {LABEL})
    assert sorted(events.table.worker_ids.tolist()) == sorted([0, 1, 2] * 4)
    assert set(events.table.workers.tolist()) == {pid for _, _, pid in results}
    assert (events.tally["bad_events"], list(events.table.ends_us)) == (0, sorted(events.table.ends_us))
    assert events.table.durations_us.min() >= 2_000


def test_workers_leave_nothing_after_the_recorder_closes(tmp_path: Path) -> None:
    run(WorkerStart(started, owner_in(tmp_path)), workers=1, batches=2)
    assert list(tmp_path.iterdir()) == []


def test_loader_without_workers_leaves_the_main_process_alone(
    tmp_path: Path,
) -> None:
    before = Fetcher.fetch
    WorkerStart(None, owner_in(tmp_path))(0)
    assert Fetcher.fetch is before


def log_of(folder: Path, origin_us: int) -> EventLog:
    handover = Handover(folder, 1_000_000)
    return EventLog(lambda header: TimelineFile(handover, f"rank0{SHARED}", header), Faults(), origin_us=origin_us)


def read(folder: Path, monkeypatch: pytest.MonkeyPatch, rotate_s: float) -> list[FrameworkEvents]:
    monkeypatch.setattr("trainguard_collector.outgoing.ROTATE_S", rotate_s)
    outgoing = Outgoing(folder, "run-1", "node-1")
    outgoing.prepare(final=False)
    assert outgoing.faults == {}
    return timelines(folder) if outgoing.ready() else []


def test_workers_are_sent_every_minute_as_they_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin_us = time.time_ns() // 1_000 - 1_000_000
    logs = [log_of(tmp_path, origin_us), log_of(tmp_path, origin_us), log_of(tmp_path, origin_us + 5)]
    for log in logs:
        now = time.monotonic_ns()
        log.record((LABEL, "fetch", now, now + 1_000, "", 0))
        log.flush(now)
    logs[0].close()
    assert read(tmp_path, monkeypatch, rotate_s=60.0) == []
    first = read(tmp_path, monkeypatch, rotate_s=0.0)
    assert sorted(len(events.table) for events in first) == [1, 2], "another run's times have another origin"
    now = time.monotonic_ns()
    logs[1].record((LABEL, "fetch", now, now + 1_000, "", 0))
    logs[1].close()
    (second,) = read(tmp_path, monkeypatch, rotate_s=0.0)
    assert len(second.table) == 1
    assert list(tmp_path.glob("*.timeline")) == []
