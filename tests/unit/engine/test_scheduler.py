"""How far a job's profile goes, as the scheduler notes it in the job's item."""

import pytest

from tests.support.delivery import Network
from tests.support.small_job import JOB, Upload, uploads

SYSTEM_1 = [upload for upload in uploads() if "system/incremental" in upload.key and "algo-1" in upload.key]
LAST = SYSTEM_1[4]


@pytest.fixture
def network() -> Network:
    """Return a network that has delivered five minutes of one node."""
    delivered = Network()
    for upload in SYSTEM_1[:5]:
        arrive(delivered, upload)
    return delivered


def arrive(network: Network, upload: Upload) -> None:
    network.put(upload)
    network.announce(upload, upload.at)
    network.run_until(upload.at, batch_s=0.0)


def watermark_s(network: Network) -> float:
    """Return the watermark of the one node."""
    (record,) = (each for each in network.world.nodes.of_job(JOB) if each.key.stream == "system")
    assert record.watermark_s is not None
    return round(record.watermark_s, 3)


def touches(network: Network) -> int:
    return network.world.faults.calls.count("Jobs.touch")


def test_item_of_an_untouched_job_gets_the_watermark_at_a_run(
    network: Network,
) -> None:
    assert network.job().last_object_at is None
    network.run_scheduler()
    assert network.job().last_object_at == watermark_s(network)


def test_scheduler_does_not_touch_a_job_without_samples() -> None:
    network = Network()
    end = next(upload for upload in uploads() if upload.key.endswith(".ts"))
    arrive(network, end)
    network.run_scheduler()
    assert network.job().last_object_at is None
    assert touches(network) == 0


@pytest.mark.parametrize(("behind_s", "touched"), [(60.01, 1), (59.9, 0), (0.0, 0), (-600.0, 0)])
def test_touched_job_is_written_only_for_a_minute_of_new_data(network: Network, behind_s: float, touched: int) -> None:
    watermark = watermark_s(network)
    network.world.jobs.touch(JOB, watermark - behind_s)
    before = touches(network)
    network.run_scheduler()
    assert touches(network) - before == touched
    assert network.job().last_object_at == pytest.approx(watermark if touched else watermark - behind_s)


def test_item_follows_a_minute_of_new_data_at_the_next_run(network: Network) -> None:
    network.run_scheduler()
    first = network.job().last_object_at
    arrive(network, SYSTEM_1[5])
    network.run_scheduler()
    assert first is not None
    assert network.job().last_object_at == pytest.approx(first + 60.0, abs=0.1)
