"""Jobs outside SageMaker: whole jobs with a file of their own, how they change, and how they end."""

import pytest

from tests.support.delivery import Network
from tests.support.small_job import BUCKET, JOB, START, Upload, describe, uploads
from tests.unit.engine.test_job_file import KEY, file
from trainguard.core.records import JobStatus, RuleRow, Status
from trainguard.engine.reconcile import ABANDONED_S

SYSTEM_1 = [each for each in uploads() if "system/incremental" in each.key and "algo-1" in each.key]
END_MARK = uploads()[-1]
SETTINGS = {"LowGPUUtilization_window": 20, "LowGPUUtilization_patience": 20}


def outside() -> Network:
    """Return a network whose SageMaker does not know the job."""
    network = Network()
    network.world.training_jobs.forget(JOB)
    return network


def tell(network: Network, body: bytes, *, at: float = START, announced: bool = True) -> None:
    upload = Upload(at, KEY, body)
    network.put(upload)
    if announced:
        network.announce(upload, max(at, network.now))
    network.run_until(max(at, network.now), batch_s=0.0)


def arrive(network: Network, chosen: list[Upload]) -> None:
    for upload in chosen:
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(max(upload.at, network.now), batch_s=0.0)


def settle(network: Network, minutes: int = 4) -> None:
    for _ in range(minutes):
        network.run_scheduler()
        network.run_until(network.now + 60.0, batch_s=0.0)


def row(network: Network, target: str) -> RuleRow:
    return next(each for each in network.world.rows.of_job(JOB) if each.target == target)


def test_file_beside_a_profile_describes_the_job() -> None:
    network = outside()
    tell(network, file(instance_type="ml.g5.12xlarge", instance_count=1, settings=SETTINGS), announced=False)
    arrive(network, SYSTEM_1)
    network.run_scheduler()
    job = network.job()
    assert (job.instance_type, job.instance_count, job.arn) == ("ml.g5.12xlarge", 1, f"unknown:{JOB}")
    assert job.stop_allowed is False
    assert row(network, "LowGPUUtilization").status is Status.FIRED


@pytest.mark.parametrize("status", ["Completed", "Failed", "Stopped"])
@pytest.mark.parametrize("announced", [True, False])
def test_ended_job_is_closed_on_event_or_when_found_silent(status: str, announced: bool) -> None:
    network = outside()
    tell(network, file(status="InProgress", settings=SETTINGS))
    arrive(network, SYSTEM_1)
    settle(network)
    assert network.job().active is True
    tell(network, file(status=status, ended_at=START + 900), at=network.now, announced=announced)
    settle(network, 4 if announced else 20)
    job = network.job()
    assert (job.active, job.status, job.ended_at) == (False, JobStatus(status), START + 900.0)
    assert len(network.world.reports.started) == 1


def test_file_that_says_ended_closes_the_job_at_once() -> None:
    network = outside()
    tell(network, file(status="InProgress"))
    arrive(network, SYSTEM_1)
    tell(network, file(status="Completed"), at=network.now)
    network.run_until(network.now + 5.0, batch_s=0.0)
    assert network.job().active is False


@pytest.mark.parametrize(("status", "closed"), [(None, True), ("InProgress", False)])
def test_end_mark_respects_what_the_file_says_of_the_end(status: str | None, closed: bool) -> None:
    network = outside()
    tell(network, file() if status is None else file(status=status))
    arrive(network, [*SYSTEM_1, END_MARK])
    settle(network)
    assert network.job().active is not closed


def test_restarted_failed_attempt_runs_and_ends_as_the_last() -> None:
    network = outside()
    tell(network, file(status="InProgress", started_at=START, settings=SETTINGS))
    arrive(network, SYSTEM_1[:4])
    tell(network, file(status="Failed", started_at=START, ended_at=START + 250), at=network.now)
    settle(network)
    assert (network.job().active, network.job().status) == (False, JobStatus.FAILED)
    tell(network, file(status="InProgress", started_at=START + 260), at=network.now)
    arrive(network, [END_MARK, *SYSTEM_1[4:]])
    settle(network)
    again = network.job()
    assert (again.active, again.closing, again.status) == (True, False, JobStatus.IN_PROGRESS)
    assert (again.started_at, again.ended_at) == (START + 260.0, None)
    tell(network, file(status="Completed", started_at=START + 260, ended_at=START + 950), at=network.now)
    settle(network)
    job = network.job()
    assert (job.active, job.status, job.ended_at) == (False, JobStatus.COMPLETED, START + 950.0)
    assert len(network.world.reports.started) == 2


