"""`trainguard cost`: an estimate for people and for machines, without any network."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from docs.site.documents import field_names
from trainguard.cli.commands.cost.estimates import money
from trainguard.cli.main import app
from trainguard.running_costs.operating import estimate
from trainguard.running_costs.unit_prices import packaged_unit_prices, total
from trainguard.running_costs.workload import Workload


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["cost", *words])


def document(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_estimate_document_has_model_totals_and_all_lines() -> None:
    words = ["--nodes", "128", "--hours", "24", "--gpus", "4", "--interval-ms", "1000", "--framework"]
    found = document(*words, "--evaluation-every-s", "300", "--existing-bucket", "--saved-steps", "12")
    workload = Workload(
        nodes=128,
        hours=24.0,
        gpus=4,
        interval_ms=1_000,
        framework=True,
        saved_steps=12.0,
        evaluation_every_s=300.0,
        existing_bucket=True,
    )
    expected = estimate(workload, packaged_unit_prices().prices, packaged_unit_prices().free_a_month)
    assert list(found) == field_names("cost", "cost")
    assert found["workload"]["retention_days"] == 30
    whole = expected.with_profile
    assert {span: found[span] for span in whole} == pytest.approx(whole)
    own = found["without_profile"]
    assert list(own.values()) == pytest.approx([expected.an_hour, expected.the_job, expected.a_month])
    assert whole["job"] == pytest.approx(expected.the_job + expected.the_profile)
    assert found["idle_month"] == pytest.approx(total(expected.idle))
    assert found["idle_month_beyond_free"] == pytest.approx(expected.an_idle_month_beyond_free)
    assert found["profile"] == pytest.approx(expected.the_profile)
    sums = {field: sum(line["cost"] for line in found["lines"][field]) for field in ("hourly", "profile")}
    assert sums == pytest.approx({"hourly": own["hour"], "profile": found["hour"] - own["hour"]})
    assert {line["service"] for line in found["lines"]["hourly"]} >= {"DynamoDB", "Lambda", "SQS", "S3", "EventBridge"}


def test_default_estimate_is_one_node_a_day_with_price_source() -> None:
    result = run()
    assert result.exit_code == 0
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert lines[0] == ["an hour of the job", "0.0011, 0.000485 without the profile"]
    assert ["write_unit", "0.000000625", "2025-05-01"] in [line[:3] for line in lines]
    assert lines[1][0] == "the job, 24 h"
    assert lines[-1] == [f"USD. A model: {packaged_unit_prices().origin('us-east-1')}."]


def test_custom_prices_are_used_and_named(tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    prices = dict.fromkeys(packaged_unit_prices().prices.__struct_fields__, 0.0) | {"event": 1.0}
    table = {"source": "ours", "date": "2026-01-01", "currency": "EUR", "regions": ["eu-west-1"], "prices": prices}
    file.write_text(json.dumps(table), "utf-8")
    found = document("--unit-prices", str(file), "--region", "eu-west-1", "--existing-bucket")
    assert (found["hour"], found["currency"], found["origin"]) == (160.0, "EUR", "ours, eu-west-1, 2026-01-01")
    assert found["without_profile"]["hour"] == 120.0
    assert found["unit_prices"]["event"] == {"price": 1.0, "date": "2026-01-01", "source": "ours"}


@pytest.mark.parametrize(
    ("words", "section", "whats"),
    [
        (["--profiler", "sagemaker"], "profile", {"GB-months of profile", "PUT by the training job"}),
        (["--traces-gb", "2"], "profile", {"GB-months of kernel traces"}),
        (["--traces-gb", "2"], "hourly", {"GiB-s for kernel traces"}),
        (["--vpc-zones", "2"], "idle", {"hours of interface endpoints"}),
        (["--customer-key"], "idle", {"key", "requests"}),
        (["--canary-job"], "idle", {"hours of the canary's jobs on ml.m5.large"}),
        (["--data-events"], "hourly", {"data events of bucket, tables and functions"}),
        (["--ops-items", "3"], "idle", {"OpsItems of broken GPUs", "invocations of open_ops_items"}),
    ],
)
def test_each_choice_has_its_lines_and_changes_the_estimate(words: list[str], section: str, whats: set[str]) -> None:
    found, usual = document(*words), document()
    assert found["month"] > usual["month"]
    lines = {line["what"]: line["cost"] for line in found["lines"][section]}
    assert whats <= lines.keys()
    assert all(lines[what] > 0.0 for what in whats)


def test_webhook_makes_alerts_dearer_and_nothing_else() -> None:
    found, usual = document("--webhook"), document()
    assert found["fire"] > usual["fire"]
    assert (found["month"], found["idle_month"]) == (usual["month"], usual["idle_month"])
    assert found["unit_prices"]["webhook_post"]["date"] == "2026-06-13"


def test_report_that_stops_early_costs_what_it_reads() -> None:
    ends = [
        {line["what"].partition(",")[0]: line for line in document("--framework", "--nodes", nodes)["lines"]["at_end"]}
        for nodes in ("3000", "6000")
    ]
    reading = [end["GiB-s of the report's functions"] for end in ends]
    assert [round(each["amount"] / 2.0 / 40 / 3_600, 1) for each in reading] == [18.0, 18.0]
    assert "stop after" in reading[0]["what"]
    assert ends[0]["GET"]["amount"] == pytest.approx(ends[1]["GET"]["amount"], rel=0.02)


@pytest.mark.parametrize("region", ["eu-central-1", "ap-northeast-1"])
def test_other_regions_have_prices_of_this_year(region: str) -> None:
    found, usual = document("--region", region), document()
    assert 0.8 < found["month"] / usual["month"] < 1.3
    assert found["month"] != usual["month"]
    assert found["unit_prices"]["write_unit"]["date"].startswith("2026")
    assert found["origin"].endswith(found["unit_prices"]["write_unit"]["date"])


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--region", "eu-south-7"], "no prices of eu-south-7, only of us-east-1"),
        (["--unit-prices", "no-such-file.json"], "'no-such-file.json' cannot be used: No such file"),
        (["--nodes", "0"], "--nodes"),
        (["--hours", "0"], "--hours"),
        (["--interval-ms", "99"], "--interval-ms"),
        (["--evaluation-every-s", "59"], "--evaluation-every-s"),
    ],
)
def test_impossible_estimate_gives_its_reason_in_one_sentence(words: list[str], fault: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert fault in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("amount", "shown"), [(0.0, "0"), (4e-7, "0.0000004"), (0.07109, "0.0711"), (1.0, "1.00"), (1234.5, "1,234.50")]
)
def test_amount_of_money_has_cents_or_three_digits(amount: float, shown: str) -> None:
    assert money(amount) == shown
