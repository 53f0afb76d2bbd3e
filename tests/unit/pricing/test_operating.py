"""What operating TrainGuard costs: a model that adds up, and moves as the stack's work does."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config import DeploymentConfig
from trainguard.core.errors import PriceTableError
from trainguard.running_costs.operating import ALARM_METRICS, Estimate, estimate
from trainguard.running_costs.unit_prices import (
    PACKAGED_NAME,
    CostLine,
    FreeTier,
    packaged_unit_prices,
    read_unit_prices,
    total,
)
from trainguard.running_costs.workload import HOURS_A_MONTH, FunctionMemory, Workload

PRICES = packaged_unit_prices().prices
OBSERVING = {"CloudWatch"}
WORKLOADS = st.builds(
    Workload,
    nodes=st.integers(1, 2_000),
    hours=st.floats(0.5, 500.0),
    gpus=st.integers(0, 16),
    interval_ms=st.sampled_from([100, 200, 500, 1_000, 5_000, 60_000]),
    framework=st.booleans(),
)


def of(**changes: Any) -> Estimate:
    return estimate(Workload(**changes), PRICES)


@pytest.mark.parametrize(("nodes", "expected"), [(1, 0.0004), (128, 0.034), (10_000, 2.7)])
def test_work_cost_of_three_job_sizes_stays_near_the_design(nodes: int, expected: float) -> None:
    lines = [line for line in of(nodes=nodes).hourly if line.service not in OBSERVING]
    assert expected <= total(lines) <= 1.3 * expected


def test_table_writes_are_nearly_half_of_a_job_of_many_nodes() -> None:
    found = of(nodes=128)
    writes = [line for line in found.hourly if "write units" in line.what]
    assert 0.35 < total(writes) / found.an_hour < 0.5


def test_each_line_for_one_node_matches_a_manual_calculation() -> None:
    lines = {(line.service, line.what): line for line in of(nodes=1).hourly}
    assert not any(service == "EventBridge" for service, _ in lines)
    assert sum(line.cost for line in of(nodes=1, existing_bucket=True).hourly if line.service == "EventBridge") == (
        pytest.approx(120e-6)
    )
    assert lines["SQS", "requests: send, receive, delete"].amount == 180
    assert lines["Lambda", "GiB-s of evaluate_objects"].amount == pytest.approx(
        60 * (0.035 + 25_320 * 2e-6) + 20 * 0.015, rel=0.01
    )
    assert lines["DynamoDB", "write units of NodeState"].amount == 20 * (10 + 1)
    assert lines["DynamoDB", "write units of RuleState"].amount == 2 * 3 * (7 + 7) + 3 + 2 + 4 + 12


def test_every_early_minute_is_evaluated_at_any_interval() -> None:
    started = {(line.service, line.what): line.amount for line in of(nodes=1, hours=24).at_start}
    assert started["DynamoDB", "write units of NodeState"] == pytest.approx(17 / 60 * 40 * (10 + 1))
    assert started["DynamoDB", "write units of Jobs, with its index"] == pytest.approx(17 / 60 * 40 + 5)
    each = {line.what: line.amount for line in of(nodes=1, hours=24, evaluation_every_s=60.0).at_start}
    assert each["write units of NodeState"] == 0.0


def test_longer_evaluation_interval_is_cheaper_with_all_reads() -> None:
    hours = [of(nodes=8, evaluation_every_s=every_s) for every_s in (60.0, 180.0, 300.0)]
    assert hours[0].an_hour > hours[1].an_hour > hours[2].an_hour
    assert len({line.amount for found in hours for line in found.hourly if line.what == "GET"}) == 1


def test_report_of_a_128_node_day_costs_what_the_decision_says() -> None:
    assert total(of(nodes=128, hours=24).at_end) == pytest.approx(0.7, rel=0.05)
    assert total(of(nodes=128, hours=24, framework=True).at_end) == pytest.approx(5.0, rel=0.15)


def test_compressed_profile_costs_less_than_a_quarter() -> None:
    packed, plain = (total(of(nodes=375, profiler=by).profile) for by in ("collector", "sagemaker"))
    assert plain * 720 == pytest.approx(1_206.9, rel=0.01)
    assert packed * 720 < 1_206.9 / 4


def test_report_listings_grow_with_the_objects_without_a_jump() -> None:
    def listed(nodes: int) -> float:
        (line,) = (line for line in of(nodes=nodes, hours=24).at_end if line.what == "LIST and PUT")
        return line.cost

    assert listed(695) / listed(690) < 1.5  # a second list for each node
    assert of(nodes=695, hours=24).the_job / of(nodes=690, hours=24).the_job < 1.01
    assert listed(10_000) / listed(1_000) < 80  # lists of 15 times a million keys, of 10 times the nodes


@given(WORKLOADS)
def test_totals_are_the_sums_of_their_lines(workload: Workload) -> None:
    found = estimate(workload, PRICES)
    assert found.the_job == pytest.approx(total(found.at_start) + found.an_hour * workload.hours + total(found.at_end))
    jobs = HOURS_A_MONTH / workload.hours
    assert found.a_month == pytest.approx(found.the_job * jobs + total(found.idle) + total(found.busy))
    assert all(line.amount >= 0.0 for line in (*found.hourly, *found.at_start, *found.at_end, *found.profile))


@given(WORKLOADS)
def test_additional_node_costs_about_one_job_more_at_most(
    workload: Workload,
) -> None:
    """Little more than a job, where many evaluators list the framework objects of all nodes."""

    def hourly(nodes: int) -> float:
        return of(nodes=nodes, gpus=workload.gpus, framework=workload.framework).an_hour

    more = hourly(workload.nodes + 1) - hourly(workload.nodes)
    assert 0.0 < more <= 1.2 * hourly(1)


@given(WORKLOADS, st.sampled_from(["framework", "gpus", "interval_ms"]))
def test_job_that_writes_more_never_costs_less(workload: Workload, what: str) -> None:
    base: dict[str, Any] = {"nodes": workload.nodes, "gpus": workload.gpus, "interval_ms": 1_000}
    more = {"framework": True, "gpus": workload.gpus + 1, "interval_ms": 100}[what]
    less, larger = of(**base), of(**base | {what: more})
    assert larger.an_hour > less.an_hour
    assert larger.the_profile > less.the_profile


def test_more_memory_raises_only_the_lines_of_its_function() -> None:
    lines = {
        "evaluator_memory_mb": "GiB-s of evaluate_objects",
        "reconcile_memory_mb": "GiB-s of reconcile_job",
        "report_memory_mb": "GiB-s of the report's functions",
        "scheduler_memory_mb": "GiB-s of scheduler",
    }
    default = of()
    for name, what in lines.items():
        larger = estimate(Workload(), PRICES, memory=FunctionMemory(**{name: 4_096}))
        pairs = zip(everything(default), everything(larger), strict=True)
        assert {was.what for was, now in pairs if now.amount > was.amount} == {what}


def everything(found: Estimate) -> list[CostLine]:
    return [*found.hourly, *found.at_end, *found.fire, *found.idle, *found.busy, *found.profile]


def test_memory_of_the_model_is_the_deployment_default() -> None:
    assert all(getattr(DeploymentConfig(), each.name) == each.default for each in fields(FunctionMemory))


def test_run_on_less_than_a_core_costs_the_same_but_is_slower() -> None:
    def looks(memory_mb: int) -> float:
        many, few = (
            estimate(Workload(nodes=nodes), PRICES, memory=FunctionMemory(reconcile_memory_mb=memory_mb)).hourly
            for nodes in (4_001, 1)
        )
        of_many, of_few = (next(each for each in lines if each.what == lookers) for lines in (many, few))
        return of_many.amount - of_few.amount

    lookers = "GiB-s of reconcile_job"
    assert looks(512) == pytest.approx(looks(1_024)) == pytest.approx(looks(1_769))
    assert looks(3_538) == pytest.approx(2 * looks(1_769))


def test_webhook_and_ops_items_cost_an_event_a_post_and_an_item() -> None:
    bare, chosen = of(), of(webhook=True, ops_items=3.0)
    assert {line.what for line in everything(chosen)} - {line.what for line in everything(bare)} == {
        "events for the webhook",
        "posts of the webhook",
        "write units for the webhook",
        "OpsItems of broken GPUs",
        "invocations of open_ops_items",
        "GiB-s of open_ops_items",
    }
    added = PRICES.event + PRICES.webhook_post + 2 * PRICES.write_unit
    assert total(chosen.fire) - total(bare.fire) == pytest.approx(added)
    assert PRICES.ops_item < (chosen.an_idle_month - bare.an_idle_month) / 3 < 1.01 * PRICES.ops_item
    assert chosen.an_hour == bare.an_hour


def test_shorter_retention_only_makes_storage_cheaper() -> None:
    month, week = of(hours=10), of(hours=10, retention_days=7)
    assert week.the_job == month.the_job
    assert week.profile[0].cost == pytest.approx(month.profile[0].cost * 7 / 30)


def test_idle_month_pays_only_beyond_the_free_tier() -> None:
    free = FreeTier(alarm_metrics=ALARM_METRICS - 2, dashboards=50, queue_requests=1e9, traces=1e9, log_gb=1e3)
    idle = estimate(Workload(), PRICES, free)
    paid = {(line.service, line.what): line.cost_beyond_free for line in idle.idle if line.cost_beyond_free}
    assert paid.pop(("CloudWatch", "metrics that alarms read")) == pytest.approx(2 * PRICES.alarm_metric_month)
    assert {service for service, _ in paid} == {"Lambda", "DynamoDB", "several", "CloudWatch"}
    assert idle.an_idle_month == of().an_idle_month
    assert of().an_idle_month_beyond_free == of().an_idle_month


def body(**changes: Any) -> bytes:
    prices = dict.fromkeys(PRICES.__struct_fields__, 0.5)
    table = {"source": "our contract", "date": "2026-01-01", "currency": "EUR", "regions": ["eu-west-1"]}
    return json.dumps(table | {"prices": prices | changes.pop("prices", {})} | changes).encode()


def test_packaged_operating_prices_have_a_date_and_a_region() -> None:
    table = packaged_unit_prices()
    assert table.origin("us-east-1").endswith(f"us-east-1, {table.date}")
    assert table.of_region(PACKAGED_NAME, "us-east-1") is table.prices
    assert table.confirmed.keys() <= set(table.prices.__struct_fields__)
    dates = [each.date for each in table.confirmed.values()] + [each.date for each in table.elsewhere.values()]
    assert all(table.date < date for date in dates)
    assert all(price > 0.0 for price in (getattr(table.prices, name) for name in table.prices.__struct_fields__))


@pytest.mark.parametrize(
    ("given_body", "fault"),
    [
        (b"", "truncated"),
        (b"\xff", "contract.json"),
        (body(unknown=1), "unknown"),
        (body(currency=3), r"\$\.currency"),
        (body(prices={"trace": "dear"}), r"\$\.prices"),
        (body(free_a_month={"traces": -1}), "free_a_month.traces is -1.0, expected a number of 0 or above"),
        (
            body(elsewhere={"eu-west-2": {"date": "2026", "source": "ours", "prices": {"traces": 1}}}),
            "elsewhere.eu-west-2.prices has 'traces', which is no unit",
        ),
        (body(prices={"trace": -1e-6}), "prices.trace is -1e-06, expected a number of 0 or above"),
    ],
)
def test_unusable_operating_table_error_names_file_and_field(given_body: bytes, fault: str) -> None:
    with pytest.raises(PriceTableError, match=fault) as caught:
        read_unit_prices("contract.json", given_body)
    assert "contract.json" in str(caught.value)


def test_region_without_prices_names_the_available_ones() -> None:
    table = read_unit_prices("contract.json", body())
    with pytest.raises(PriceTableError, match=r"no prices of us-east-1, only of eu-west-1") as caught:
        table.of_region("contract.json", "us-east-1")
    assert "contract.json" in str(caught.value)