def test_changed_file_lets_the_job_grow_and_keeps_its_settings() -> None:
    network = outside()
    tell(network, file(instance_count=2, settings=SETTINGS))
    tell(network, file(instance_count=8, started_at=START + 5, settings={"LowGPUUtilization_window": 77}))
    job = network.job()
    assert (job.instance_count, job.started_at) == (8, START + 5.0)
    assert job.rule_settings["LowGPUUtilization_window"] == "20"


def test_unusable_file_is_counted_and_the_profile_is_judged() -> None:
    network = outside()
    tell(network, file(instance_count=-3))
    assert network.world.jobs.load(JOB) is None
    arrive(network, SYSTEM_1[:3])
    assert network.job().instance_count is None
    assert network.world.journal.totals["bad_job_files"] >= 2
    assert len(network.world.nodes.of_job(JOB)) == 1


@pytest.mark.parametrize("mended", [file(instance_count=2), None])
@pytest.mark.parametrize("announced", [True, False])
def test_item_names_a_file_fault_until_it_is_fixed_or_removed(mended: bytes | None, announced: bool) -> None:
    network = outside()
    tell(network, file(instance_count=-3), announced=False)
    arrive(network, SYSTEM_1[:3])
    (fault,) = network.job().faults
    assert fault == network.job().file_fault
    assert (KEY in fault, "instance_count is -3" in fault, "expected" in fault) == (True, True, True)
    settle(network, 1)
    assert network.job().faults == (fault,)
    if mended is None:
        network.world.objects.delete(BUCKET, [KEY])
        network.announce(Upload(network.now, KEY, b""), network.now) if announced else None
        network.run_until(network.now, batch_s=0.0)
    else:
        tell(network, mended, at=network.now, announced=announced)
    settle(network, 2 if announced else 15)
    assert network.job().faults == ()
    assert network.job().instance_count == (2 if mended else None)


def test_broken_file_keeps_its_last_good_values_and_shows_fault() -> None:
    network = outside()
    tell(network, file(instance_count=2, settings={"LowGPUUtilization_window": "x"}))
    arrive(network, SYSTEM_1[:3])
    tell(network, file(status="Done"), at=network.now)
    job = network.job()
    assert job.instance_count == 2
    assert [("status" in fault, "LowGPUUtilization_window" in fault) for fault in job.faults] == [
        (True, False),
        (False, True),
    ]


def test_file_fault_of_a_sagemaker_job_is_not_a_fault_of_the_job() -> None:
    network = outside()
    tell(network, file(instance_count=-3), announced=False)
    arrive(network, SYSTEM_1[:3])
    network.world.training_jobs.set(describe())
    settle(network, 6)
    assert (network.job().is_outside, network.job().faults) == (False, ())


def test_file_beside_the_profile_of_a_sagemaker_job_is_ignored() -> None:
    network = Network()
    arrive(network, SYSTEM_1[:3])
    tell(network, file(status="Completed", instance_count=99))
    settle(network)
    job = network.job()
    assert (job.active, job.status, job.instance_count) == (True, JobStatus.IN_PROGRESS, 2)


def test_registered_job_that_never_wrote_is_given_up_after_a_day() -> None:
    network = outside()
    tell(network, file(instance_count=1))
    network.run_scheduler()
    network.now += ABANDONED_S - 60.0
    settle(network, 1)
    assert network.job().active is True
    settle(network, 5)
    assert network.job().active is False
    assert row(network, "LowGPUUtilization").finding.reason == "Ended without a profile: no object of it could be read."


def write_status(network: Network, node: str) -> None:
    network.put(Upload(network.now, f"{JOB}/collector/{node}.status.json", b"{}"))


def test_ten_minutes_of_silent_collectors_close_the_job() -> None:
    network = outside()
    tell(network, file(status="InProgress", instance_count=2))
    arrive(network, SYSTEM_1[:6])
    write_status(network, "algo-1")
    network.now += 180.0
    write_status(network, "algo-2")
    settle(network, 9)
    assert network.job().active is True
    settle(network, 12)
    assert network.job().active is False


def test_one_collector_writing_its_status_keeps_the_job_open() -> None:
    network = outside()
    tell(network, file(status="InProgress", instance_count=2))
    arrive(network, SYSTEM_1[:6])
    write_status(network, "algo-1")
    for _ in range(5):
        settle(network, 6)
        write_status(network, "algo-2")
    assert network.job().active is True


def test_silent_job_without_a_collector_is_open_for_a_day() -> None:
    network = outside()
    arrive(network, SYSTEM_1[:6])
    settle(network, 30)
    assert network.job().active is True
