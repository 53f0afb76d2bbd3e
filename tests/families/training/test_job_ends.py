"""A job whose end no event reports: its data stop, however often the engine looks for more."""

from collections import Counter

import pytest

from tests.families.training.runs import arrive, fires_of, rows_of, run_files, uploads_of
from tests.families.training.test_scalars import events
from tests.families.training.test_stall import FAMILIES, stalled
from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.core.records import JobStatus, Status
from trainguard.engine import reconcile
from trainguard.engine.reconcile import ABANDONED_S
from trainguard.engine.training.stream import STALLED

KEY = f"{JOB}/tensorboard-output/events.out.tfevents.1.host"
HOUR = 60
HOLDS_S = 30.0


def outside() -> Network:
    """Return a network whose job SageMaker does not know: it has written a file of losses."""
    network = Network(families=FAMILIES)
    network.world.training_jobs.forget(JOB)
    write(network, range(20), at=START + 200.0)
    return network


def write(network: Network, steps: range, *, at: float) -> None:
    """Let the job's file have the losses of steps."""
    arrive(network, Upload(at, KEY, events(dict.fromkeys(range(steps.stop), 1.0))))


def ticked(network: Network, minutes: int) -> Counter[str]:
    """Let a run of the scheduler run each minute, and what it asks for be done; return what was called."""
    before = len(network.world.faults.calls)
    begun = network.now
    for minute in range(1, minutes + 1):
        network.run_until(begun + 60.0 * minute, batch_s=0.0)
        network.run_scheduler()
    return Counter(network.world.faults.calls[before:])


@pytest.fixture
def two_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job be left after two hours: a day of ticks takes seconds."""
    monkeypatch.setattr(reconcile, "ABANDONED_S", 2.0 * 3_600.0)


def reports(network: Network) -> int:
    return len(network.world.reports.started)


def test_a_killed_job_is_closed_after_a_day_of_silence() -> None:
    network = outside()
    called = ticked(network, 23 * HOUR)
    assert (network.job().active, network.job().closing, reports(network)) == (True, False, 0)
    called += ticked(network, 2 * HOUR)
    job = network.job()
    assert (job.active, job.closing, reports(network)) == (False, True, 1)
    (stream,) = (each for each in network.world.nodes.of_job(JOB) if not each.key.is_own)
    assert stream.closed
    assert stream.expires_at is not None
    assert job.left_at == pytest.approx(START + 200.0 + ABANDONED_S, abs=900.0)
    assert {row.expires_at for row in rows_of(network).values()} == {job.expires_at}
    assert called["TrainingJobs.describe"] <= 24 * HOUR / 6 + 2
    assert called["NodeStates.save"] < 14 * HOUR
    assert ticked(network, 47 * HOUR) == Counter({"Jobs.polled_fast": 47 * HOUR, "Jobs.polled_slowly": 47 * HOUR})


@pytest.mark.parametrize("quiet_hours", [1, 7])
def test_a_job_in_a_long_epoch_is_not_closed(
    quiet_hours: int,
) -> None:
    network = outside()
    for epoch in range(1, 3):
        ticked(network, quiet_hours * HOUR)
        write(network, range(20 * epoch, 20 * epoch + 20), at=network.now)
        assert (network.job().closing, reports(network)) == (False, 0)


@pytest.mark.usefixtures("two_hours")
def test_a_job_that_writes_on_is_open_until_its_next_end() -> None:
    network = outside()
    ticked(network, 3 * HOUR)
    assert not network.job().active
    write(network, range(20, 40), at=network.now + 60.0)
    job = network.job()
    assert (job.active, job.closing, job.left_at, job.expires_at) == (True, False, None, None)
    (stream,) = (each for each in network.world.nodes.of_job(JOB) if not each.key.is_own)
    assert (stream.closed, stream.expires_at, stream.cursors["newest"]) == (False, None, 39)
    ticked(network, 10)
    assert reports(network) == 1
    assert rows_of(network)[STALLED].expires_at is None
    ticked(network, 3 * HOUR)
    assert (network.job().active, reports(network)) == (False, 2)


@pytest.mark.usefixtures("two_hours")
def test_an_old_message_opens_no_job_that_was_left() -> None:
    network = outside()
    ticked(network, 3 * HOUR)
    network.announce(Upload(START + 200.0, KEY, b""), network.now)
    network.run_until(network.now + HOLDS_S, batch_s=0.0)
    assert (network.job().active, reports(network)) == (False, 1)


def test_reopening_that_dies_is_done_by_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "ABANDONED_S", 900.0)
    for calls in range(1, 12):
        network = outside()
        ticked(network, 30)
        assert not network.job().active
        network.doomed = [calls]
        write(network, range(20, 40), at=network.now + 60.0)
        network.run_until(network.now + 400.0, batch_s=0.0)
        (stream,) = (each for each in network.world.nodes.of_job(JOB) if not each.key.is_own)
        assert (network.job().active, stream.closed, stream.cursors["newest"]) == (True, False, 39), calls


@pytest.mark.parametrize("with_files", [False, True])
def test_a_job_whose_end_event_is_lost_is_asked_and_closed(
    with_files: bool,
) -> None:
    network = Network(families=FAMILIES)
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    if with_files:
        write(network, range(20), at=START + 200.0)
    ticked(network, 5)
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    called = ticked(network, HOUR)
    assert (network.job().active, reports(network), stalled(network)) == (False, 1, [])
    assert called["TrainingJobs.describe"] < 10


@pytest.mark.parametrize("gone", [False, True])
def test_a_job_is_asked_before_it_is_said_to_stall(
    gone: bool,
) -> None:
    network = Network(families=FAMILIES)
    settings = {"trainguard:training/StalledTrainingRule_threshold": "360"}
    network.world.training_jobs.set(describe(settings))
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    ticked(network, 2)
    if gone:
        network.world.training_jobs.forget(JOB)
    else:
        network.world.training_jobs.set(describe(settings, status=JobStatus.FAILED))
    ticked(network, HOUR)
    assert stalled(network) == []
    assert (network.job().active, reports(network)) == (False, 1)
    assert rows_of(network)[STALLED].times_fired == 0


def test_a_stall_of_a_running_job_is_asked_and_said_once() -> None:
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(describe({"trainguard:training/StalledTrainingRule_threshold": "360"}))
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    called = ticked(network, 9)
    assert called["TrainingJobs.describe"] == 1
    assert [rule for rule, _, _ in fires_of(network)] == [STALLED]
    assert rows_of(network)[STALLED].status is Status.FIRED


def test_without_an_answer_nobody_is_told_of_a_stall() -> None:
    network = Network(families=FAMILIES)
    network.world.training_jobs.set(describe({"trainguard:training/StalledTrainingRule_threshold": "360"}))
    for upload in uploads_of(run_files([1.0, 1.0])):
        arrive(network, upload)
    network.lasting_faults = True
    network.world.faults.schedule("TrainingJobs.describe", Fault.FAIL_BEFORE, times=1_000)
    ticked(network, 15)
    assert stalled(network) == []
    network.world.faults.clear()
    ticked(network, 2)
    assert stalled(network) == ["*"]
