"""A job whose steps are logged: its end in its item, and one warning of a time limit that it will miss."""

import pytest

from tests.families.training.runs import network_of
from tests.families.training.test_scalars import events, put
from tests.support.delivery import Network
from tests.support.small_job import JOB, START, describe

NAME = "tensorboard-output/events.out.tfevents.1.host"


def followed(tags: dict[str, str]) -> Network:
    """Deliver an event file that grows by a step a second, for 400 of 1,000 seconds."""
    network = network_of([])
    network.world.training_jobs.set(describe(tags))
    for until in range(20, 420, 20):
        put(network, NAME, events(dict.fromkeys(range(until), 1.0)), float(until))
        network.now = START + until + 10.0
        network.run_scheduler()
    return network


def deadlines(network: Network) -> list[str]:
    return [str(each["reason"]) for each in network.world.executions.started.values() if each["kind"] == "deadline"]


@pytest.mark.parametrize(("limit", "warned"), [("10m", 1), ("20m", 0)])
def test_limit_is_warned_of_once_where_it_will_be_missed(limit: str, warned: int) -> None:
    network = followed({"trainguard:total-steps": "1000", "trainguard:time-limit": limit})
    assert len(deadlines(network)) == warned
    job = network.world.jobs.load(JOB)
    assert job is not None
    assert job.outlook is not None
    assert "of 1,000 steps" in job.outlook


def test_job_of_unknown_length_has_no_outlook() -> None:
    network = followed({"trainguard:time-limit": "10m"})
    assert deadlines(network) == []
    job = network.world.jobs.load(JOB)
    assert job is not None
    assert job.outlook is None
