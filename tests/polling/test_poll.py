"""Polls of a job's source: what they write, and that repeated, late, failing and interrupted ones change nothing."""

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.faults import Crash, Fault
from tests.support.memory import MemoryWorld
from trainguard.core.errors import ProfileSourceError
from trainguard.core.job_policy import JobPolicy
from trainguard.core.records import JobRecord, JobStatus
from trainguard.engine.installed import FAMILIES
from trainguard.formats.runs.managed import system_files
from trainguard.formats.runs.run import RunOutcome, SeriesName, Snapshot, SourceRun
from trainguard.formats.tensors.scalars.rows import Recording
from trainguard.local.api import analyze
from trainguard.stack.polling.delivery import MOST_EVENT_BYTES, PollStatus, read_status, status_key
from trainguard.stack.polling.poll import HOLD_S, MOST_S, RARELY_S, Asked, SourcePoll

AT = 1_800_000_000.0
BUCKET = "profiles"
GPU = SeriesName("gpu", "gpu0", "GPUUtilization")
CORE = SeriesName("cpu", "cpu0", "CPUUtilization")


@dataclass
class Source:
    """A service that knows a whole run, and answers with what lies in the time that it is asked for."""

    run: SourceRun
    gives_all: bool = False
    fault: Exception | None = None
    asked: list[tuple[float, float]] = field(default_factory=list)

    def read(self, asked: Asked) -> SourceRun:
        self.asked.append((asked.start, asked.end))
        if self.fault is not None:
            raise self.fault
        run = SourceRun(self.run.name, self.run.tool, bad=dict(self.run.bad), outcome=self.run.outcome)
        run.ended_at = self.run.ended_at
        run.not_judged = {kind: set(devices) for kind, devices in self.run.not_judged.items()}
        start, end = (-1e18, 1e18) if self.gives_all else (asked.start, asked.end)
        run.snapshots = {
            node: [each for each in found if start <= each.at < end] for node, found in self.run.snapshots.items()
        }
        run.scalars = [row for row in self.run.scalars if start <= row.at < end]
        asked.counted.update({name: count + 1 for name, count in {"loss": 0, **asked.counted}.items()})
        return run


def training(minutes: float = 60.0, *, node: str = "ip-10-0-0-1") -> SourceRun:
    """Return a run whose GPU idles at 20 % from its 20th minute on."""
    run = SourceRun("bert", "Prometheus")
    times = [AT + 15.0 * number for number in range(int(minutes * 4))]
    run.snapshots = {node: [Snapshot(at, {GPU: 95.0 if at < AT + 1_200 else 5.0, CORE: 30.0}) for at in times]}
    run.scalars = [Recording(number, at, {"loss": 1.0 / (1 + number)}) for number, at in enumerate(times)]
    return run


def job(source: str = "prometheus pod=bert-0", **fields: Any) -> JobRecord:
    """Return a running job that began at `AT`."""
    record = JobRecord(
        job="bert",
        arn="arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert",
        bucket=BUCKET,
        prefix="jobs/",
        status=JobStatus.IN_PROGRESS,
        created_at=AT,
        started_at=AT,
        policy=JobPolicy(source=source),
    )
    return replace(record, **fields)


class Stack:
    """A deployment with one job that names a source."""

    def __init__(self, source: Source, record: JobRecord | None = None) -> None:
        self.world = MemoryWorld()
        self.source = source
        self.world.jobs.register(record or job())
        services = self.world.services
        self.objects = self.world.objects
        self.poll = SourcePoll(services.jobs, self.objects, source.read, services.journal)

    def run(self, minutes: float) -> PollStatus | None:
        return self.poll.run("bert", AT + 60.0 * minutes)

    def listed(self, below: str = "") -> list[str]:
        return [each.key for each in self.objects.list(BUCKET, f"jobs/bert/{below}", "")]

    def bodies(self) -> dict[str, bytes]:
        return {key: self.objects.get(BUCKET, key, 10**8) for key in self.listed() if "/live-source/source" not in key}

    @property
    def status(self) -> PollStatus | None:
        return read_status(self.objects, BUCKET, status_key(job().root, "source"))


