"""A job whose profile nobody can read is closed out within hours, and within days when SageMaker forgot it."""

import pytest

from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.late_events import (
    registry,
    row,
)
from tests.support.small_job import BUCKET, JOB
from tests.unit.engine.test_closing import elsewhere
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobStatus


@pytest.mark.parametrize(("final", "hours"), [(True, 24), (False, 72)])
def test_job_with_an_unreadable_place_is_closed_out(final: bool, hours: int) -> None:
    network = Network()
    network.lasting_faults = True
    stored = registry(network).register(elsewhere(), bucket=BUCKET, root=ProfileRoot("", JOB))
    assert stored.bucket == "another-bucket"
    network.world.faults.schedule("ProfileObjects.list", Fault.FAIL_BEFORE, times=1_000_000)
    if final:
        network.world.training_jobs.set(elsewhere(JobStatus.COMPLETED))
    else:
        network.world.training_jobs.forget(JOB)
    sent = 0
    for _ in range(hours * 60):
        network.clock.run()
        sent += len(network.world.tasks.drain())
        network.now += 60.0
        if not network.job().active:
            break
    assert network.job().active is False
    assert network.world.jobs.active() == []
    assert sent == 8 * 2 * 2
    assert row(network, "LowGPUUtilization").finding.reason == "Ended without a profile: no object of it could be read."
