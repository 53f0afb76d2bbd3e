"""Prices come from a data file that another can replace; what a bill says is what the nodes have cost."""

import datetime
import json
from typing import Any

import pytest

from trainguard.core.errors import PriceTableError
from trainguard.pricing.cost import CostEstimate, PaidTime, Unpriced
from trainguard.pricing.table import Accelerators, PriceTable, packaged_prices, read_prices, write_prices

ROW = {
    "per_hour": 60,
    "source": "our contract",
    "date": "2026-01-01",
    "accelerators": {"count": 8, "kind": "gpu", "model": "NVIDIA H100"},
}
TABLE = {"schema_version": 2, "region": "eu-west-1", "currency": "EUR", "instances": {"ml.p5.48xlarge": ROW}}
OF_2026 = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC).timestamp()
A_YEAR_ON = datetime.datetime(2027, 1, 2, tzinfo=datetime.UTC).timestamp()


def table(**changes: Any) -> bytes:
    return json.dumps(TABLE | changes).encode()


def row(**changes: Any) -> bytes:
    return table(instances={"ml.p5.48xlarge": ROW | changes})


def test_each_packaged_price_has_a_source_and_a_date() -> None:
    prices = packaged_prices()
    assert (prices.region, prices.currency) == ("us-east-1", "USD")
    for name, row in prices.instances.items():
        assert (row.source is None) == (row.date is None) == (row.per_hour is None), name
        assert row.accelerators is not None, name
    for family in ("p3", "p4d", "p4de", "p5", "g4dn", "g5", "g6", "g6e", "c5", "m5", "m7i", "trn1"):
        assert any(name.startswith(f"ml.{family}.") and row.per_hour for name, row in prices.instances.items()), family
    assert prices.hourly("ml.p3.8xlarge") == 14.688
    assert prices.hourly("ml.unheard-of.large") is None


@pytest.mark.parametrize("name", ["ml.p5e.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.trn2.48xlarge"])
def test_unpriced_type_is_billed_in_instance_hours_without_money(name: str) -> None:
    estimate = PaidTime(name, 0.0, 7_200.0, 3, unpaid_s=3_600.0).estimate()
    assert isinstance(estimate, Unpriced)
    assert f"no price of {name} is known" in estimate.why
    assert estimate.instance_hours == 3.0
    row = packaged_prices().row(name)
    assert row is not None
    assert row.accelerators is not None
    assert row.accelerators.count > 1


def test_ec2_and_sagemaker_type_have_own_prices_and_equal_gpus() -> None:
    prices = packaged_prices()
    ec2, sagemaker = prices.row("p5.48xlarge"), prices.row("ml.p5.48xlarge")
    assert ec2 is not None
    assert sagemaker is not None
    assert (ec2.per_hour, sagemaker.per_hour) == (55.04, 63.296)
    assert ec2.accelerators == sagemaker.accelerators == Accelerators(8, "gpu", "NVIDIA H100")
    for name, row in prices.instances.items():
        twin = prices.row(name.removeprefix("ml."))
        if name.startswith("ml.") and twin is not None:
            assert row.accelerators == twin.accelerators, name
            assert row.per_hour is None or twin.per_hour is None or row.per_hour > twin.per_hour, name


def test_trainium_type_has_chips_and_cores_and_no_gpu() -> None:
    row = packaged_prices().row("ml.trn1.32xlarge")
    assert row is not None
    assert row.accelerators == Accelerators(16, "trainium", "AWS Trainium", 32)
    assert row.accelerators.gpus == 0