def test_minute_polls_give_the_minutes_of_the_whole_run() -> None:
    run = training()
    stack = Stack(Source(run))
    for minute in range(63):
        stack.run(minute)
    expected = {f"jobs/bert/profiler-output/{name}" for name in system_files(run) if name.endswith(".json")}
    assert set(stack.listed("profiler-output/")) == expected
    whole = {f"jobs/bert/profiler-output/{name}": body for name, body in system_files(run).items()}
    assert {key: stack.bodies()[key] for key in expected} == {key: whole[key] for key in expected}
    assert stack.status is not None
    assert (stack.status.minutes, stack.status.scalars) == (60, 240)


def test_written_key_is_read_by_the_family_of_the_job() -> None:
    stack = Stack(Source(training(5)))
    stack.run(10)
    parsed = [FAMILIES.parse_key(key) for key in stack.bodies()]
    assert {(each.stream, each.root) for each in parsed} == {("system", job().root), ("training/scalars", job().root)}


def test_unsettled_minute_waits() -> None:
    stack = Stack(Source(training()))
    stack.run(HOLD_S / 60.0 + 0.9)
    assert stack.status is None
    stack.run(HOLD_S / 60.0 + 1.0)
    assert stack.source.asked == [(AT, AT + 60.0)]


def test_repeated_or_older_run_polls_nothing() -> None:
    stack = Stack(Source(training()))
    stack.run(20)
    before, asked = stack.bodies(), list(stack.source.asked)
    assert stack.run(20) is None
    assert stack.run(12) is None
    assert (stack.bodies(), stack.source.asked) == (before, asked)


def test_each_poll_of_waiting_hours_is_bounded() -> None:
    stack = Stack(Source(training(120)))
    for _ in range(5):
        stack.run(122)
    assert stack.source.asked == [(AT + number * MOST_S, AT + (number + 1) * MOST_S) for number in range(4)]


