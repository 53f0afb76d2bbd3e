"""A price table rebuilt from the price list, and its changes."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainguard.pricing.price_list import ListedPrice, ListedPrices, Offer
from trainguard.pricing.table import Accelerators, InstanceRow, PriceTable

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
