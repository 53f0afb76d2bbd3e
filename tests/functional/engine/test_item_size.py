"""The item of a node stays under its cap, whatever the node; what that costs is counted and shown."""

import json

import numpy as np

from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, describe
from trainguard.core.layout import hour_folder
from trainguard.core.records import StreamKey
from trainguard.engine.streams.session import ITEM_CAP_BYTES

GPUS = 64
SETTINGS = {"trainguard:LowGPUUtilization_window": "2000", "trainguard:LowGPUUtilization_patience": "20"}


def minute_of_noise(index: int, rng: np.random.Generator) -> Upload:
    """One minute at 200 ms of GPUs whose values have two decimals and no pattern at all."""
    minute = START + 60 * index
    lines = []
    for tick in range(300):
        for gpu, value in enumerate(rng.uniform(20, 100, GPUS).round(2).tolist()):
            fields = {"Type": "gpu", "Name": f"gpu{gpu}", "Dimension": "GPUUtilization", "Value": value}
            lines.append(json.dumps({**fields, "NodeId": "algo-1", "Timestamp": minute + tick * 0.2}))
    key = f"{JOB}/profiler-output/system/incremental/{hour_folder(minute)}/{minute}.algo-1.json"
    return Upload(minute + 60.5, key, "\n".join(lines).encode())


def test_item_of_64_noisy_gpus_degrades_visibly_under_its_cap() -> None:
    network = Network()
    network.world.training_jobs.set(describe(SETTINGS))
    rng = np.random.default_rng(0)
    for index in range(8):
        upload = minute_of_noise(index, rng)
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
        if index >= 2:
            assert len(network.node(StreamKey(JOB, "algo-1", "system")).state) <= ITEM_CAP_BYTES
    counters = network.node(StreamKey(JOB, "algo-1", "system")).counters
    assert counters["degraded_to_whole_percents"] == 1
    assert counters["degraded_to_half_the_window"] >= 1
    (shown,) = [row for row in network.world.rows.of_job(JOB) if row.target == "LowGPUUtilization#algo-1"]
    assert shown.counters["degraded_to_whole_percents"] == 1
    assert "degraded_to_whole_percents" in shown.finding.reason
