"""Prices come from a data file that another can replace; what a bill says is what the nodes have cost."""

import json
from typing import Any

import pytest

from trainguard.errors import PriceTableError
from trainguard.pricing.cost import Account, Bill, Cost, Unpriced
from trainguard.pricing.table import packaged_prices, read_prices

TABLE = {
    "source": "our contract",
    "date": "2026-01-01",
    "region": "eu-west-1",
    "currency": "EUR",
    "per_hour": {"ml.p5.48xlarge": 60},
}


def table(**changes: Any) -> bytes:
    return json.dumps(TABLE | changes).encode()


def test_given_the_packaged_table_when_read_then_it_says_of_when_and_where_it_is_and_knows_training_instances() -> None:
    prices = packaged_prices()
    assert (prices.region, prices.currency, prices.source) == ("us-east-1", "USD", "AWS public price list")
    assert prices.date in prices.origin
    for family in ("p3", "p4d", "p4de", "p5", "g4dn", "g5", "g6", "c5", "m5", "trn1"):
        assert any(name.startswith(f"ml.{family}.") for name in prices.per_hour), family
    assert prices.hourly("ml.p3.8xlarge") == 14.688
    assert prices.hourly("ml.unheard-of.large") is None


def test_given_sizes_of_one_family_when_priced_then_more_gpus_never_cost_less() -> None:
    prices = packaged_prices()
    for smaller, larger in [
        ("ml.p3.2xlarge", "ml.p3.8xlarge"),
        ("ml.p3.8xlarge", "ml.p3.16xlarge"),
        ("ml.g5.xlarge", "ml.g5.12xlarge"),
        ("ml.g5.24xlarge", "ml.g5.48xlarge"),
        ("ml.p4d.24xlarge", "ml.p4de.24xlarge"),
    ]:
        assert (prices.hourly(smaller) or 0.0) < (prices.hourly(larger) or 0.0)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "truncated"),
        (b"\xff", "prices.json"),
        (b"[]", "Expected `object`"),
        (table(currency=3), r"\$\.currency"),
        (table(per_hour={"ml.p3.2xlarge": "dear"}), r"\$\.per_hour"),
        (table(per_hour={"ml.p3.2xlarge": 0}), "per_hour.ml.p3.2xlarge is 0.0, expected a number above 0"),
        (table(per_hour={"ml.p3.2xlarge": -1.5}), "per_hour.ml.p3.2xlarge is -1.5"),
        (table(unknown=1), "unknown"),
    ],
)
def test_given_a_table_that_cannot_be_used_when_read_then_the_error_names_file_and_field(
    body: bytes, fault: str
) -> None:
    with pytest.raises(PriceTableError, match=fault):
        read_prices("prices.json", body)


def test_given_a_table_of_one_s_own_when_billed_then_its_prices_and_currency_hold() -> None:
    prices = read_prices("prices.json", table())
    bill = Account("ml.p5.48xlarge", 0.0, 1_800.0, 2, prices).bill()
    assert bill == Bill(60.0, 0.5, 2, "EUR", "our contract, eu-west-1, 2026-01-01")
    assert str(bill.lost(0.5)) == "about EUR 15.00 of the EUR 60.00 spent"


@pytest.mark.parametrize(("wasted", "lost"), [(0.0, 0.0), (0.25, 0.25), (2.0, 2.0), (3.0, 2.0), (-1.0, 0.0)])
def test_given_any_waste_when_priced_then_no_more_is_lost_than_was_spent(wasted: float, lost: float) -> None:
    assert Bill(1.0, 1.0, 2, "USD", "").lost(wasted) == Cost(lost, 2.0, "USD")


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (Account(None, 0.0, 60.0, 1), "instance type is not known"),
        (Account("ml.p3.2xlarge", None, 60.0, 1), "since when"),
        (Account("ml.p3.2xlarge", 0.0, None, 1), "since when"),
        (Account("ml.unheard-of.large", 0.0, 60.0, 1), "no price of ml.unheard-of.large is known"),
    ],
)
def test_given_what_is_not_known_when_billed_then_it_says_why_there_is_no_money(account: Account, why: str) -> None:
    bill = account.bill()
    assert isinstance(bill, Unpriced)
    assert why in bill.why


def test_given_a_watermark_before_the_start_when_billed_then_nothing_was_spent() -> None:
    bill = Account("ml.p3.2xlarge", 100.0, 60.0, 1).bill()
    assert isinstance(bill, Bill)
    assert bill.spent == 0.0
