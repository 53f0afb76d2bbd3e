"""How a job ends: by a mark, by its status, by silence; each stream is asked, and one report is made of it all."""

from dataclasses import replace

from tests.support.delivered import NODE_1, SYSTEM_1, UPLOADS, deliver, row
from tests.support.delivery import Network, final_state
from tests.support.small_job import BUCKET, JOB, describe
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobStatus, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import JobRegistry, describe_record
from trainguard.engine.jobs.lifecycle import ASK_AGAIN_S, request_close


def test_scheduler_ends_a_silent_job_whose_end_event_was_lost() -> None:
    network = Network()
    deliver(network, SYSTEM_1)
    network.world.training_jobs.set(describe(status=JobStatus.FAILED))
    for _ in range(25):
        network.run_scheduler()
        network.run_until(network.now + 60.0, batch_s=0.0)
    job = network.job()
    assert (job.active, job.status) == (False, JobStatus.FAILED)
    assert network.node(NODE_1).closed
    assert row(network, "LowGPUUtilization").expires_at == job.expires_at


def test_final_state_and_report_of_the_whole_job_agree() -> None:
    network = Network()
    deliver(network, UPLOADS)
    assert final_state(network.world)["executions"] == [("LowGPUUtilization", 0), ("StepOutlier", 0)]
    assert network.job().active is False


def test_end_mark_of_a_running_job_closes_nothing() -> None:
    network = Network()
    mark = UPLOADS[-1]
    for upload in [*SYSTEM_1[:6], mark, *SYSTEM_1[6:]]:
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(SYSTEM_1[6].at if upload is mark else upload.at, batch_s=0.0)
    job = network.job()
    assert (job.active, job.closing) == (True, False)
    assert not network.node(NODE_1).closed
    assert network.world.reports.started == {}


def test_early_closed_node_waits_for_the_close_of_the_others() -> None:
    network = Network()
    deliver(network, [*SYSTEM_1[:-1], UPLOADS[-1], SYSTEM_1[-1]])
    closed = {record.key.node_kind for record in network.world.nodes.of_job(JOB) if record.closed}
    assert closed == {"algo-1#system", "algo-1#framework", "algo-2#system", "algo-2#framework"}
    assert list(network.world.reports.started.values()) == [{"kind": "end", "job": JOB}]


def test_lost_close_task_is_sent_again_and_the_job_finishes() -> None:
    network = Network()
    deliver(network, SYSTEM_1)
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    network.announce(UPLOADS[-1], network.now)
    network.run_until(network.now, batch_s=0.0)
    (lost,) = [entry for entry in network.queue if '"algo-2"' in entry[2].body and '"framework"' in entry[2].body]
    network.queue.remove(lost)
    for _ in range(4):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.run_scheduler()
    assert (network.job().active, len(network.world.reports.started)) == (True, 0)
    for _ in range(3):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.run_scheduler()
    assert (network.job().active, len(network.world.reports.started)) == (False, 1)


def test_late_framework_events_of_a_finished_job_start_a_report() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe(), framework_profiling=False))
    deliver(network, [*SYSTEM_1, UPLOADS[-1]])
    assert (network.job().active, len(network.world.reports.started)) == (False, 1)
    deliver(network, [each for each in UPLOADS if "pevents" in each.key][:1], until=network.now + 10.0)
    assert len(network.world.reports.started) == 2


def test_job_ended_before_its_first_object_says_what_is_missing() -> None:
    network = Network()
    services = network.world.services
    record = describe_record(
        describe(status=JobStatus.COMPLETED), services.settings, bucket=BUCKET, root=ProfileRoot("", JOB)
    )
    registered = services.jobs.register(record)
    request_close(registered, JobRegistry(services, FAMILIES, lambda: network.now))
    network.world.tasks.drain()
    network.now += ASK_AGAIN_S
    network.run_scheduler()
    assert network.job().active is True
    network.run_until(network.now + 5.0, batch_s=1.0)
    assert network.job().active is False
    assert row(network, "LowGPUUtilization").status is Status.NOT_APPLICABLE
    assert row(network, "LowGPUUtilization#algo-2").status is Status.NOT_APPLICABLE
