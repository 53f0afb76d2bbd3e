"""The AWS price list: what of its products becomes a price, and how a table is rebuilt from them."""

import datetime

import pytest

from tests.support.price_list import on_ec2, product, training
from trainguard.pricing.price_list import ON_EC2, TRAINING, Offer, changes, read_offer, updated
from trainguard.pricing.table import Accelerators, InstanceRow, PriceTable

P5, P5E, P3 = "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p3.2xlarge"
H100 = Accelerators(8, "gpu", "NVIDIA H100")
DAY, BEFORE = datetime.date(2026, 11, 22), datetime.date(2025, 5, 1)


def listed_row(offer: Offer, price: float, gpus: int | None = None) -> InstanceRow:
    return InstanceRow(price, offer.source, DAY, None if gpus is None else Accelerators(gpus, "gpu"))


def test_training_products_give_each_type_its_price() -> None:
    found, unused = read_offer(TRAINING, "USD", [training(P5, "63.2960000000"), training(P3, "3.825")], DAY)
    assert found == {P5: listed_row(TRAINING, 63.296), P3: listed_row(TRAINING, 3.825)}
    assert unused == {}


def test_ec2_products_give_the_listed_number_of_gpus() -> None:
    bodies = [on_ec2("p5.48xlarge", "55.04", gpu="8"), on_ec2("m5.large", "0.096", gpu="N/A")]
    found, _ = read_offer(ON_EC2, "USD", bodies, DAY)
    assert found == {"p5.48xlarge": listed_row(ON_EC2, 55.04, 8), "m5.large": listed_row(ON_EC2, 0.096)}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "products that cannot be read"),
        ('{"product": {}}', "products that cannot be read"),
        (training("ml.p5.48xlarge", "0.01", usage="USE1-TrainingPlan:ml.p5.48xlarge"), "products of other kinds"),
        (training("ml.p5.48xlarge trainingplaninuse", "0.0"), "products of other kinds"),
        (product({"component": "Training"}, "1.0"), "products of other kinds"),
        (training(P5, "0.0000000000"), "products without one price in USD an hour"),
        (training(P5, "dear"), "products without one price in USD an hour"),
        (training(P5, "1e999"), "products without one price in USD an hour"),
        (training(P5, None), "products without one price in USD an hour"),
        (training(P5, "440.1", currency="CNY"), "products without one price in USD an hour"),
        (training(P5, "1.0", unit="Sec"), "products without one price in USD an hour"),
    ],
)
def test_product_without_a_price_is_counted_and_others_are_read(body: str, why: str) -> None:
    found = read_offer(TRAINING, "USD", [body, training(P3, "3.825")], DAY)
    assert found == ({P3: listed_row(TRAINING, 3.825)}, {why: 1})


def test_given_a_type_with_two_prices_when_read_then_it_has_none() -> None:
    bodies = [training(P5, "63.296"), training(P5, "70.0"), training(P5, "63.296"), training(P3, "3.825")]
    found = read_offer(TRAINING, "USD", bodies, DAY)
    assert found == ({P3: listed_row(TRAINING, 3.825)}, {"instance types with two prices": 1})


def old(name: str, price: float | None, accelerators: Accelerators | None = None) -> dict[str, InstanceRow]:
    return {name: InstanceRow(price, None if price is None else "a list", BEFORE if price else None, accelerators)}


PACKAGED = PriceTable("us-east-1", "USD", {**old(P5, 113.068, H100), **old(P3, 3.825), **old(P5E, None)})
LISTED = {
    P5: listed_row(TRAINING, 63.296),
    "ml.new.12xlarge": listed_row(TRAINING, 9.0, 4),
    "p5.48xlarge": listed_row(ON_EC2, 55.04),
}


def test_new_table_dates_listed_prices_and_keeps_the_others() -> None:
    table = updated(PACKAGED, PACKAGED, LISTED, region="us-east-1", currency="USD")
    assert table.row(P5) == InstanceRow(63.296, TRAINING.source, DAY, H100)
    assert table.row("p5.48xlarge") == InstanceRow(55.04, ON_EC2.source, DAY, H100)
    assert table.row("ml.new.12xlarge") == InstanceRow(9.0, TRAINING.source, DAY, Accelerators(4, "gpu"))
    assert table.row(P3) == PACKAGED.row(P3)
    assert table.hourly(P5E) is None
    found = changes(PACKAGED, table, LISTED)
    assert (found["cheaper"], found["dearer"], found["same"]) == ([P5], [], [])
    assert (found["new"], found["kept"]) == (["ml.new.12xlarge", "p5.48xlarge"], [P3])


def test_table_of_another_region_keeps_no_previous_price() -> None:
    table = updated(PACKAGED, PACKAGED, LISTED, region="eu-west-1", currency="USD")
    assert table.hourly(P3) is None
    assert table.row(P5E) == InstanceRow()
    found = changes(PACKAGED, table, LISTED)
    assert (found["cheaper"], found["kept"]) == ([], [])
    assert found["new"] == ["ml.new.12xlarge", P5, "p5.48xlarge"]


def test_accelerators_of_a_converted_old_table_are_packaged_ones() -> None:
    own = PriceTable("us-east-1", "USD", old(P5, 60.0))
    assert updated(own, PACKAGED, LISTED, region="us-east-1", currency="USD").row(P5) == InstanceRow(
        63.296, TRAINING.source, DAY, H100
    )
    assert updated(own, PACKAGED, LISTED, region="us-east-1", currency="USD").hourly(P3) is None


def test_sizes_in_a_table_are_in_order() -> None:
    names = ["g5.12xlarge", "ml.g5.48xlarge", "ml.g5.2xlarge", "ml.g5.xlarge", "g5.2xlarge"]
    listed = {name: listed_row(ON_EC2, 1.0) for name in names}
    table = updated(PriceTable("x", "USD", {}), PriceTable("x", "USD", {}), listed, region="x", currency="USD")
    assert list(table.instances) == ["ml.g5.xlarge", "ml.g5.2xlarge", "ml.g5.48xlarge", "g5.2xlarge", "g5.12xlarge"]


@pytest.mark.parametrize(
    ("usage", "is_taken"),
    [
        ("BoxUsage", True),
        ("BoxUsage:m5.large", True),
        ("EUW1-BoxUsage:m5.large", True),
        ("UnusedBox:m5.large", False),
        ("EUW1-DedicatedUsage:m5.large", False),
        ("BoxUsage:", False),
        ("euw1-BoxUsage:m5.large", False),
    ],
)
def test_usage_on_demand_has_a_price(usage: str, is_taken: bool) -> None:
    attributes = {"instanceType": "m5.large", "regionCode": "eu-west-1", "usagetype": usage}
    found, _ = read_offer(ON_EC2, "USD", [product(attributes, "0.096")], DAY)
    assert found == ({"m5.large": listed_row(ON_EC2, 0.096)} if is_taken else {})


def test_the_offers_are_on_demand_without_software() -> None:
    assert dict(ON_EC2.filters) == {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
    }
    assert dict(TRAINING.filters) == {"productFamily": "ML Instance", "component": "Training"}
