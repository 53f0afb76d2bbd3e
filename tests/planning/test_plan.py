"""A job carried over to other machines: what shrinks, what stays, what is assumed and what is missing."""

import math
from collections.abc import Mapping

import pytest

from trainguard.kernels.entries import CollectiveEntry
from trainguard.ledger.bucket import Bucket
from trainguard.planning.cluster import Cluster, Communication, cluster_of
from trainguard.planning.document import Assumed, Assumption, Lack, Lacking, Range
from trainguard.planning.plan import MEASURED, MeasuredJob, PlanLimits, Planner, wanted
from trainguard.planning.text import assumed, lacking, said_cost, said_row, said_speed
from trainguard.pricing.table import packaged_prices

PRICES = packaged_prices()
P4D = cluster_of("ml.p4d.24xlarge", 1, PRICES)
SECONDS = {
    Bucket.START_UP: 300.0,
    Bucket.COMPUTE: 3_000.0,
    Bucket.HOST: 300.0,
    Bucket.DATA: 200.0,
    Bucket.EVALUATION: 160.0,
    Bucket.CHECKPOINT: 40.0,
    Bucket.HANG: 900.0,
}


def job(seconds: Mapping[Bucket, float] = SECONDS, cluster: Cluster = P4D, **more: object) -> MeasuredJob:
    return MeasuredJob(seconds=seconds, cluster=cluster, **more)  # type: ignore[arg-type]


def nodes(count: int, instance_type: str = "ml.p4d.24xlarge") -> Cluster:
    return cluster_of(instance_type, count, PRICES)


def collective(name: str, total_ms: float, exposed_ms: float, size: int, ranks: int | None) -> CollectiveEntry:
    total, exposed = int(total_ms * 1e6), int(exposed_ms * 1e6)
    return CollectiveEntry(
        name=name,
        group="",
        group_size=ranks,
        dtype="",
        count=10,
        total_ns=total,
        min_ns=0,
        median_ns=0,
        max_ns=0,
        overlap_ns=total - exposed,
        exposed_ns=exposed,
        sized_count=10,
        bytes=size,
        algorithm_gb_per_s=None,
        bus_gb_per_s=None,
    )


def test_twice_the_nodes_halve_steps_and_leave_the_start_up() -> None:
    ran, twice = Planner(job()).rows([wanted(P4D, nodes(2))])
    growth = 2.0**MEASURED.gpus
    assert ran.seconds == Range(4_000.0, 4_000.0, 4_000.0)
    assert twice.parts == pytest.approx(
        {
            "start_up": 300.0,
            "compute": 1_500.0 * growth,
            "host": 150.0 * growth,
            "data": 100.0,
            "evaluation": 80.0,
            "checkpoint": 40.0,
        }
    )
    assert twice.steps_factor == 0.5
    assert twice.seconds.low < twice.seconds.value < twice.seconds.high
    assert twice.dearer is not None
    assert twice.dearer.value == pytest.approx(2.0 * twice.seconds.value / 4_000.0)
    assert said_row(twice) == (
        "2 x ml.p4d.24xlarge: 1.8 x faster (1.6 to 2.0 x), 10 % dearer (2 % cheaper to 24 % dearer)."
    )


def test_the_same_batch_of_all_gpus_makes_small_steps_less_good() -> None:
    _, kept, scaled = Planner(job()).rows([wanted(P4D, nodes(4), keeps_global_batch=True), wanted(P4D, nodes(4))])
    assert kept.steps_factor == 1.0
    assert kept.parts["compute"] == pytest.approx(3_000.0 * 0.25**MEASURED.samples * 4.0**MEASURED.gpus)
    assert kept.seconds.value > scaled.seconds.value


def test_with_a_trace_the_host_launches_as_much_for_each_step() -> None:
    row = Planner(job(traced=True)).rows([wanted(P4D, nodes(2), keeps_global_batch=True)])[1]
    assert row.parts["host"] == SECONDS[Bucket.HOST]
    assert row.parts["data"] == 100.0


def test_a_larger_batch_makes_fewer_and_longer_steps() -> None:
    row = Planner(job(traced=True)).rows([wanted(P4D, P4D, batch=2.0)])[1]
    assert row.steps_factor == 0.5
    assert row.parts["host"] == 150.0
    assert row.parts["compute"] == pytest.approx(3_000.0 * 2.0**MEASURED.samples / 2.0)


