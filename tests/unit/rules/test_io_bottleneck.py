import numpy as np
import pytest

from tests.unit.rules.node_replay import NodeSeries, Replay, replay, series
from trainguard.core.records import Status
from trainguard.rules.bottlenecks.cpu_and_io import (
    CPUBottleneck,
    CPUBottleneckParameters,
    IOBottleneck,
    IOBottleneckParameters,
)

RULE = IOBottleneck()
DEFAULTS = IOBottleneckParameters()
# The GPU at work, the GPU that waits, and the I/O wait of the core that reads in that time.
BUSY, WAITING, READING = 95.0, 30.0, 80.0


def judge(node: NodeSeries, parameters: IOBottleneckParameters = DEFAULTS, *, closed: bool = True) -> Replay:
    return replay(RULE, parameters, node, closed=closed)


def node(*phases: tuple[float, float, float], interval_s: float = 0.5) -> NodeSeries:
    """Build a node of one GPU from phases of (minutes, utilization, largest I/O wait)."""
    lengths = [round(minutes * 60.0 / interval_s) for minutes, _, _ in phases]
    gpu = np.repeat([utilization for _, utilization, _ in phases], lengths)
    return series(gpu, io_wait=np.repeat([wait for _, _, wait in phases], lengths), interval_s=interval_s)


def test_gpu_waiting_for_reads_fires_and_not_the_cpu_rule() -> None:
    reading = node(*[(0.6, WAITING, READING), (0.4, BUSY, 1.0)] * 15)

    result = judge(reading)

    assert result.last.status is Status.FIRED
    assert result.last.measured == pytest.approx(60.0, abs=0.1)
    assert replay(CPUBottleneck(), CPUBottleneckParameters(), reading).first_fire is None


@pytest.mark.parametrize(
    ("utilization", "wait", "hits"),
    [(70.0, 80.0, 0), (69.0, 50.0, 0), (69.0, 50.5, 10)],
    ids=["gpu-on-threshold", "wait-on-threshold", "both-beyond"],
)
def test_values_on_the_thresholds_are_no_bottleneck(utilization: float, wait: float, hits: int) -> None:
    phases = node((1.0, BUSY, 0.0), (10.0, utilization, wait), (1.0, BUSY, 0.0), interval_s=60.0)

    assert judge(phases).last.plain_details["bottlenecked"] == hits


@pytest.mark.parametrize(("hits", "status"), [(500, Status.OK), (501, Status.FIRED)])
def test_share_fires_above_the_threshold_only(hits: int, status: Status) -> None:
    waits = np.zeros(1_000, dtype=np.bool_)
    waits[480:960] = True
    waits[20 : 20 + hits - 480] = True
    reading = series(np.where(waits, 69.0, BUSY), io_wait=np.where(waits, READING, 0.0), interval_s=1.0)

    result = judge(reading, IOBottleneckParameters(patience=999))

    assert (result.last.status, result.last.measured) == (status, hits / 10.0)


def test_verdict_needs_more_points_than_patience() -> None:
    parameters = IOBottleneckParameters(patience=200)
    result = judge(node((202.0, BUSY, 0.0), interval_s=60.0), parameters, closed=False)

    assert result.statuses[198:201] == (Status.WARMING_UP, Status.WARMING_UP, Status.OK)
    assert result.results[199].patience == "200/200"


@pytest.mark.parametrize("interval_s", [0.5, 5.0, 60.0])
def test_slow_first_pass_of_a_running_job_fires_after_15_minutes(interval_s: float) -> None:
    first_pass = [(0.55, WAITING, READING), (0.45, BUSY, 1.0)]
    if interval_s == 60.0:
        first_pass = [(1.0, WAITING, READING)]
    soon_over = node(*first_pass * 12, (60.0, BUSY, 1.0), interval_s=interval_s)
    goes_on = node(*first_pass * 40, interval_s=interval_s)

    assert judge(soon_over, closed=False).first_fire is None
    fired_at = judge(goes_on, closed=False).first_fire
    assert fired_at is not None
    assert fired_at == pytest.approx(15.0, abs=2.0 if interval_s < 60.0 else 6.0)
    assert judge(node(*first_pass * 25, interval_s=interval_s)).last.status is Status.FIRED


def test_download_before_and_upload_after_training_are_left_out() -> None:
    result = judge(node((15.5, 0.0, READING), (10.0, BUSY, 1.0), (15.0, 0.0, READING)))

    assert result.first_fire is None
    assert (result.last.plain_details["judged"], result.last.plain_details["bottlenecked"]) == (1_200, 0)


def test_minutes_without_io_wait_samples_are_not_judged() -> None:
    assert judge(node((2.0, 20.0, 1.0), (20.0, 20.0, np.nan))).last.plain_details["judged"] == 240


def test_sentences_of_a_fire_have_the_numbers_of_the_job() -> None:
    result = judge(node(*[(0.6, WAITING, READING), (0.4, BUSY, 1.0)] * 25), closed=False)

    assert result.last.reason == (
        "in 1,800 of 3,000 points on algo-1 (60 %, threshold 50 %) at least 50 % of the GPUs were below 70 % while a "
        "core waited for I/O more than 50 % of its time."
    )
    assert result.last.advice == (
        "Prefetch, pack the data set into fewer and larger files of a binary format, or keep it on a faster volume or "
        "file system (algo-1)."
    )
    assert result.last.affected_share == pytest.approx(0.6)
    assert result.last.pooled == (1_800, 3_000)
    assert result.last.wasted_share == pytest.approx(0.6 * (1.0 - WAITING / 100.0))
    listed = result.last.plain_details["bottlenecks"]
    assert (len(listed), listed[-1]["io_wait_max"], listed[-1]["gpus_low"]) == (32, READING, 1)


def test_loss_of_an_ended_job_with_one_judged_point_counts() -> None:
    parameters = IOBottleneckParameters(gpu_threshold=85.0, patience=0)
    short = series([80.0] * 3, io_wait=[np.nan, np.nan, READING], interval_s=60.0)
    assert judge(short, parameters).last.pooled == (1, 1)
    assert judge(short, parameters).last.status is Status.FIRED
