"""Jobs of known truth through the whole engine: each bucket of the ledger is within one percentage point.

Beyond that point it may be wrong by no more than the job's samples are themselves.
"""

import numpy as np
import pytest

from tests.ledger.truth import (
    KnownJob,
    Phase,
    evaluate,
    ledger,
    pause,
    sampling_error,
    save,
    shares_of,
    start_up,
    train,
    truth,
)
from tests.support.profile_folder import START
from trainguard.ledger.bucket import Bucket, StepShares

POINT = 0.01


def assert_true(job: KnownJob) -> None:
    """Compare a job's ledger with its truth, and its sum with the paid time."""
    found, margin = ledger(job), POINT + sampling_error(job)
    shares, known = shares_of(found), truth(job)
    wrong = {
        bucket: (shares.get(bucket, 0.0), known.get(bucket, 0.0))
        for bucket in Bucket
        if abs(shares.get(bucket, 0.0) - known.get(bucket, 0.0)) > margin
    }
    assert not wrong
    gpus = (job.nodes + job.silent_nodes) * (job.gpus + job.unused)
    assert found.paid_gpu_seconds == pytest.approx(gpus * job.seconds, rel=0.03)
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)
    assert all(entry.gpu_seconds >= 0.0 for entry in found.entries())


def ordinary(scale: float = 1.0) -> list[Phase]:
    """Return the phases of an ordinary job of some 70 minutes, times ``scale``."""
    return [
        start_up(300.0 * scale),
        train(900.0 * scale, wait_s=0.5),
        save(180.0 * scale),
        train(900.0 * scale, busy=0.8),
        evaluate(240.0 * scale),
        train(600.0 * scale),
        pause(300.0 * scale),
        train(600.0 * scale, wait_s=1.0),
        Phase(Bucket.TAIL, 180.0 * scale),
    ]


@pytest.mark.parametrize(
    "every_s", [0.5, 15.0, *(pytest.param(each, marks=pytest.mark.thorough) for each in (1.0, 10.0, 30.0, 60.0))]
)
def test_buckets_of_an_ordinary_job_are_true_at_any_interval(every_s: float) -> None:
    scale = {0.5: 0.25, 30.0: 2.0, 60.0: 3.0}.get(every_s, 1.0)
    assert_true(KnownJob(ordinary(scale), every_s=every_s))


def test_given_nodes_and_an_unused_gpu_then_it_is_idle() -> None:
    assert_true(KnownJob(ordinary(), every_s=5.0, nodes=2, gpus=2, unused=1))


@pytest.mark.thorough
def test_given_a_day_at_60_seconds_then_buckets_are_true() -> None:
    day = [start_up(900.0)]
    for _ in range(11):
        day += [train(4_500.0, wait_s=3.0, step_s=31.7), save(600.0), train(1_200.0, step_s=31.7), pause(300.0)]
        day += [evaluate(900.0)]
    assert_true(KnownJob(day, every_s=60.0))


def test_utilization_alone_gives_compute_idle_and_open() -> None:
    job = KnownJob([start_up(120.0), train(1_200.0, busy=0.4), pause(600.0), train(300.0)], framework=False)

    assert_true(job)
    assert {bucket for bucket, share in shares_of(ledger(job)).items() if share > 1e-4} == {
        Bucket.START_UP,
        Bucket.COMPUTE,
        Bucket.IDLE,
        Bucket.UNEXPLAINED,
    }


def test_given_a_job_at_4_percent_then_96_percent_are_lost() -> None:
    shares = shares_of(ledger(KnownJob([train(3_600.0, busy=0.04)], framework=False)))

    assert shares[Bucket.COMPUTE] == pytest.approx(0.04, abs=0.002)
    assert shares[Bucket.UNEXPLAINED] == pytest.approx(0.96, abs=0.002)


def test_restart_includes_repeated_work() -> None:
    phases = [
        start_up(100.0),
        train(1_200.0, first_step=0),
        Phase(Bucket.RESTART, 240.0, attempt=1),
        train(200.0, attempt=1, first_step=588, whole=Bucket.RESTART),
        train(1_000.0, attempt=1),
    ]

    assert_true(KnownJob(phases, every_s=5.0))


def test_given_gaps_and_a_silent_node_then_nobody_knows() -> None:
    gap = train(90.0, sampled=False)
    assert_true(KnownJob([start_up(60.0), train(600.0), gap, train(600.0), gap, train(600.0)], every_s=1.0))
    assert_true(KnownJob([start_up(60.0), train(600.0)], every_s=5.0, silent_nodes=1))


@pytest.mark.parametrize(("end", "bucket"), [([], Bucket.NO_SAMPLES), ([Phase(Bucket.TAIL, 120.0)], Bucket.TAIL)])
def test_given_an_end_after_the_last_sample_then_it_is_paid(end: list[Phase], bucket: Bucket) -> None:
    job = KnownJob([start_up(60.0), train(1_200.0), *end], every_s=5.0, framework=False)
    found = ledger(job, ended_at=START + job.seconds + 600.0)

    assert found.paid_gpu_seconds == pytest.approx(job.seconds + 600.0, abs=0.01)
    assert found.gpu_seconds(bucket) == pytest.approx(600.0 + sum(phase.seconds for phase in end), abs=15.0)
    assert found.gpu_seconds(Bucket.COMPUTE) == pytest.approx(1_200.0, abs=15.0)


def test_hang_and_broken_training_own_all_their_time() -> None:
    phases = [start_up(120.0), train(900.0), train(600.0), train(900.0, step_s=0.0)]
    assert_true(KnownJob(phases, every_s=5.0, marks={Bucket.BROKEN: [2], Bucket.HANG: [3]}))


def test_given_irregular_samples_then_buckets_are_true() -> None:
    intervals = np.random.default_rng(3).uniform(0.1, 30.0, 2_000)

    assert_true(KnownJob(ordinary(2.0), every_s=10.0, intervals=intervals.tolist()))


def test_given_an_interval_that_changes_then_buckets_are_true() -> None:
    intervals = [*[1.0] * 1_200, *[15.0] * 80, *[2.0] * 2_000]

    assert_true(KnownJob(ordinary(), every_s=1.0, intervals=intervals))


@pytest.mark.parametrize("every_s", [pytest.param(1.0, marks=pytest.mark.thorough), 60.0])
def test_waits_for_a_slow_rank_are_peers_and_communication(every_s: float) -> None:
    phases = [start_up(300.0), train(900.0, communication_s=0.2), train(1_800.0, communication_s=0.2, peers_s=0.6)]
    assert_true(KnownJob([*phases, save(180.0), train(300.0)], every_s=every_s, nodes=2, gpus=2))


def test_given_a_kernel_trace_then_it_divides_what_is_open() -> None:
    shares = StepShares(compute=0.6, communication=0.1, peers=0.1, data=0.05, host=0.1, other=0.05, steps=12)
    job = KnownJob([train(1_800.0, busy=0.8)], every_s=5.0)
    found = ledger(job, shares)
    got = shares_of(found)

    for bucket, share in {
        Bucket.COMPUTE: 0.6,
        Bucket.COMMUNICATION: 0.1,
        Bucket.PEERS: 0.1,
        Bucket.DATA: 0.05,
        Bucket.HOST: 0.1,
        Bucket.UNEXPLAINED: 0.05,
    }.items():
        assert got[bucket] == pytest.approx(share, abs=POINT)
    host = next(entry for entry in found.entries() if entry.bucket is Bucket.HOST)
    assert (host.estimated, host.steps) == (True, 12)
