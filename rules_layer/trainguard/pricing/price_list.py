"""Products of the AWS Price List (``aws_v1``) as prices, a type with two has none; a table rebuilt from them."""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from trainguard.pricing.table import Accelerators, InstanceRow, PriceTable

_SAGEMAKER_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+")
_EC2_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


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


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """A listed instance type; ``gpus`` None where the list does not say."""

    per_hour: float
    gpus: int | None


@dataclass(frozen=True, slots=True)
class ListedPrices:
    """Prices of an offer by instance type, and how much of the list was not used, by reason."""

    prices: Mapping[str, ListedPrice]
    unused: Mapping[str, int] = field(default_factory=dict)


class _Product(msgspec.Struct, frozen=True):
    attributes: dict[str, str]


class _Dimension(msgspec.Struct, frozen=True, rename="camel"):
    unit: str
    price_per_unit: dict[str, str]


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    price_dimensions: dict[str, _Dimension]


class _Terms(msgspec.Struct, frozen=True):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class _Entry(msgspec.Struct, frozen=True):
    product: _Product
    terms: _Terms


_DECODER = msgspec.json.Decoder(_Entry)


def read_offer(offer: Offer, currency: str, products: Iterable[str]) -> ListedPrices:
    """Return the prices among products, each a JSON document; none of them is an error."""
    found: dict[str, ListedPrice] = {}
    unused: Counter[str] = Counter()
    contested = set()
    for body in products:
        try:
            entry = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unused["products that cannot be read"] += 1
            continue
        name = entry.product.attributes.get(offer.type_attribute, "")
        usage = entry.product.attributes.get("usagetype")
        if not offer.type_pattern.fullmatch(name) or (usage is not None and not offer.usage.fullmatch(usage)):
            unused["products of other kinds"] += 1
            continue
        price = _on_demand(entry, currency)
        if price is None:
            unused[f"products without one price in {currency} an hour"] += 1
            continue
        if name in found and found[name].per_hour != price:
            contested.add(name)
        found[name] = ListedPrice(price, _count(entry.product.attributes.get("gpu")))
    for name in contested:
        unused["instance types with two prices"] += 1
        del found[name]
    return ListedPrices(found, dict(unused))


def _on_demand(entry: _Entry, currency: str) -> float | None:
    prices = {
        each.price_per_unit.get(currency)
        for term in entry.terms.on_demand.values()
        for each in term.price_dimensions.values()
        if each.unit.lower() in {"hrs", "hours", "hour"}
    }
    if len(prices) != 1:
        return None
    try:
        price = float(prices.pop() or "nan")
    except ValueError:
        return None
    return price if math.isfinite(price) and price > 0.0 else None


def _count(written: str | None) -> int | None:
    return int(written) if written is not None and written.isdecimal() and len(written) < 4 and int(written) else None


ML = "ml."


@dataclass(frozen=True, slots=True)
class Changes:
    """Instance types by change of price; the list does not have ``kept``."""

    new: Sequence[str]
    dearer: Sequence[str]
    cheaper: Sequence[str]
    same: Sequence[str]
    kept: Sequence[str]


def updated(
    before: PriceTable,
    packaged: PriceTable,
    listed: Mapping[Offer, ListedPrices],
    *,
    region: str,
    currency: str,
    day: datetime.date,
) -> PriceTable:
    """Return the table with the listed prices of ``day``; others of the same Region and currency stay."""
    same_place = (before.region, before.currency) == (region, currency)
    rows: dict[str, InstanceRow] = {}
    for table, keeps_prices in ((packaged, False), (before, same_place)):
        for name, row in table.instances.items():
            known = row.accelerators or rows.get(name, InstanceRow()).accelerators
            kept = row if keeps_prices else InstanceRow()
            rows[name] = InstanceRow(kept.per_hour, kept.source, kept.date, known)
    for offer, prices in listed.items():
        for name, price in prices.prices.items():
            rows[name] = InstanceRow(price.per_hour, offer.source, day, _accelerators(name, price, rows))
    return PriceTable(region, currency, {name: rows[name] for name in sorted(rows, key=_order)})


def changes(before: PriceTable, after: PriceTable, listed: Mapping[Offer, ListedPrices]) -> Changes:
    """Compare two tables, of which ``after`` was made from ``listed``; types without a price are left out."""
    found = {name for prices in listed.values() for name in prices.prices}
    comparable = (before.region, before.currency) == (after.region, after.currency)
    old = {name: before.hourly(name) if comparable else None for name in found}
    pairs = [(name, old[name], after.hourly(name) or 0.0) for name in sorted(found, key=_order)]
    return Changes(
        new=[name for name, was, _ in pairs if was is None],
        dearer=[name for name, was, now in pairs if was is not None and now > was],
        cheaper=[name for name, was, now in pairs if was is not None and now < was],
        same=[name for name, was, now in pairs if was == now],
        kept=[name for name, row in after.instances.items() if name not in found and row.per_hour is not None],
    )


def _accelerators(name: str, price: ListedPrice, rows: Mapping[str, InstanceRow]) -> Accelerators | None:
    for known in (name, name.removeprefix(ML), f"{ML}{name}"):
        if known in rows and rows[known].accelerators is not None:
            return rows[known].accelerators
    return None if price.gpus is None else Accelerators(price.gpus, "gpu")


def _order(name: str) -> tuple[bool, str, int, str]:
    """SageMaker's types first, by family, then by size: ``2xlarge`` before ``12xlarge``."""
    family, _, size = name.removeprefix(ML).partition(".")
    number = size.removesuffix("xlarge")
    return not name.startswith(ML), family, int(number) if number.isdecimal() else 0, size