def test_more_gpus_of_a_family_never_cost_less() -> None:
    prices = packaged_prices()
    for smaller, larger in [
        ("ml.p3.2xlarge", "ml.p3.8xlarge"),
        ("ml.p3.8xlarge", "ml.p3.16xlarge"),
        ("ml.g5.xlarge", "ml.g5.12xlarge"),
        ("ml.g5.24xlarge", "ml.g5.48xlarge"),
        ("ml.p4d.24xlarge", "ml.p4de.24xlarge"),
        ("ml.g6e.12xlarge", "ml.g6e.48xlarge"),
        ("p5.4xlarge", "p5.48xlarge"),
    ]:
        assert (prices.hourly(smaller) or 0.0) < (prices.hourly(larger) or 0.0)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "truncated"),
        (b"\xff", "prices.json"),
        (b"[]", "Expected `object`"),
        (b"[" * 100_000, "prices.json"),
        (table(currency=3), r"\$\.currency"),
        (table(schema_version=3), r"\$\.schema_version"),
        (table(unknown=1), "unknown"),
        (row(per_hour="dear"), r"\$\.instances"),
        (row(per_hour=-1.5), "instances.ml.p5.48xlarge.per_hour is -1.5"),
        (row(per_hour=0), "instances.ml.p5.48xlarge.per_hour is 0.0, expected a number above 0"),
        (row(date="yesterday"), r"\$\.instances\[...\]\.date"),
        (row(source=None), "instances.ml.p5.48xlarge.source is missing"),
        (row(accelerators={"count": 8}), "instances.ml.p5.48xlarge.accelerators is 8 of kind None"),
        (row(accelerators={"count": -1, "kind": "gpu"}), "accelerators is -1 of kind 'gpu'"),
        (row(accelerators={"count": 8, "kind": "tpu"}), r"\.accelerators\.kind"),
    ],
)
def test_unusable_price_table_error_names_file_and_field(body: bytes, fault: str) -> None:
    with pytest.raises(PriceTableError, match=fault):
        read_prices("prices.json", body)


def test_custom_table_sets_prices_and_currency() -> None:
    prices = read_prices("prices.json", table())
    estimate = PaidTime("ml.p5.48xlarge", OF_2026 - 1_800.0, OF_2026, 2, prices).estimate()
    assert estimate == CostEstimate(60.0, 0.5, 2, "EUR", "our contract, eu-west-1, 2026-01-01")


def test_price_over_a_year_older_than_the_job_shows_its_date() -> None:
    prices = read_prices("prices.json", table())
    recent = PaidTime("ml.p5.48xlarge", A_YEAR_ON - 1.0, A_YEAR_ON - 86_400.0, 1, prices).estimate()
    old = PaidTime("ml.p5.48xlarge", A_YEAR_ON - 1.0, A_YEAR_ON, 1, prices).estimate()
    assert isinstance(recent, CostEstimate)
    assert isinstance(old, CostEstimate)
    assert recent.origin == "our contract, eu-west-1, 2026-01-01"
    assert old.origin == "our contract, eu-west-1, price of 2026-01-01"


def test_mixed_table_counts_its_sources_and_spans_their_dates() -> None:
    rows = {"a": ROW, "b": ROW | {"source": "a list", "date": "2025-07-01"}, "c": {"accelerators": {"count": 0}}}
    assert read_prices("", table(instances=rows)).origin == "2 sources, eu-west-1, 2025-07-01 to 2026-01-01"
    assert read_prices("", table(instances={"a": ROW})).origin == "our contract, eu-west-1, 2026-01-01"
    assert read_prices("", table(instances={})).origin == "no source, eu-west-1"


@pytest.mark.parametrize("prices", [packaged_prices(), PriceTable("here", "EUR", {})], ids=["packaged", "empty"])
def test_given_a_table_when_written_then_it_reads_back_the_same(prices: PriceTable) -> None:
    assert read_prices("prices.json", write_prices(prices)) == prices


@pytest.mark.parametrize(
    ("paid_time", "why"),
    [
        (PaidTime(None, 0.0, 60.0, 1), "instance type is not known"),
        (PaidTime("ml.p3.2xlarge", None, 60.0, 1), "since when"),
        (PaidTime("ml.p3.2xlarge", 0.0, None, 1), "since when"),
        (PaidTime("ml.unheard-of.large", 0.0, 60.0, 1), "no price of ml.unheard-of.large is known"),
    ],
)
def test_bill_without_money_says_what_is_unknown(paid_time: PaidTime, why: str) -> None:
    estimate = paid_time.estimate()
    assert isinstance(estimate, Unpriced)
    assert why in estimate.why


def test_watermark_before_the_start_spends_nothing() -> None:
    estimate = PaidTime("ml.p3.2xlarge", 100.0, 60.0, 1).estimate()
    assert isinstance(estimate, CostEstimate)
    assert estimate.spent == 0.0
