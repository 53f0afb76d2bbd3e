"""How a job ends: by a mark, by its status, by silence; each stream is asked, and one report is made of it all."""

from dataclasses import replace

from tests.support.delivered import NODE_1, SYSTEM_1, UPLOADS, deliver, row
from tests.support.delivery import Network, final_state
from tests.support.small_job import BUCKET, JOB, describe
from trainguard.engine.jobs.closing import ASK_AGAIN_S, begin_close
from trainguard.engine.jobs.job_registry import describe_record
from trainguard.families.installed import FAMILIES
from trainguard.layout import ProfileRoot
from trainguard.records import JobStatus, Status


def test_given_a_lost_end_when_the_nodes_are_silent_then_the_tick_asks_and_finishes_the_job() -> None:
    network = Network()
    deliver(network, SYSTEM_1)
    network.world.training_jobs.set(describe(status=JobStatus.FAILED))
    for _ in range(25):
        network.tick()
        network.run_until(network.now + 60.0, batch_s=0.0)
    job = network.job()
    assert (job.active, job.status) == (False, JobStatus.FAILED)
    assert network.node(NODE_1).closed
    assert row(network, "LowGPUUtilization").expires_at == job.expires_at


def test_given_the_whole_job_when_the_report_of_its_end_is_made_then_final_state_and_report_agree() -> None:
    network = Network()
    deliver(network, UPLOADS)
    assert final_state(network.world)["executions"] == [("LowGPUUtilization", 0), ("StepOutlier", 0)]
    assert network.job().active is False


def test_given_an_end_mark_while_the_job_goes_on_when_it_rings_then_nothing_is_closed() -> None:
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


def test_given_an_object_before_the_close_tasks_when_it_closes_its_node_then_the_others_are_waited_for() -> None:
    network = Network()
    deliver(network, [*SYSTEM_1[:-1], UPLOADS[-1], SYSTEM_1[-1]])
    closed = {record.key.node_kind for record in network.world.nodes.of_job(JOB) if record.closed}
    assert closed == {"algo-1#system", "algo-1#framework", "algo-2#system", "algo-2#framework"}
    assert list(network.world.reports.started.values()) == [{"kind": "end", "job": JOB}]


def test_given_a_close_task_that_is_lost_when_ticks_go_by_then_its_stream_is_asked_again_and_the_job_finished() -> None:
    network = Network()
    deliver(network, SYSTEM_1)
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    network.announce(UPLOADS[-1], network.now)
    network.run_until(network.now, batch_s=0.0)
    (lost,) = [entry for entry in network.queue if '"algo-2"' in entry[2].body and '"framework"' in entry[2].body]
    network.queue.remove(lost)
    for _ in range(4):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.tick()
    assert (network.job().active, len(network.world.reports.started)) == (True, 0)
    for _ in range(3):
        network.run_until(network.now + 60.0, batch_s=0.0)
        network.tick()
    assert (network.job().active, len(network.world.reports.started)) == (False, 1)


def test_given_a_finished_job_when_framework_events_are_first_heard_of_then_a_report_of_them_is_started() -> None:
    network = Network()
    network.world.training_jobs.set(replace(describe(), framework_profiling=False))
    deliver(network, [*SYSTEM_1, UPLOADS[-1]])
    assert (network.job().active, len(network.world.reports.started)) == (False, 1)
    deliver(network, [each for each in UPLOADS if "pevents" in each.key][:1], until=network.now + 10.0)
    assert len(network.world.reports.started) == 2


def test_given_a_job_that_ended_before_its_first_object_when_it_is_closed_then_it_ends_and_says_what_is_missing() -> (
    None
):
    network = Network()
    services = network.world.services
    record = describe_record(
        describe(status=JobStatus.COMPLETED), services.settings, bucket=BUCKET, root=ProfileRoot("", JOB)
    )
    registered = services.jobs.register(record)
    begin_close(registered, FAMILIES, jobs=services.jobs, nodes=services.nodes, tasks=services.tasks, now=network.now)
    network.world.tasks.drain()
    network.now += ASK_AGAIN_S
    network.tick()
    assert network.job().active is True
    network.run_until(network.now + 5.0, batch_s=1.0)
    assert network.job().active is False
    assert row(network, "LowGPUUtilization").status is Status.NOT_APPLICABLE
    assert row(network, "LowGPUUtilization#algo-2").status is Status.NOT_APPLICABLE
