"""Numbers on the page about costs: each is the model's, and the model's fixed parts are the template's."""

import json
import re
from pathlib import Path

import pytest

from trainguard.aws.endpoints import INTERFACE_SERVICES
from trainguard.cli.commands.cost.estimates import money
from trainguard.pricing.table import packaged_prices
from trainguard.running_costs.operating import ALARM_METRICS, estimate
from trainguard.running_costs.unit_prices import packaged_unit_prices, total
from trainguard.running_costs.workload import Workload

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "costs.md").read_text("utf-8")
WORDS = " ".join(PAGE.split())
README = (ROOT / "README.md").read_text("utf-8")
PRICES = packaged_unit_prices().prices
NODES = (1, 8, 128, 1_000)


def of(nodes: int, hours: float = 24.0) -> Workload:
    return Workload(nodes=nodes, hours=hours)


def sizes_table() -> str:
    rows = []
    for nodes in NODES:
        found = estimate(of(nodes), PRICES)
        own = (found.an_hour, found.the_job, found.a_month)
        spans = [
            f"{money(whole)} ({money(less)})" for whole, less in zip(found.with_profile.values(), own, strict=True)
        ]
        rows.append(f"| {nodes:,} | {' | '.join(spans)} |")
    return "\n".join(["| nodes | an hour | a job of 24 h, with its report | a month |", "|---|---|---|---|", *rows])


def test_the_table_of_sizes_is_the_models() -> None:
    assert sizes_table() in PAGE


def test_cost_page_sentences_match_the_model() -> None:
    one, many = estimate(of(1), PRICES), estimate(of(128), PRICES)
    plain = estimate(Workload(nodes=1, profiler="sagemaker"), PRICES)
    assert f"costs {money(total(one.profile))} USD an hour of a node" in WORDS
    assert f"costs {money(total(plain.profile))} USD" in WORDS
    many_nodes = [
        total(estimate(Workload(nodes=375, profiler=by), PRICES).profile) for by in ("sagemaker", "collector")
    ]
    assert f"{money(720 * many_nodes[0])} USD a month, the collector's {money(720 * many_nodes[1])}" in WORDS
    network = estimate(Workload(endpoints=2 * len(INTERFACE_SERVICES)), PRICES).an_idle_month - one.an_idle_month
    assert f"two zones: {money(network)} a month" in WORDS
    key = estimate(Workload(customer_key=True), PRICES).an_idle_month - one.an_idle_month
    assert f"{money(key)} a month: S3 has bucket keys" in WORDS
    daily = estimate(Workload(canary_job=True), PRICES).an_idle_month - one.an_idle_month
    assert f"{money(daily)} a month: an ml.m5.large for a quarter of an hour a day" in WORDS
    assert packaged_prices().hourly("ml.m5.large") == PRICES.canary_job_hour
    audited = estimate(Workload(data_events=True), PRICES).an_hour - one.an_hour
    assert f"{money(audited)} an hour of a node" in WORDS
    traced = estimate(Workload(traces_gb=1.0), PRICES)
    a_gb = traced.with_profile["hour"] - one.with_profile["hour"]
    assert f"{money(a_gb)} a GB as gzip, three quarters of it to keep it" in WORDS
    posted = total(estimate(Workload(webhook=True), PRICES).fire) - total(one.fire)
    assert f"{money(posted)} an alert: event, post" in WORDS
    opened = estimate(Workload(ops_items=1.0), PRICES).an_idle_month - one.an_idle_month
    assert f"{money(opened)} each, one a broken GPU" in WORDS
    assert f"An alert costs {money(total(one.fire))} USD with" in WORDS
    assert f"add {money(total(one.busy))} USD a month" in WORDS
    idle = estimate(of(1), PRICES, packaged_unit_prices().free_a_month)
    left, all_of_it = money(idle.an_idle_month_beyond_free), money(idle.an_idle_month)
    assert f"leaves {left} USD of the {all_of_it} where nothing else uses it" in WORDS
    assert f"{round(plain.workload.profile_bytes / 1e6)} MB an hour" in WORDS
    assert f"{one.workload.profile_bytes / 1e6:.0f} MB as gzip" in WORDS
    assert 0.6 < many.an_hour / 128 / one.an_hour < 0.8
    assert 0.45 < total(one.at_end) / (one.the_job - total(one.at_end)) < 0.55
    assert 0.7 < total(many.at_end) / (many.the_job - total(many.at_end)) < 0.8
    for every_s, says in ((60.0, "0.000881"), (300.0, "0.000429")):
        an_hour = estimate(Workload(nodes=1, evaluation_every_s=every_s), PRICES).an_hour
        assert float(says) == pytest.approx(an_hour, rel=0.02)
        assert f"{every_s:.0f}: {says}" in WORDS
    for nodes in (1, 128):
        existing = estimate(Workload(nodes=nodes, existing_bucket=True), PRICES).an_hour / nodes
        notified = Workload(nodes=nodes, existing_bucket=True, profile_notifications="queue")
        an_hour = estimate(notified, PRICES).an_hour / nodes
        assert an_hour <= {1: 0.0005, 128: 0.00035}[nodes] < existing
        if nodes == 1:
            assert f"| {money(existing)}: EventBridge" in WORDS
            assert f"| {money(an_hour)}, as the own bucket" in WORDS
    more = [
        money(estimate(Workload(nodes=nodes, saved_steps=60.0), PRICES).an_hour - estimate(of(nodes), PRICES).an_hour)
        for nodes in (1, 128)
    ]
    assert f"{more[0]} USD an hour more for a job of one node, {more[1]} for one of 128" in WORDS
    framework = [estimate(Workload(nodes=nodes, framework=True), PRICES).an_hour for nodes in (1, 128)]
    assert all(5.0 < larger / plain < 6.0 for larger, plain in zip(framework, (one.an_hour, many.an_hour), strict=True))