@pytest.mark.parametrize("kind", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("operation", range(1, 11))
def test_poll_after_a_crash_anywhere_is_as_without_it(operation: int, kind: Fault) -> None:
    undisturbed = Stack(Source(training(12)))
    undisturbed.run(6)
    undisturbed.run(14)
    stack = Stack(Source(training(12)))
    stack.run(6)
    stack.world.faults.schedule("ProfileObjects.put", kind, nth=operation)
    with pytest.raises(Crash):
        stack.run(14)
    stack.world.faults.clear()
    stack.run(14)
    assert stack.bodies() == undisturbed.bodies()
    assert stack.status == undisturbed.status


def test_refusing_service_is_in_the_status_and_is_retried() -> None:
    source = Source(training(), fault=ProfileSourceError("https://prom", "status 403: forbidden"))
    stack = Stack(source)
    stack.run(5)
    stack.run(6)
    assert stack.status is not None
    assert (stack.status.fault, stack.status.failed_since) == (
        "source 'https://prom' status 403: forbidden",
        AT + 300.0,
    )
    assert not stack.listed("profiler-output/")
    source.fault = None
    stack.run(7)
    assert source.asked[-1] == (AT, AT + 300.0)
    assert (stack.status.fault, stack.status.failed_since, stack.status.minutes) == ("", None, 5)


def test_setting_without_a_source_is_in_the_status() -> None:
    stack = Stack(Source(training()), job("graphite host=a"))
    stack.run(5)
    assert stack.status is not None
    assert stack.status.fault.startswith("source 'graphite host=a' names no source, expected prometheus with labels")


def test_source_with_full_history_is_polled_rarely_and_once() -> None:
    stack = Stack(Source(training(30), gives_all=True), job("mlflow run=abc"))
    for minute in range(33):
        stack.run(minute)
    polls = [end for _, end in stack.source.asked]
    assert all(later - earlier >= RARELY_S for earlier, later in itertools.pairwise(polls))
    assert stack.status is not None
    assert stack.status.scalars == 4 * stack.status.minutes


def test_end_of_the_job_is_marked_once() -> None:
    stack = Stack(Source(training(10)))
    stack.run(8)
    over = job(status=JobStatus.COMPLETED, ended_at=AT + 595.0, closing=True)
    stack.world.jobs.update_status(over)
    stack.run(12)
    assert "jobs/bert/profiler-output/system/training_job_end.ts" in stack.listed()
    assert stack.status is not None
    assert (stack.status.ended, stack.status.minutes) == (True, 10)
    asked = len(stack.source.asked)
    assert stack.run(13) is None
    assert len(stack.source.asked) == asked


def test_end_of_the_run_by_its_source_is_marked() -> None:
    run = training(10)
    run.outcome, run.ended_at = RunOutcome.COMPLETED, AT + 600.0
    stack = Stack(Source(run, gives_all=True), job("mlflow run=abc"))
    stack.run(9)
    assert stack.status is not None
    assert not stack.status.ended
    stack.run(16)
    assert stack.status.ended


@pytest.mark.parametrize(
    "record",
    [
        job(source=""),
        job(active=False),
        job(policy=JobPolicy(evaluated=False, source="prometheus pod=a")),
    ],
    ids=["no-source", "over", "not-evaluated"],
)
def test_job_excluded_from_polling_is_not_read(record: JobRecord) -> None:
    stack = Stack(Source(training()), record)
    assert stack.run(30) is None
    assert not stack.source.asked


def test_scalar_file_of_many_polled_scalars_stays_small() -> None:
    run = SourceRun("bert", "MLflow")
    run.scalars = [
        Recording(number, AT + number / 125, {f"metric-{part}": 0.5 for part in range(10)}) for number in range(30_000)
    ]
    stack = Stack(Source(run))
    for minute in range(6):
        stack.run(minute)
    files = stack.listed("tensorboard-output/")
    sizes = [len(stack.objects.get(BUCKET, key, 10**8)) for key in files]
    assert len(files) > 1
    assert all(size >= MOST_EVENT_BYTES for size in sizes[:-1])


def test_invalid_status_reads_the_job_from_its_start() -> None:
    stack = Stack(Source(training()))
    stack.objects.put(BUCKET, status_key(job().root, "source"), b"[1, 2", "application/json")
    stack.run(5)
    assert stack.source.asked == [(AT, AT + 180.0)]


def test_verdict_of_a_polled_job_follows_its_metrics(tmp_path: Path) -> None:
    stack = Stack(Source(training(90)))
    for minute in range(93):
        stack.run(minute)
    for key, body in stack.bodies().items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    assert analyze(tmp_path / "jobs/bert").fired == ("LowGPUUtilization",)


def test_accelerators_that_are_not_read_are_counted_once(tmp_path: Path) -> None:
    run = training(90)
    run.not_judged = {"IPU": {"ipu0", "ipu1"}}
    stack = Stack(Source(run))
    for minute in range(93):
        stack.run(minute)
    for key, body in stack.bodies().items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    counters = [each.counters for each in analyze(tmp_path / "jobs/bert").document.coverage]
    assert [each["devices_not_judged"] for each in counters if "devices_not_judged" in each] == [2]
    assert stack.status is not None
    assert stack.status.not_judged == ["IPU ipu0", "IPU ipu1"]


def test_written_status_is_the_documented_object() -> None:
    stack = Stack(Source(training()))
    stack.run(4)
    stored = msgspec.json.decode(stack.objects.get(BUCKET, "jobs/bert/live-source/source.json", 10**6))
    assert list(stored) == [field.name for field in msgspec.structs.fields(PollStatus)]
