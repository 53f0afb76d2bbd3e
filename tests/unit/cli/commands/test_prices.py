"""`trainguard prices`: a table shown, and one rebuilt from the price list."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from docs.site.documents import field_names
from tests.support.price_list import EC2_FILTERS, SAGEMAKER_FILTERS, answer, on_ec2, price_list, training
from trainguard.aws import price_list as adapter
from trainguard.cli.main import app
from trainguard.cli.services.names import unpriced
from trainguard.pricing.table import read_prices

DENIED = "User: arn:aws:iam::123456789012:user/ann is not authorized to perform: pricing:GetProducts"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["prices", *map(str, words)])


def update(monkeypatch: pytest.MonkeyPatch, file: Path, *words: str, region: str = "us-east-1") -> Result:
    with price_list(monkeypatch) as stub:
        pages = [[training("ml.p5.48xlarge", "60.0"), "{"], [training("ml.p5en.48xlarge", "72.79")]]
        answer(stub, "AmazonSageMaker", region, SAGEMAKER_FILTERS, pages)
        answer(stub, "AmazonEC2", region, EC2_FILTERS, [[on_ec2("p5.48xlarge", "55.04", gpu="8")]])
        result = run("update", "--region", region, "--out", file, *words)
        stub.assert_no_pending_responses()
    return result


def test_instance_type_shows_price_source_date_and_gpus() -> None:
    result = run("show", "ml.p5.48xlarge", "--json")
    document = json.loads(result.stdout)
    assert list(document) == field_names("prices show", "prices")
    (row,) = document["instances"]
    assert (row["per_hour"], row["date"]) == (63.296, "2026-09-27")
    assert row["accelerators"] == {"count": 8, "kind": "gpu", "model": "NVIDIA H100"}
    assert "SageMaker" in row["source"]


def test_type_prefix_shows_its_sizes_and_those_without_a_price() -> None:
    lines = run("show", "ML.P5").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines[:4]] == [
        "ml.p5.4xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge",
    ]  # fmt: skip
    assert lines[3].split("\t")[1:3] == ["no price known", "8 x NVIDIA H200"]
    assert "2 not known" in lines[-1]


def test_unknown_instance_type_is_an_error_that_names_it() -> None:
    result = run("show", "ml.p55")
    assert result.exit_code == 2
    assert "no instance type 'ml.p55' in the price table of us-east-1" in result.stderr


def test_mistyped_instance_type_names_the_nearest_with_a_price() -> None:
    assert unpriced("ml.p3.8xlargee", None) == [
        "No price of ml.p3.8xlargee is known, so findings have no cost. Perhaps you mean ml.p3.8xlarge."
    ]
    assert unpriced("ml.p3.8xlarge", None) == unpriced(None, None) == []


def test_update_writes_a_regional_table_and_reports_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tables" / "prices.json"
    result = update(monkeypatch, file, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert list(document) == field_names("prices update", "prices update")
    table = read_prices("", file.read_bytes())
    assert (table.region, table.hourly("ml.p5.48xlarge"), table.hourly("ml.p5en.48xlarge")) == (
        "us-east-1",
        60.0,
        72.79,
    )
    row = table.row("ml.p5en.48xlarge")
    assert row is not None
    assert str(row.date) == document["date"]
    assert document["changed"] == [{"instance_type": "ml.p5.48xlarge", "before": 63.296, "after": 60.0}]
    assert document["new"] == ["ml.p5en.48xlarge"]
    assert "ml.p3.2xlarge" in document["kept"]
    assert document["unused"] == {"products that cannot be read": 1}
    assert list(file.parent.iterdir()) == [file]


def test_written_table_is_used_by_later_updates_and_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.json"
    update(monkeypatch, file)
    again = update(monkeypatch, file)
    assert f"Against the {file} that was there: 0 other prices, 0 new, 3 as before" in again.stdout
    assert "ml.p5en.48xlarge\t72.79" in run("show", "ml.p5en", "--prices", file).stdout


def test_update_for_another_region_has_no_packaged_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.json"
    result = update(monkeypatch, file, region="eu-west-1")
    assert "3 new" in result.stdout
    table = read_prices("", file.read_bytes())
    assert [name for name, row in table.instances.items() if row.per_hour] == [
        "ml.p5.48xlarge", "ml.p5en.48xlarge", "p5.48xlarge",
    ]  # fmt: skip


def test_missing_permission_names_the_action_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices.json"
    with price_list(monkeypatch) as stub:
        stub.add_client_error("get_products", "AccessDeniedException", DENIED, 400)
        result = run("update", "--region", "us-east-1", "--out", file)
    assert result.exit_code == 2
    assert "access denied to pricing:GetProducts" in result.stderr
    assert "Ask for a policy that allows pricing:GetProducts" in result.stderr
    assert not file.exists()


def test_region_without_prices_is_an_error_and_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.json"
    update(monkeypatch, file)
    there = file.read_bytes()
    with price_list(monkeypatch) as stub:
        answer(stub, "AmazonSageMaker", "eu-nowhere-1", SAGEMAKER_FILTERS, [[]])
        answer(stub, "AmazonEC2", "eu-nowhere-1", EC2_FILTERS, [[]])
        result = run("update", "--region", "eu-nowhere-1", "--out", file)
    assert result.exit_code == 2
    assert "no price of AmazonSageMaker and AmazonEC2 in Region eu-nowhere-1" in result.stderr
    assert file.read_bytes() == there


def test_endless_price_list_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "MAX_PAGES", 2)
    with price_list(monkeypatch) as stub:
        pages = [[training("ml.p5.48xlarge", "60.0")], [], []]
        answer(stub, "AmazonSageMaker", "us-east-1", SAGEMAKER_FILTERS, pages)
        result = run("update", "--region", "us-east-1", "--out", tmp_path / "prices.json")
    assert result.exit_code == 2
    assert "AmazonSageMaker in us-east-1 goes on after 2 pages" in result.stderr


def test_file_that_is_no_price_table_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text("mine", encoding="utf-8")
    result = run("update", "--region", "us-east-1", "--out", file)
    assert result.exit_code == 2
    assert "notes.json" in result.stderr
    assert file.read_text(encoding="utf-8") == "mine"


def test_uncreatable_folder_is_an_error_before_any_request(
    tmp_path: Path,
) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    result = run("update", "--region", "us-east-1", "--out", tmp_path / "taken" / "prices.json")
    assert result.exit_code == 2
    assert str(tmp_path / "taken") in result.stderr


@pytest.mark.parametrize(
    ("region", "asked", "currency"),
    [
        ("us-east-1", "us-east-1", "USD"),
        ("sa-east-1", "us-east-1", "USD"),
        ("eu-north-1", "eu-central-1", "USD"),
        ("ap-southeast-2", "ap-south-1", "USD"),
        ("cn-north-1", "cn-northwest-1", "CNY"),
    ],
)
def test_prices_are_requested_in_a_region_that_has_the_api(region: str, asked: str, currency: str) -> None:
    assert (adapter.endpoint_region(region), adapter.currency_of(region)) == (asked, currency)
