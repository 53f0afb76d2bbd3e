"""The AWS Price List: the products of an offer in a Region, page by page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainguard.aws.aws_errors import translated
from trainguard.core.errors import PortUnavailableError
from trainguard.pricing.price_list import Offer

SERVICE, OPERATION = "Pricing", "GetProducts"
# A Region has about 1,000 types an offer, and a page 100 of them.
MAX_PAGES = 200


def endpoint_region(region: str) -> str:
    """Return the Region whose service has the prices of a Region: few have it."""
    if region.startswith("cn-"):
        return "cn-northwest-1"
    if region.startswith(("eu-", "il-", "me-", "af-")):
        return "eu-central-1"
    return "ap-south-1" if region.startswith("ap-") else "us-east-1"


def currency_of(region: str) -> str:
    return "CNY" if region.startswith("cn-") else "USD"


def list_products(client: Any, offer: Offer, region: str) -> Iterator[str]:
    """Yield the products of an offer in a Region, as JSON documents; raises PortUnavailableError.

    ``client`` is one of the service Pricing, and needs ``pricing:GetProducts``.
    """
    filters: Sequence[Mapping[str, str]] = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value}
        for name, value in (*offer.filters, ("regionCode", region))
    ]
    with translated(SERVICE, OPERATION):
        pages = client.get_paginator("get_products").paginate(
            ServiceCode=offer.service, Filters=filters, FormatVersion="aws_v1", MaxResults=100
        )
        for number, page in enumerate(pages):
            if number == MAX_PAGES:
                break
            yield from page.get("PriceList", ())
        else:
            return
    raise PortUnavailableError(SERVICE, OPERATION, f"{offer.service} in {region} goes on after {MAX_PAGES} pages")