def test_readme_costs_match_the_model() -> None:
    told = " ".join(README.split())
    for nodes, says in ((1, "0.0011 USD an hour for a job of one node"), (128, "0.119 USD for 128 nodes")):
        assert says in told
        found = estimate(of(nodes), PRICES)
        assert float(says.split()[0]) == pytest.approx(found.with_profile["hour"], rel=0.01)
        assert f"({money(found.an_hour)} without" in told
    idle = estimate(of(1), PRICES, packaged_unit_prices().free_a_month)
    assert "an idle deployment under 1.50 USD a month" in told
    assert idle.an_idle_month < 1.5
    assert "under 0.15 USD where nothing else uses the account's free tier" in told
    assert idle.an_idle_month_beyond_free < 0.15
    assert PRICES.dashboard_month == 3.0


def test_runbook_states_the_cost_of_traces() -> None:
    told = " ".join((ROOT / "docs" / "operations.md").read_text("utf-8").split())
    assert f"A trace costs {PRICES.trace:.6f} USD: {60 * PRICES.trace:.4f} USD for each hour of a node" in told


def test_cost_model_counts_all_alarms_and_no_dashboard() -> None:
    resources = json.loads((ROOT / "tests" / "infra" / "TrainGuard.snapshot.json").read_text("utf-8"))["Resources"]
    alarms = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"]
    read = sum(max(1, sum("MetricStat" in metric for metric in alarm.get("Metrics", ()))) for alarm in alarms)
    assert read == ALARM_METRICS, f"write ALARM_METRICS = {read} in trainguard/running_costs/operating.py"
    assert "AWS::CloudWatch::Dashboard" not in {each["Type"] for each in resources.values()}


def test_instance_prices_on_the_page_are_the_packaged_ones() -> None:
    for told, instance_type in re.findall(r"([0-9.]+) USD as an (?:on-demand )?`(ml[^`]+)`", PAGE):
        assert float(told) == round(packaged_prices().hourly(instance_type) or 0.0, 2)
