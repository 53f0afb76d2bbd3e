"""How far verdicts are behind the clock, and which objects take long: measured where they happen."""

from collections.abc import Iterator

import pytest

from tests.support.delivery import Network
from tests.support.small_job import BUCKET, MINUTES, START, Upload, uploads
from trainguard.core.ports import Timing
from trainguard.engine.batch import LIVE_S, SLOW_OBJECT_S, BatchProcessor
from trainguard.engine.installed import FAMILIES


def system_uploads() -> list[Upload]:
    return [each for each in uploads() if ".algo-1.json" in each.key]


def deliver(network: Network, some: list[Upload], *, now: float) -> None:
    for upload in some:
        network.put(upload)
        network.announce(upload, now)
    network.run_until(now, batch_s=1.0)


def lags(network: Network) -> list[float]:
    return [seconds for what, seconds in network.world.journal.times if what == "evaluation_lag_seconds"]


def test_lag_is_from_the_newest_sample_to_the_clock() -> None:
    network = Network()
    now = START + 60.0 * 4 + 31.0
    deliver(network, system_uploads()[:4], now=now)
    (lag,) = lags(network)
    watermark_s = network.world.nodes.of_job("small-job")[0].watermark_s
    assert watermark_s is not None
    assert lag == pytest.approx(now - watermark_s)
    assert 30.0 < lag < 100.0


@pytest.mark.parametrize(("late_s", "measured"), [(LIVE_S - 60.0, 1), (LIVE_S + 60.0, 0)])
def test_age_of_an_old_profile_is_no_lag(late_s: float, measured: int) -> None:
    network = Network()
    deliver(network, system_uploads()[:4], now=START + 60.0 * 4 + late_s)
    assert len(lags(network)) == measured


def test_doorbell_without_new_data_measures_no_lag() -> None:
    network = Network()
    some = system_uploads()[:4]
    deliver(network, some, now=START + 300.0)
    for upload in some:
        network.announce(upload, START + 400.0)
    network.run_until(START + 400.0, batch_s=1.0)
    assert len(lags(network)) == 1


def test_closing_streams_of_an_ended_job_measure_no_lag() -> None:
    network = Network()
    deliver(network, uploads(), now=START + 60.0 * MINUTES + 120.0)
    before = len(lags(network))
    network.run_until(START + 60.0 * MINUTES + 3_600.0, batch_s=1.0)
    assert len(lags(network)) == before


@pytest.mark.parametrize(("step_s", "named"), [(SLOW_OBJECT_S, 4), (SLOW_OBJECT_S - 0.1, 0)])
def test_objects_that_reach_the_time_limit_are_named(step_s: float, named: int) -> None:
    network = Network()

    def ticking() -> Iterator[float]:
        time = START + 300.0
        while True:
            yield time
            time += step_s

    clock = ticking()
    timing = Timing(now=lambda: next(clock), pause=lambda _: None, has_time=lambda: True)
    network.batch = BatchProcessor(services=network.world.services, timing=timing, bucket=BUCKET, families=FAMILIES)
    deliver(network, system_uploads()[:4], now=START + 300.0)
    slow = [entry for entry in network.world.journal.entries if entry.what == "slow_objects"]
    assert [entry.where["key"] for entry in slow] == [each.key for each in system_uploads()[:4]][:named]
    assert all(entry.where["seconds"] == step_s for entry in slow)