def test_collectives_between_nodes_go_at_the_networks_speed() -> None:
    g5 = nodes(1, "ml.g5.48xlarge")
    large = Communication([collective("allreduce", 100.0, 20.0, 10 << 30, 8)], 10, 0.1)
    assert large.exposed_s == pytest.approx(0.002)
    # Links of A100 carry 300 GB/s, the network of p4d 50; an all-reduce of 16 ranks moves 15/14 of one of 8.
    total = 0.010 * 6.0 * (2 * 15 / 16) / (2 * 7 / 8)
    assert large.exposed_on(P4D, nodes(2), 1.0) == pytest.approx(total - 0.008)
    # PCIe boards have no known links: the speed stays, the way round the ring grows.
    assert large.exposed_on(g5, nodes(2, "ml.g5.48xlarge"), 1.0) == pytest.approx(0.010 * 15 / 14 - 0.008)
    small = Communication([collective("allreduce", 100.0, 100.0, 1_000, 8)], 10, 0.1)
    assert small.exposed_on(P4D, nodes(2), 1.0) == pytest.approx(0.010 * math.log2(32) / math.log2(16))
    within = Communication([collective("allreduce", 100.0, 100.0, 10 << 30, 4)], 10, 0.1)
    assert within.exposed_on(P4D, nodes(2), 1.0) == pytest.approx(0.010)
    assert large.exposed_on(P4D, Cluster(1, 1), 1.0) == 0.0


def test_exposed_communication_is_added_for_each_step() -> None:
    found = Communication([collective("allreduce", 100.0, 20.0, 10 << 30, 8)], 10, 0.1)
    seconds = {Bucket.COMPUTE: 980.0, Bucket.COMMUNICATION: 20.0}
    row = Planner(job(seconds, communication=found, traced=True)).rows([wanted(P4D, nodes(2))])[1]
    more = 10_000 * (found.exposed_on(P4D, nodes(2), 1.0) - 0.002)
    assert row.parts["communication"] == pytest.approx((20.0 + more) / 2.0)
    assert row.parts["compute"] == pytest.approx(490.0)
    kinds = [each.kind for each in Planner(job(seconds, communication=found)).assumptions([wanted(P4D, nodes(2))])]
    assert Assumed.COLLECTIVES in kinds
    assert Assumed.NO_TRACE not in kinds


def test_other_gpus_are_faster_by_arithmetic_and_memory() -> None:
    h100 = nodes(1, "ml.p5.48xlarge")
    row = Planner(job({Bucket.COMPUTE: 1_000.0})).rows([wanted(P4D, h100)])[1]
    assert row.seconds.value == pytest.approx(1_000.0 * math.sqrt(312.0 / 989.4 * 1_555 / 3_350))
    assert row.seconds.high / row.seconds.value > 1.2
    assert row.cost is not None
    assert row.cost.value == pytest.approx(63.296 * row.seconds.value / 3_600.0)


@pytest.mark.parametrize(
    ("instance_type", "lack"),
    [
        ("ml.new.48xlarge", Lacking.GPUS_OF_TYPE),
        ("ml.m5.large", Lacking.GPUS_OF_TYPE),
        ("ml.p2.16xlarge", Lacking.PEAKS),
    ],
)
def test_machines_of_which_too_little_is_known_have_no_row(instance_type: str, lack: Lacking) -> None:
    asked, planner = wanted(P4D, nodes(1, instance_type)), Planner(job())
    assert planner.lacks(asked) == [Lack(kind=lack, name=instance_type)]
    assert len(planner.rows([asked])) == 1


def test_without_a_price_there_is_no_cost_and_a_time() -> None:
    row = Planner(job()).rows([wanted(P4D, nodes(2, "ml.p5en.48xlarge"))])[1]
    assert row.cost is None
    assert row.dearer is None
    assert row.seconds.value > 0.0


def test_steps_that_are_left_count_and_the_start_up_once() -> None:
    ran = Planner(job({Bucket.START_UP: 100.0, Bucket.COMPUTE: 1_000.0}, left=3.0)).rows([])[0]
    assert ran.seconds.value == 3_100.0
    assert not ran.measured


def test_intervals_grow_with_the_distance_from_nothing() -> None:
    planner = Planner(job({Bucket.COMPUTE: 1_000.0}))
    rows = planner.rows([PlanLimits(P4D), *(wanted(P4D, nodes(count)) for count in (2, 8, 64))])
    widths = [row.seconds.high / row.seconds.value for row in rows[1:]]
    assert widths[0] == 1.0
    assert widths == sorted(widths)


def test_every_kind_has_words() -> None:
    for kind in Assumed:
        assert assumed(Assumption(kind=kind, value=90.0, name="x"))
    for lack in Lacking:
        assert lacking(Lack(kind=lack, name="ml.x"))


def test_factors_read_as_people_say_them() -> None:
    said = [(0.5, "2.0 x slower"), (1.9, "1.9 x faster"), (1.01, "as fast")]
    assert [said_speed(Range(value, value, value)) for value, _ in said] == [words for _, words in said]
    said = [(1.05, "5 % dearer"), (0.8, "20 % cheaper"), (1.001, "as dear")]
    assert [said_cost(Range(value, value, value)) for value, _ in said] == [words for _, words in said]
