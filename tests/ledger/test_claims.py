"""The ledger sums to the paid time whatever the node did, and no second of it is claimed twice."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.ledger.assembly import NodeTime, node_ledger
from trainguard.ledger.bucket import Bucket, StepShares
from trainguard.ledger.job import Claim, Ledger
from trainguard.ledger.node import NodeLedger
from trainguard.state.gpu_time import GpuTime
from trainguard.state.step_time import ProcessTime, StepTime
from trainguard.state.time_grid import TimeGrid

START = 1_700_000_000.0
LENGTH_S = 3_600.0

spans = st.tuples(st.floats(-600.0, 4_000.0), st.floats(0.0, 3_000.0)).map(
    lambda s: (START + s[0], START + s[0] + s[1])
)
LOST = [bucket for bucket in Bucket if bucket is not Bucket.COMPUTE]
claims = st.builds(
    Claim,
    rule=st.just("Rule"),
    buckets=st.lists(st.sampled_from(LOST), min_size=1, max_size=4).map(tuple),
    spans=st.lists(spans, min_size=1, max_size=3).map(tuple),
    nodes=st.sampled_from([(), ("algo-1",), ("algo-2", "algo-1")]),
    gpus=st.sampled_from([(), ("gpu0",), ("algo-2/gpu1", "algo-1/gpu1")]),
)


def steps_of(random: np.random.Generator) -> StepTime:
    """Return random times of two processes, the second after the first."""
    steps = StepTime()
    units = (int(START) // 15) + random.integers(0, 240, 60)
    steps.grid.add(units.astype(np.int64), [random.integers(0, 20_000, 60) for _ in range(4)])
    half = int(START + LENGTH_S / 2) * 1_000
    steps.processes = {
        "algo-1-7": ProcessTime(int(START) * 1_000, half, 100, 0, 99, saves=True),
        "algo-1-8": ProcessTime(half + 60_000, half + 900_000, 100, 50, 149, evaluates=True),
    }
    return steps


def node_of(seed: int, name: str = "algo-1") -> NodeLedger:
    """Return the ledger of a random node: irregular samples, gaps, GPUs that come late, unpaid time, random steps."""
    return node_ledger(_time_of(seed, name), StepShares(0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 9) if seed % 7 > 3 else None)


@cache
def _time_of(seed: int, name: str) -> NodeTime:
    random = np.random.default_rng(seed)
    times = START + random.uniform(0.0, 300.0) + np.cumsum(random.choice([0.1, 1.0, 10.0, 60.0, 400.0], 300))
    times = times[times < START + LENGTH_S]
    percents = random.choice([0.0, 0.5, 5.0, 40.0, 100.0], (times.size, 2))
    percents[: times.size // 3, 1] = np.nan
    use = GpuTime()
    use.add(times, percents, interval_s=10.0, working_since=float(times[times.size // 4]) if seed % 2 else None)
    paid = [(START, START + 1_000.0), (START + 1_500.0, START + LENGTH_S)] if seed % 3 else [(START, START + LENGTH_S)]
    return NodeTime(
        name,
        2 + seed % 2,
        paid,
        gpu_names=("gpu0", "gpu1"),
        use=use.finished(10.0),
        steps=steps_of(random) if seed % 4 else None,
        ended=seed % 5 > 0,
        interval_s=10.0,
    )


def test_buckets_of_any_node_sum_to_the_paid_time() -> None:
    for seed in range(60):
        found = node_of(seed)
        paid_s = LENGTH_S if seed % 3 == 0 else LENGTH_S - 500.0

        assert found.paid_gpu_seconds == pytest.approx(found.gpus * paid_s, rel=1e-3), seed
        assert (found.amounts >= -1e-9).all(), seed


@given(st.integers(0, 60), st.lists(st.tuples(st.sampled_from([Bucket.HANG, Bucket.BROKEN]), spans), max_size=3))
def test_given_marks_then_the_sum_stays(seed: int, marks: list[tuple[Bucket, tuple[float, float]]]) -> None:
    found = Ledger([node_of(seed)])
    before = found.paid_gpu_seconds
    for bucket, span in marks:
        found.mark(bucket, [span])

    assert found.paid_gpu_seconds == pytest.approx(before)
    assert all(entry.gpu_seconds >= -1e-6 for entry in found.entries())


@given(st.integers(0, 60), st.lists(claims, max_size=6))
def test_given_any_claims_then_no_second_is_claimed_twice(seed: int, asked: list[Claim]) -> None:
    found = Ledger([node_of(seed), node_of(seed + 1, "algo-2")], hourly=36.0)
    got = found.claim(asked)

    for bucket in Bucket:
        assert sum(each.gpu_seconds.get(bucket, 0.0) for each in got) <= found.gpu_seconds(bucket) + 1e-6
    assert all(0.0 <= each.share <= 1.0 for each in got)
    assert sum(each.usd or 0.0 for each in got) <= sum(entry.usd or 0.0 for entry in found.entries()) + 1e-6
    assert got[: len(asked) // 2] == found.claim(asked[: len(asked) // 2])


def simple(gpus: int = 2) -> Ledger:
    """Return an hour in which GPU 0 worked and GPU 1 did nothing, of two nodes."""
    times = START + 10.0 * np.arange(360, dtype=np.float64)
    nodes = []
    for name in ("algo-1", "algo-2"):
        use = GpuTime()
        use.add(times, np.tile([90.0, 0.0], (360, 1)), interval_s=10.0, working_since=START)
        names = tuple(f"gpu{gpu}" for gpu in range(gpus))
        paid = [(START, START + LENGTH_S)]
        nodes.append(node_ledger(NodeTime(name, gpus, paid, gpu_names=names, use=use.finished(10.0), ended=True)))
    return Ledger(nodes, hourly=7.2)


def test_claim_for_a_gpu_gets_at_most_its_loss() -> None:
    idle = Claim("A", (Bucket.IDLE, Bucket.UNEXPLAINED), ((START, START + 9_999.0),), ("algo-1",), ("gpu1",))
    rest = Claim("B", (Bucket.UNEXPLAINED, Bucket.IDLE), ((START, START + 1_800.0),))
    first, second = simple().claim([idle, rest])

    assert first.gpu_seconds == pytest.approx({Bucket.IDLE: 3_600.0})
    assert [first.share, first.usd] == pytest.approx([0.25, 3.6])
    assert second.total == pytest.approx(180.0 + 1_980.0)


def test_claim_for_a_busy_gpu_gets_what_was_left() -> None:
    (got,) = simple().claim([Claim("A", (Bucket.IDLE,), ((START, START + 9_999.0),), ("algo-1",), ("gpu0",))])

    assert got.total == pytest.approx(360.0, rel=0.01)


def test_continuing_claim_has_the_rate_of_the_newest_time() -> None:
    found = simple()
    found.mark(Bucket.HANG, [(START + 1_800.0, START + LENGTH_S)])

    claim = Claim("HungJob", (Bucket.HANG,), ((START + 1_800.0, START + LENGTH_S),))
    assert found.rate(claim, START + LENGTH_S - 600.0) == pytest.approx(1.0)
    assert found.rate(claim, START) == pytest.approx(0.5, abs=0.01)
    assert found.rate(Claim("A", (Bucket.IDLE,), claim.spans), START) == pytest.approx(0.0, abs=1e-6)


def test_given_a_job_then_money_and_goodput_come_from_the_ledger() -> None:
    found = simple()
    entries = {entry.bucket: entry for entry in found.entries()}

    assert found.goodput == pytest.approx(0.45)
    assert sum(entry.usd or 0.0 for entry in entries.values()) == pytest.approx(14.4)
    assert entries[Bucket.IDLE].usd == pytest.approx(7.2)
    assert [node.node for node in found.by_node()] == ["algo-1", "algo-2"]
    assert sum(entry.share for entry in found.by_node()[0].ledger) == pytest.approx(1.0)


def test_work_up_to_an_interruption_is_compute() -> None:
    """Paid time begins and ends within steps of the grid; what was sampled in them was paid for."""
    use, worked = GpuTime(), np.concatenate([np.arange(0.0, 1_000.0), np.arange(1_400.0, 2_000.0)])
    use.add(START + worked, np.full((worked.size, 1), 100.0), interval_s=1.0)
    paid = [(START, START + 1_000.0), (START + 1_400.0, START + 2_000.0)]
    node = node_ledger(NodeTime("algo-1", 1, paid, gpu_names=("gpu0",), use=use.finished(1.0), interval_s=1.0))

    assert float(node.of(Bucket.COMPUTE).sum()) == pytest.approx(1_600.0, abs=1.0)
    assert float(node.of(Bucket.NO_SAMPLES).sum()) == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize(("at_most", "got"), [(500.0, 500.0), (1e9, 7_200.0)])
def test_claims_of_a_rule_take_no_more_than_it_measured(at_most: float, got: float) -> None:
    """All of them together, on all nodes; what it leaves is there for others."""
    whole = ((START, START + 2_400.0), (START + 1_200.0, START + LENGTH_S))
    claims = [Claim("A", (Bucket.IDLE,), (span,), at_most=at_most) for span in whole]
    *measured, rest = simple().claim([*claims, Claim("B", (Bucket.IDLE,), ((START, START + LENGTH_S),))])

    assert sum(each.total for each in measured) == pytest.approx(got, rel=0.01)
    assert rest.total == pytest.approx(7_200.0 - got, abs=80.0)


def test_what_goes_on_is_lost_at_the_measured_rate() -> None:
    claim = Claim("A", (Bucket.IDLE,), ((START, START + LENGTH_S),), at_most=720.0)

    assert simple().rate(claim, START + 1_800.0) == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize(("on_gpu", "idle", "compute"), [(False, 1_000.0, 1_800.0), (True, 1_800.0, 1_000.0)])
def test_waits_for_peers_take_compute_where_a_gpu_waits(on_gpu: bool, idle: float, compute: float) -> None:
    first, columns = int(START) // 30, [[0] * 120, [0] * 120, [0] * 120, [30_000] * 120, [0] * 20 + [8_000] * 100]
    process = ProcessTime(1_000 * int(START), 1_000 * int(START) + 3_600_000, 240, 0, 239, waits_on_gpu=on_gpu)
    steps, use = StepTime(TimeGrid(first, 2, columns), {"a": process}), GpuTime()
    use.add(START + np.arange(3_600.0), np.full((3_600, 1), 50.0), interval_s=1.0, working_since=START)
    paid = [(START, START + 3_600.0)]
    time = NodeTime("algo-1", 1, paid, ("gpu0",), use.finished(1.0), steps, interval_s=1.0, peers_share=0.75)
    found = node_ledger(time)
    sums = {bucket: float(found.of(bucket).sum()) for bucket in Bucket}
    assert sums[Bucket.PEERS] == pytest.approx(600.0, abs=5.0)
    assert sums[Bucket.COMMUNICATION] == pytest.approx(200.0, abs=5.0)
    assert sums[Bucket.IDLE] + sums[Bucket.UNEXPLAINED] == pytest.approx(idle, abs=5.0)
    assert sums[Bucket.COMPUTE] == pytest.approx(compute, abs=5.0)
