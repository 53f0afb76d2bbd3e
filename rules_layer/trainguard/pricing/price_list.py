"""Products of the AWS Price List (``aws_v1``) as prices, a type with two has none; a table rebuilt from them."""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from trainguard.pricing.table import Accelerators, InstanceRow, PriceTable

_SAGEMAKER_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+")
_EC2_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
ML = "ml."


@dataclass(frozen=True, slots=True)
class Offer:
    """Which products of a service to ask for, and their attribute of the instance type; the Region comes on top."""

    service: str
    source: str
    type_attribute: str
    type_pattern: re.Pattern[str]
    filters: tuple[tuple[str, str], ...]
    # End of a product's ``usagetype``: rates of reserved capacity have the same attributes and another one.
    usage: re.Pattern[str]


TRAINING = Offer(
    service="AmazonSageMaker",
    source="AWS price list, SageMaker training",
    type_attribute="instanceName",
    type_pattern=_SAGEMAKER_TYPE,
    filters=(("productFamily", "ML Instance"), ("component", "Training")),
    usage=re.compile(r"(?:[A-Z0-9]+-)?Train:ml\.[^:]+"),
)
ON_EC2 = Offer(
    service="AmazonEC2",
    source="AWS price list, EC2 on demand",
    type_attribute="instanceType",
    type_pattern=_EC2_TYPE,
    filters=(
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("capacitystatus", "Used"),
        ("preInstalledSw", "NA"),
        ("licenseModel", "No License required"),
    ),
    usage=re.compile(r"(?:[A-Z0-9]+-)?BoxUsage(?::[^:]+)?"),
)
OFFERS = (TRAINING, ON_EC2)


class _Dimension(msgspec.Struct, frozen=True, rename="camel"):
    unit: str
    price_per_unit: dict[str, str]


def _product(body: str) -> tuple[dict[str, str], list[_Dimension]]:
    """Return a product's attributes and the dimensions of its price on demand; raises for another document."""
    entry = msgspec.json.decode(body)
    terms = entry["terms"].get("OnDemand", {}).values()
    dimensions = [each for term in terms for each in term["priceDimensions"].values()]
    attributes = entry["product"]["attributes"]
    return msgspec.convert(attributes, dict[str, str]), msgspec.convert(dimensions, list[_Dimension])


def read_offer(
    offer: Offer, currency: str, products: Iterable[str], day: datetime.date
) -> tuple[dict[str, InstanceRow], dict[str, int]]:
    """Return rows of ``day`` by the instance types among products, each a JSON document; none of them is an error.

    The second are products that were not used, counted by reason. Accelerators are those that the list names.
    """
    found: dict[str, InstanceRow] = {}
    unused: Counter[str] = Counter()
    contested = set()
    for body in products:
        try:
            attributes, dimensions = _product(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
            unused["products that cannot be read"] += 1
            continue
        name, usage = attributes.get(offer.type_attribute, ""), attributes.get("usagetype")
        if not offer.type_pattern.fullmatch(name) or (usage is not None and not offer.usage.fullmatch(usage)):
            unused["products of other kinds"] += 1
            continue
        price = _one_price(dimensions, currency)
        if price is None:
            unused[f"products without one price in {currency} an hour"] += 1
            continue
        if name in found and found[name].per_hour != price:
            contested.add(name)
        gpus = attributes.get("gpu", "")
        count = int(gpus) if gpus.isdecimal() and len(gpus) < 4 else 0
        found[name] = InstanceRow(price, offer.source, day, Accelerators(count, "gpu") if count else None)
    for name in contested:
        unused["instance types with two prices"] += 1
        del found[name]
    return found, dict(unused)


def _one_price(dimensions: Iterable[_Dimension], currency: str) -> float | None:
    prices = {each.price_per_unit.get(currency) for each in dimensions if each.unit.lower() in {"hrs", "hours", "hour"}}
    if len(prices) != 1:
        return None
    try:
        price = float(prices.pop() or "nan")
    except ValueError:
        return None
    return price if math.isfinite(price) and price > 0.0 else None


def updated(
    before: PriceTable, packaged: PriceTable, listed: Mapping[str, InstanceRow], *, region: str, currency: str
) -> PriceTable:
    """Return the table with the ``listed`` rows; others of the same Region and currency stay."""
    same_place = (before.region, before.currency) == (region, currency)
    rows: dict[str, InstanceRow] = {}
    for table, keeps_prices in ((packaged, False), (before, same_place)):
        for name, row in table.instances.items():
            known = row.accelerators or rows.get(name, InstanceRow()).accelerators
            kept = row if keeps_prices else InstanceRow()
            rows[name] = InstanceRow(kept.per_hour, kept.source, kept.date, known)
    for name, row in listed.items():
        alike = (rows.get(each) for each in (name, name.removeprefix(ML), f"{ML}{name}"))
        known = next((each.accelerators for each in alike if each is not None and each.accelerators is not None), None)
        rows[name] = replace(row, accelerators=known or row.accelerators)
    return PriceTable(region, currency, {name: rows[name] for name in sorted(rows, key=_order)})


def changes(before: PriceTable, after: PriceTable, listed: Mapping[str, InstanceRow]) -> dict[str, list[str]]:
    """Return the types that are new, dearer, cheaper and the same in ``after``, which was made from ``listed``.

    Those that the list does not have are kept; types without a price are left out.
    """
    comparable = (before.region, before.currency) == (after.region, after.currency)
    old = {name: before.hourly(name) if comparable else None for name in listed}
    pairs = [(name, old[name], after.hourly(name) or 0.0) for name in sorted(listed, key=_order)]
    return {
        "new": [name for name, was, _ in pairs if was is None],
        "dearer": [name for name, was, now in pairs if was is not None and now > was],
        "cheaper": [name for name, was, now in pairs if was is not None and now < was],
        "same": [name for name, was, now in pairs if was == now],
        "kept": [name for name, row in after.instances.items() if name not in listed and row.per_hour is not None],
    }


def _order(name: str) -> tuple[bool, str, int, str]:
    """SageMaker's types first, by family, then by size: ``2xlarge`` before ``12xlarge``."""
    family, _, size = name.removeprefix(ML).partition(".")
    number = size.removesuffix("xlarge")
    return not name.startswith(ML), family, int(number) if number.isdecimal() else 0, size
